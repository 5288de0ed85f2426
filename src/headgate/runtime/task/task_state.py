"""The state of one task. Between two batches, the task captures it for a checkpoint. Before the first batch, the task
restores it.

Everything in this module runs on the task's thread. The task takes a copy of its state, and another thread stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from headgate.errors import CheckpointError
from headgate.runtime.task.chain import ToOperator, with_location
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.heads import SourceHead
from headgate.runtime.task.in_flight import InFlight
from headgate.runtime.task.sink_operator import SinkOperator
from headgate.runtime.task.task_channels import TaskChannels
from headgate.runtime.task.time_account import SNAPSHOT, TimeAccount
from headgate.state import shapes
from headgate.state.in_flight_file import InFlightData
from headgate.state.snapshot import ChangedWindows, Snapshot, checkpoint_errors

#: The key of the task's counters. They are stored with the state, so a job's counters include all its attempts.
_COUNTERS = "#counters"
_COUNTED = shapes.mapping(shapes.items(shapes.count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The state that a task captured for one checkpoint, on its way to the storage.

    `snapshots` has the snapshots by node key. `pending` has, by node key, the values that the driver passes to the
    commits of sinks and sources. If there is a `failure`, the snapshots are not stored.
    """

    checkpoint: int
    snapshots: Mapping[str, Snapshot]
    pending: Mapping[str, Any]
    taken_at: float
    in_flight: InFlightData = ()
    failure: str | None = None


