"""Calls a job's sources and sinks on the driver: prepares them before the start, and commits at checkpoints and the
end.

Each error has the operator's name. Sinks commit on a background thread: a commit may take long, or never return.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
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

#: The end of messages about a thread that cannot be ended.
THREAD_LEFT_RUNNING = "its daemon thread is left running"
#: What sink writers and source readers returned for a commit, by node key.
Pending = Mapping[str, Sequence[Any]]


class DriverConnectors:
    """The sources and sinks of one run of a job. A run is one program that starts or resumes the job.

    With `allow_duplicates` the run may publish rows that are already published.

    One thread at a time calls `commit`, `finish` and `rollback`. Another thread calls the other methods.
    `_committing_lock` protects `_committing` and `_has_ended`.
    """

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
        #: The sink that commits, finishes or rolls back now. No sink starts to do so once `_has_ended` is true.
        self._committing: Node | None = None
        self._cleaning: Node | None = None
        self._has_ended = False
        self._committing_lock = threading.Lock()

    def prepare(self, resumed: CheckpointMetadata | None = None) -> None:
        """Check that all sources can be read and all sinks written. Existing results stay as they are.

        If the job resumes from a checkpoint, also check that sources and sinks are unchanged. Raises HeadgateError. In
        that case nothing of the preparation is left, and the method may be called again.
        """
        self._has_ended, self._prepared = False, []
        try:
            for node in sorted(self._nodes, key=lambda node: node.sink is not None):
                with _errors_of(node, _resume_prefix(resumed)):
                    self._prepare(node, None if resumed is None else resumed.prepared.get(node_key(node)))
            self.refuse_repeats(resumed)
        except BaseException:
            self.abort()
            raise

    @property
    def replaces(self) -> bool:
        """Whether a start without a checkpoint removes the results of all earlier programs."""
        return any(sink.replaces for _, sink in self._sinks.values())

    def newest_owner(self) -> int:
        """Return the highest epoch with which a program has claimed one of the results. Raises the first error."""
        epochs = [0]
        for node, sink in self._sinks.values():
            with _errors_of(node):
                epochs.append(sink.newest_owner())
        return max(epochs)

    def claim(self, claim: Claim) -> bool:
        """Claim the results for this program. Returns whether no other program has claimed them with the same epoch.

        Raises the first error.
        """
        are_claimed = []
        for node, sink in self._sinks.values():
            with _errors_of(node):
                are_claimed.append(sink.claim(claim))
        return all(are_claimed)

    def begin(self, claim: Claim, resumed: CheckpointMetadata | None) -> None:
        """Keep only results that belong to the checkpoint `resumed`, just before the job starts.

        The results must be claimed. Raises the first error; after an error the caller must call `abort`.
        """
        for node, sink in self._sinks.values():
            with _errors_of(node, _resume_prefix(resumed)):
                sink.begin(claim)
        if resumed is not None:
            self.rollback(resumed.pending, resumed.id, _resume_prefix(resumed))
            self.refuse_repeats(resumed)  # another program may have committed before `begin`

    def refuse_repeats(self, resumed: CheckpointMetadata | None) -> None:
        """Check that no sink has published rows that the checkpoint does not have. Raises CheckpointError."""
        if self._allow_duplicates or resumed is None:
            return
        for node, sink in self._sinks.values():
            with _errors_of(node):
                if shown := sink.published_after(resumed.id, resumed.run):
                    other = "" if shown > resumed.id else " (taken by another program that continued the job)"
                    raise CheckpointError(
                        f"the results have the rows of checkpoint {shown}{other}, and the job would resume from "
                        f"checkpoint {resumed.id}: the rows between the two would be written twice. Restore checkpoint "
                        f"{shown} and resume from it, or give allow_duplicates=True (headgate run --allow-duplicates)"
                    )

    def _prepare(self, node: Node, before: Any) -> None:
        """Prepare a source or sink. `before` is what it prepared in the program that the job resumes from, or None."""
        if node.source is not None:
            node.source.prepare() if before is None else node.source.restore(before)
            self._reading.append(node)
        if node.sink is not None:
            job = f"{self._run}-{node.id}"
            self._prepared.append(node.id)
            node.sink.prepare(job, node.schema) if before is None else node.sink.resume(job, node.schema, before)

    def prepared(self) -> dict[str, Any]:
        """Return what sources and sinks prepared, by node key. A program that resumes this job needs these values."""
        ends = ((node_key(node), (node.source or node.sink)) for node in self._nodes)
        return {key: prepared for key, end in ends if end is not None and (prepared := end.prepared()) is not None}

    def deliver(self, node_id: int, payload: bytes, checkpoint: int) -> None:
        """Give a batch to a sink on the driver, with the number of the checkpoint that the batch belongs to."""
        node, sink = self._sinks[node_id]
        with _errors_of(node):
            batch = pa.ipc.read_record_batch(pa.py_buffer(payload), self._schemas[node_id])
            batch.validate(full=True)
            sink.deliver(batch, checkpoint)

    @property
    def slots(self) -> int:
        """The task slots of Spark that sinks need while the job runs.

        Sinks run one after the other, so this is the most that one sink needs.
        """
        return max((sink.slots for _, sink in self._sinks.values()), default=0)

    def commit(self, pending: Pending, checkpoint: int) -> None:
        """Let sinks commit the results `pending` of a checkpoint, then let sources commit. Raises the first error.

        `checkpoint` is 0 in a job without checkpoints.
        """
        self._for_each_sink(lambda node, sink: sink.commit(pending.get(node_key(node), ()), checkpoint))
        for node in self._nodes:
            read = pending.get(node_key(node))
            if node.source is not None and read:
                with _errors_of(node):
                    node.source.commit(read, checkpoint)

    def results(self, pending: Pending) -> Pending:
        """Return the part of `pending` that belongs to sinks. A program that resumes the job commits this part
        again."""
        keys = {node_key(node) for node, _ in self._sinks.values()}
        return {key: values for key, values in pending.items() if key in keys}

    def finish(self) -> None:
        """Finish all sinks, after the job has finished and everything is committed. Raises the first error."""
        self._for_each_sink(lambda node, sink: sink.finish())

    def rollback(self, pending: Pending, checkpoint: int, prefix: str = "") -> None:
        """Remove the rows that sinks wrote after a checkpoint. Checkpoint 0 is the job's beginning.

        Raises the first error. The text of an error that is not Headgate's own begins with `prefix`.
        """
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
        """The name of the clean-up that runs now, or ran last, for messages. Any thread may read it."""
        node = self._cleaning
        return "the clean-up" if node is None else f"the clean-up of {node.name}"

    def release(self) -> list[str]:
        """Let sources remove the files that they made for the job. Call this when the job has ended.

        Returns messages about what could not be removed, and why.
        """
        problems: list[Problem] = []
        for node in self._reading:
            assert node.source is not None
            problems += self._problems_of("source", node, node.source.release)
        self._reading = []
        return sentences(problems)

    def superseded(self) -> list[str]:
        """Let sources and sinks remove what no program needs, because another program has taken over the job.

        Returns messages about what could not be removed, and why.
        """
        messages = self.release()
        problems: list[Problem] = []
        for node_id in self._prepared:
            node, sink = self._sinks[node_id]
            problems += self._problems_of("sink", node, sink.superseded)
        return messages + sentences(problems)

    def abort(self, pending: Pending = MappingProxyType({}), checkpoint: int = 0, known: str = "") -> list[str]:
        """Remove results that do not belong to a checkpoint.

        Returns messages about what could not be cleaned up, and why. The messages do not repeat `known`, the job's
        error. A sink that has not returned from a commit stays as it is.
        """
        messages = self.release()
        problems: list[Problem] = []
        with self._committing_lock:
            self._has_ended = True
            stuck = self._committing
        for node_id in self._prepared:
            node, sink = self._sinks[node_id]
            if node is stuck:
                messages.append(f"the commit of {node.name} did not return when the job ended; {THREAD_LEFT_RUNNING}")
                continue
            clean = partial(sink.abort, pending.get(node_key(node), ()), checkpoint)
            problems += self._problems_of("sink", node, clean)
        self._prepared = []
        return messages + sentences(problems, known)

    def _problems_of(self, kind: str, node: Node, clean: Callable[[], None]) -> list[Problem]:
        """Run the clean-up of a source or sink. Return its error, if there is one."""
        self._cleaning = node
        try:
            clean()
        except Exception as error:
            return [Problem(kind, node.name, str(error))]
        return []


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
