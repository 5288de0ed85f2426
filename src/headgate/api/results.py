"""Results that come back to the program: waiting for a job, the rows of `collect`, the files of `to_dataframe`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.api import progress
from headgate.connectors.collect_sink import CollectSink
from headgate.errors import PlanError
from headgate.plan.graph import StreamGraph

if TYPE_CHECKING:
    from headgate.runtime.master.job import JobHandle, JobResult

#: How long `collect(limit=)` waits for the job's end before it looks whether there are enough rows, seconds.
_LOOK = 0.02


def finish(job: JobHandle) -> JobResult:
    """Wait for a job's end; an interrupt (Ctrl-C) cancels it, so that nothing is left running."""
    try:
        return progress.wait_and_tell(job, progress.to_terminal) if progress.is_shown() else job.wait()
    except KeyboardInterrupt:
        with suppress(KeyboardInterrupt):  # who interrupts again does not wait: the tasks end with this process
            job.cancel()
        raise


def wait_for_rows(job: JobHandle, rows: CollectSink) -> pa.Table:
    """The rows, once there are as many as wanted or the job has ended. Raises the job's error."""
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
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise PlanError(f"collect: limit={limit!r} must be a number of rows of at least 1, or None for all")


def check_ends(what: str, graph: StreamGraph) -> None:
    """Raises PlanError when `what` waits for the end of sources that have none."""
    endless = [node.name for node in graph.nodes if node.source is not None and not node.source.bounded]
    if endless:
        raise PlanError(
            f"{what} waits for the last row, and source {endless[0]!r} has no end; give it one (rows=...), "
            "or use collect(limit=...) or a sink"
        )


def check_batch(graph: StreamGraph) -> None:
    """Raises PlanError when a source has no end, for which batch mode would wait."""
    endless = [node.name for node in graph.nodes if node.source is not None and not node.source.bounded]
    if endless:
        raise PlanError(
            f'execution_mode="batch" runs an operator when all before it have finished, and source {endless[0]!r} has '
            'no end; give it one (rows=...), or run it with execution_mode="streaming"'
        )


def check_end_sinks(graph: StreamGraph) -> None:
    """For a job without checkpoints: raises PlanError for a sink that shows its rows in the end, below a source that
    has none."""
    endless: dict[int, str] = {}
    for node in graph.nodes:
        sources = [endless[edge.source] for edge in node.inputs if edge.source in endless]
        if node.source is not None and not node.source.bounded:
            sources = [node.name]
        if not sources:
            continue
        endless[node.id] = sources[0]
        if node.sink is not None and node.sink.shows_at_commit:
            raise PlanError(
                f"sink {node.name!r} shows its rows when the job ends, and source {sources[0]!r} has no end; "
                "set checkpoint_dir, with which they show at each checkpoint, give the source an end (rows=...), "
                "or write with hg.sinks.for_each_batch"
            )
