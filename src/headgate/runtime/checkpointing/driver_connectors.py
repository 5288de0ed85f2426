"""A job's sources and sinks on the driver: prepared before it starts, committed at its checkpoints and its end.

Errors have the operator's name, whatever they were. Sinks are committed on another thread than the rest: what one
does there may take long, or not return at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Claim, Sink
from headgate.errors import CheckpointError, HeadgateError, SinkError, SourceError
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobGraph
from headgate.plan.node_keys import node_key
from headgate.records.arrow import plain_schema
from headgate.runtime.checkpointing.problems import Problem, sentences
from headgate.state.checkpoint_metadata import CheckpointMetadata

#: What is said of a thread that nothing can end.
THREAD_LEFT_RUNNING = "its daemon thread is left running"
#: What sinks' writers returned, by node key.
Pending = Mapping[str, Sequence[Any]]


class DriverConnectors:
    """Of one run; with `allow_duplicates` it may show rows that are there already. `commit`, `finish` and `rollback`
    are for one thread at a time, and the rest for another."""

    def __init__(self, job: JobGraph, run: str, allow_duplicates: bool = False) -> None:
        self._run = run
        self._allow_duplicates = allow_duplicates
        self._nodes = [node for vertex in job.vertices for node in vertex.nodes if node.source or node.sink]
        self._sinks: dict[int, tuple[Node, Sink]] = {
            node.id: (node, node.sink) for node in self._nodes if node.sink is not None
        }
        self._schemas = {node.id: plain_schema(node.schema) for node, _ in self._sinks.values()}
        self._prepared: list[int] = []
        self._reading: list[Node] = []
        #: Whose turn it is to commit, finish or roll back; none has one any more when the job has ended.
        self._committing: Node | None = None
        self._cleaning: Node | None = None
        self._has_ended = False
        self._committing_lock = threading.Lock()

    def prepare(self, resumed: CheckpointMetadata | None = None) -> None:
        """Check that everything can be read and written; for a job that resumes from a checkpoint, also that it still
        is what it was. Results that are there stay as they are. Raises HeadgateError; then nothing is left of what was
        made ready, and it may be called again."""
        self._has_ended = False
        try:
            for node in sorted(self._nodes, key=lambda node: node.sink is not None):
                with _errors_of(node, _resume_prefix(resumed)):
                    self._prepare(node, None if resumed is None else resumed.prepared.get(node_key(node)))
            self.refuse_repeats(resumed)
        except BaseException:
            self.abort()
            raise

    def newest_owner(self) -> int:
        """The highest epoch with which a program has claimed one of the results. Raises the first error."""
        found = [0]
        for node, sink in self._sinks.values():
            with _errors_of(node):
                found.append(sink.newest_owner())
        return max(found)

    def claim(self, claim: Claim) -> bool:
        """Take over the results; whether no other program has done so with the same epoch. Raises the first error."""
        are_claimed = []
        for node, sink in self._sinks.values():
            with _errors_of(node):
                are_claimed.append(sink.claim(claim))
        return all(are_claimed)

    def begin(self, claim: Claim, resumed: CheckpointMetadata | None) -> None:
        """The job is sure to start, and its results are claimed: leave of them what belongs to the checkpoint. Raises
        the first error; then call `abort`."""
        for node, sink in self._sinks.values():
            with _errors_of(node, _resume_prefix(resumed)):
                sink.begin(claim)
        if resumed is not None:
            self.rollback(resumed.pending, resumed.id, _resume_prefix(resumed))
            self.refuse_repeats(resumed)  # another program may have committed until `begin`

    def refuse_repeats(self, resumed: CheckpointMetadata | None) -> None:
        """Raises CheckpointError for a sink that has shown rows that the checkpoint does not have."""
        if self._allow_duplicates or resumed is None:
            return
        for node, sink in self._sinks.values():
            with _errors_of(node):
                if shown := sink.published_after(resumed.id, resumed.run):
                    other = "" if shown > resumed.id else ", which another program took that went on with them"
                    raise CheckpointError(
                        f"the results have the rows of checkpoint {shown}{other}, and the job would resume from "
                        f"checkpoint {resumed.id}: the rows between them would be there twice. Restore checkpoint "
                        f"{shown} and resume from it, or give allow_duplicates=True (headgate run --allow-duplicates)"
                    )

    def _prepare(self, node: Node, before: Any) -> None:
        """`before` is what it was prepared with in the program that it resumes from."""
        if node.source is not None:
            node.source.prepare() if before is None else node.source.restore(before)
            self._reading.append(node)
        if node.sink is not None:
            job = f"{self._run}-{node.id}"
            self._prepared.append(node.id)
            node.sink.prepare(job, node.schema) if before is None else node.sink.resume(job, node.schema, before)

    def prepared(self) -> dict[str, Any]:
        """What sources and sinks found out, by node key: for another program that goes on with this job."""
        found = ((node_key(node), (node.source or node.sink)) for node in self._nodes)
        return {key: prepared for key, end in found if end is not None and (prepared := end.prepared()) is not None}

    def deliver(self, node_id: int, payload: bytes, checkpoint: int) -> None:
        """A batch for a sink that takes its rows on the driver, and the checkpoint that it belongs to."""
        node, sink = self._sinks[node_id]
        with _errors_of(node):
            batch = pa.ipc.read_record_batch(pa.py_buffer(payload), self._schemas[node_id])
            batch.validate(full=True)
            sink.deliver(batch, checkpoint)

    @property
    def slots(self) -> int:
        """Task slots of Spark that a sink needs while the job runs; they are called one after the other."""
        return max((sink.slots for _, sink in self._sinks.values()), default=0)

    def commit(self, pending: Pending, checkpoint: int) -> None:
        """Make what writers returned visible: of a checkpoint, or (0) of a job without. Raises the first error."""
        self._for_each_sink(lambda node, sink: sink.commit(pending.get(node_key(node), ()), checkpoint))

    def finish(self) -> None:
        """The job has finished and all is committed. Raises the first error."""
        self._for_each_sink(lambda node, sink: sink.finish())

    def rollback(self, pending: Pending, checkpoint: int, prefix: str = "") -> None:
        """The job starts again from a checkpoint, 0: from its beginning. Raises the first error; one that is none of
        ours begins with `prefix`."""
        self._for_each_sink(lambda node, sink: sink.rollback(pending.get(node_key(node), ()), checkpoint), prefix)

    def _for_each_sink(self, do: Callable[[Node, Sink], None], prefix: str = "") -> None:
        for node, sink in self._sinks.values():
            with self._committing_lock:
                if self._has_ended:
                    return
                self._committing = node
            try:
                with _errors_of(node, prefix):
                    do(node, sink)
            finally:
                self._committing = None

    @property
    def current_cleanup(self) -> str:
        """Any thread: which of them is, or was last, cleaning up."""
        node = self._cleaning
        return "the clean-up" if node is None else f"the clean-up of {node.name}"

    def release(self) -> list[str]:
        """The job has ended: sources remove what they made for it. Returns what could not be removed, and why."""
        problems = []
        for node in self._reading:
            assert node.source is not None
            self._cleaning = node
            try:
                node.source.release()
            except Exception as error:
                problems.append(Problem("source", node.name, str(error)))
        self._reading = []
        return sentences(problems)

    def abort(self, pending: Pending = MappingProxyType({}), checkpoint: int = 0, known: str = "") -> list[str]:
        """Leave nothing of the results but what belongs to a checkpoint. Returns what could not be cleaned up, and why,
        unless the job's error, `known`, says it: a sink that has not returned from a commit is left as it is."""
        messages, problems = self.release(), []
        with self._committing_lock:
            self._has_ended = True
            stuck = self._committing
        for node_id in self._prepared:
            node, sink = self._sinks[node_id]
            if node is stuck:
                messages.append(f"the commit of {node.name} did not return when the job ended; {THREAD_LEFT_RUNNING}")
                continue
            self._cleaning = node
            try:
                sink.abort(pending.get(node_key(node), ()), checkpoint)
            except Exception as error:
                problems.append(Problem("sink", node.name, str(error)))
        self._prepared = []
        return messages + sentences(problems, known)


def _resume_prefix(resumed: CheckpointMetadata | None) -> str:
    return "" if resumed is None else f"cannot resume from checkpoint {resumed.id}: "


@contextmanager
def _errors_of(node: Node, prefix: str = "") -> Iterator[None]:
    try:
        yield
    except HeadgateError as error:
        raise error.at(operator=node.name) from None
    except Exception as error:
        kind = SinkError if node.sink is not None else SourceError
        raise kind(f"{prefix}{type(error).__name__}: {error}").at(operator=node.name) from error