class TaskState:
    """Captures and restores the state of one subtask.

    `head` is the task's source with its node key, if the task has a source. `entries` are the task's operators with
    their node keys. The function `store` stores the captured state; None in batch mode.
    """

    def __init__(
        self,
        subtask: int,
        parallelism: int,
        *,
        head: tuple[str, SourceHead] | None,
        entries: Sequence[tuple[str, ToOperator]],
        store: Callable[[Captured], None] | None,
        channels: Callable[[], TaskChannels],
        clocks: Clocks = SYSTEM,
        times: TimeAccount | None = None,
    ) -> None:
        self._subtask = subtask
        self._parallelism = parallelism
        self._head = head
        self._entries = entries
        self._store = store
        self._channels = channels
        self._clocks = clocks
        self._times = times or TimeAccount(clocks.monotonic)
        self._captured: Captured | None = None
        self._has_ended = False
        #: The number of the last checkpoint that the task took part in.
        self.took_part = 0
        #: After the task's end: the position of its source, and its counters, by node key.
        self.final: dict[str, Any] = {}
        #: After the task's end: the values for the commits of its sinks and source since the last checkpoint, by node
        #: key.
        self.pending: dict[str, Any] = {}

    def capture(self, checkpoint: int) -> None:
        """Copy the task's state for a checkpoint.

        The task has processed all rows before the checkpoint's barrier, except for rows in flight, and no row after it.
        Raises the error of a sink that cannot write its rows.
        """
        assert not self._has_ended, (
            f"checkpoint {checkpoint}: the task has ended, and no part has what its sinks have pending"
        )
        self.took_part = checkpoint
        caller = self._times.switch(SNAPSHOT)
        try:
            self._captured = self._capture(checkpoint)
        finally:
            self._times.switch(caller)

    def _capture(self, checkpoint: int) -> Captured:
        pending = {}
        for key, sink in self._sinks():
            try:
                written = sink.flush(checkpoint)
            except Exception as error:
                raise with_location(error, sink.context) from error
            if written:
                pending[key] = written
        snapshots = self._snapshots()
        pending |= self._read()
        return Captured(checkpoint=checkpoint, snapshots=snapshots, pending=pending, taken_at=self._clocks.monotonic())

    def _read(self) -> dict[str, Any]:
        """Return the value that the source's reader has for `Source.commit`, by the source's node key."""
        if self._head is None or not (read := self._head[1].to_commit()):
            return {}
        return {self._head[0]: read}

    def store(self, checkpoint: int, in_flight: InFlight) -> None:
        """Store the captured state, with the data in flight."""
        is_empty = not in_flight.inputs and not in_flight.outputs
        self._pass_on(in_flight=() if is_empty else self._channels().name(in_flight))

    def drop(self, checkpoint: int, reason: str) -> None:
        """Report that the task has no part in the checkpoint, and why."""
        self._pass_on(failure=reason)

    def _pass_on(self, *, in_flight: InFlightData = (), failure: str | None = None) -> None:
        captured, self._captured = self._captured, None
        assert captured is not None and self._store is not None  # a capture comes before each store and drop
        self._store(replace(captured, in_flight=in_flight, failure=failure))

    def end(self) -> None:
        """Keep the values that later checkpoints need. Call this after the last row has left the task; no `capture`
        follows.

        The task's producers have ended too, so later checkpoints need no state of its operators. Later checkpoints need
        the position of the task's source: after a restart, the job must not read the source from the beginning.
        """
        self._has_ended = True
        if self._store is not None:
            self.final = {key: dict(snapshot.values) for key, snapshot in self._task_snapshots().items()}
        written = {key: operator.pending for key, operator in self._sinks() if operator.pending}
        self.pending = written | self._read()

    def restore(
        self,
        snapshots: Mapping[str, Sequence[Snapshot]],
        ended: Mapping[str, Sequence[range]] = MappingProxyType({}),
        checkpoint: int = 0,
    ) -> None:
        """Restore the task from the snapshots that subtasks wrote for checkpoint number `checkpoint`, by node key.

        The tables of `snapshots` contain only this subtask's key groups. `ended` has, by node key, the key groups of
        subtasks that had ended before the checkpoint. Raises CheckpointError for state that these nodes did not write.
        """
        for key, entry in self._entries:
            if key in ended:
                entry.operator.restore_ended(ended[key])
            if key in snapshots:
                try:
                    with checkpoint_errors(*(snapshot.origin for snapshot in snapshots[key])):
                        entry.operator.restore(snapshots[key])
                except ChangedWindows as error:
                    changed = CheckpointError(f"checkpoint {checkpoint}: window {key!r} {error.message}")
                    raise with_location(changed, entry.context) from error
                except Exception as error:
                    raise with_location(error, entry.context) from error
        if self._head is not None and self._head[0] in snapshots:
            self._head[1].restore(snapshots[self._head[0]])
        for counters in snapshots.get(_COUNTERS, ()):
            with checkpoint_errors(counters.origin):
                _COUNTED(counters.values, "the counters")
        self._restore_counters([snapshot.values for snapshot in snapshots.get(_COUNTERS, ())])

    def _snapshots(self) -> dict[str, Snapshot]:
        snapshots = self._task_snapshots()
        for key, entry in self._entries:
            snapshot = entry.operator.snapshot()
            if snapshot is not None:
                snapshots[key] = snapshot
        return snapshots

    def _task_snapshots(self) -> dict[str, Snapshot]:
        """Return the snapshots of the task itself, without the snapshots of its operators."""
        snapshots = {_COUNTERS: Snapshot(values=self._counters())}
        if self._head is not None:
            snapshots[self._head[0]] = Snapshot(values=self._head[1].snapshot())
        return snapshots

    def _sinks(self) -> Iterable[tuple[str, SinkOperator]]:
        return [(key, entry.operator) for key, entry in self._entries if isinstance(entry.operator, SinkOperator)]

    def _counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = {
            key: [entry.operator.rows_in, entry.operator.rows_out, entry.operator.late_rows]
            for key, entry in self._entries
        }
        if self._head is not None:
            counters[self._head[0]] = [self._head[1].rows]
        return counters

    def _restore_counters(self, old: Sequence[Mapping[str, Any]]) -> None:
        """Add the counters of old subtasks. Subtask s takes those of s, s + parallelism, s + 2 * parallelism, and so
        on."""
        for counters in old[self._subtask :: self._parallelism]:
            for key, entry in self._entries:
                rows_in, rows_out, late = (*counters.get(key, ()), 0, 0, 0)[:3]
                entry.operator.rows_in += rows_in
                entry.operator.rows_out += rows_out
                entry.operator.late_rows += late
            if self._head is not None:
                self._head[1].rows += (*counters.get(self._head[0], ()), 0)[0]
        for _, entry in self._entries:
            entry.restored = {name: getattr(entry.operator, name) for name in ("rows_in", "rows_out", "late_rows")}
        if self._head is not None:
            self._head[1].restored_rows = self._head[1].rows
