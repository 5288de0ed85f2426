"""Waits for jobs and their rows, and checks before a run that the wait will end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.connectors.collect_sink import CollectSink
from headgate.errors import PlanError
from headgate.plan.graph import Node, StreamGraph

if TYPE_CHECKING:
    from headgate.runtime.master.job import JobHandle, JobResult

log = logging.getLogger(__name__)
#: How often `collect(limit=)` checks whether there are enough rows, in seconds between two checks.
_LOOK = 0.02


def finish(job: JobHandle) -> JobResult:
    """Wait for a job's end, and return its result. An interrupt (Ctrl-C) cancels the job, so that no task keeps
    running."""
    try:
        return job.wait()
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # a second interrupt only ends the wait; the tasks end with this process
            job.cancel()
        raise


def wait_for_rows(job: JobHandle, rows: CollectSink) -> pa.Table:
    """Wait until there are enough rows or the job ends, cancel the job, and return the rows. Raises the job's error."""
    try:
        while not rows.full:
            try:
                job.wait(timeout=_LOOK)
                break
            except TimeoutError:
                continue
    finally:
        job.cancel()
    return rows.to_table()


def check_limit(limit: int | None) -> None:
    """Raise PlanError if `limit` is neither None nor a number of rows of at least 1."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise PlanError(f"collect: limit={limit!r} must be a number of rows of at least 1, or None for all")


def check_ends(call: str, graph: StreamGraph) -> None:
    """Raise PlanError if a source has no end. `call` is the name of the user's call, which waits for the end."""
    endless = [node.name for node in graph.nodes if node.source is not None and not node.source.bounded]
    if endless:
        raise PlanError(
            f"{call} waits for the last row, and source {endless[0]!r} has no end; give it an end (rows=...), "
            "or use collect(limit=...) or a sink"
        )


def check_batch(graph: StreamGraph) -> None:
    """Raise PlanError if a source has no end, because batch mode waits for the end of each operator."""
    endless = [node.name for node in graph.nodes if node.source is not None and not node.source.bounded]
    if endless:
        raise PlanError(
            f'execution_mode="batch" runs an operator when all operators before it have finished, and source '
            f'{endless[0]!r} has no end; give it an end (rows=...), or use execution_mode="streaming"'
        )


def check_end_sinks(graph: StreamGraph) -> None:
    """Raise PlanError if a job without checkpoints would never make the rows of a sink visible.

    Without checkpoints, some sinks make their rows visible when the job ends. A job with a source without end never
    ends.
    """
    for node, source in _without_end(graph):
        if node.sink is not None and node.sink.shows_at_commit:
            raise PlanError(
                f"sink {node.name!r} makes its rows visible when the job ends, and source {source!r} has no end; "
                "set checkpoint_dir, so that each checkpoint makes them visible, give the source an end (rows=...), "
                "or write with hg.sinks.for_each_batch"
            )


def check_final_rows(call: str, graph: StreamGraph) -> None:
    """Raise PlanError if `call` waits for rows that an operator emits at the end of an input without end."""
    for node, source in _of_an_end_that_never_comes(graph):
        raise PlanError(
            f"{call} waits for rows, but {node.name!r} has final=True, so it emits rows only when its input ends, and "
            f"source {source!r} has no end; give it an end (rows=...), leave final=True out, or use windows"
        )


def warn_of_final_rows(graph: StreamGraph) -> None:
    """Log a warning for each operator that emits its rows at the end of an input without end."""
    for node, source in _of_an_end_that_never_comes(graph):
        log.warning(
            "%r has final=True, so it emits rows only when its input ends, and source %r has no end: until "
            "job.stop(drain=True) it emits nothing, and its state grows with each new key; leave final=True out, or "
            "use windows",
            node.name,
            source,
        )


def _of_an_end_that_never_comes(graph: StreamGraph) -> Iterator[tuple[Node, str]]:
    return ((node, source) for node, source in _without_end(graph) if node.attributes.get("at_end"))


def _without_end(graph: StreamGraph) -> Iterator[tuple[Node, str]]:
    """Yield each node whose rows come from a source without end, with the source's name."""
    endless: dict[int, str] = {}
    for node in graph.nodes:
        sources = [endless[edge.source] for edge in node.inputs if edge.source in endless]
        if node.source is not None and not node.source.bounded:
            sources = [node.name]
        if sources:
            endless[node.id] = sources[0]
            yield node, sources[0]
