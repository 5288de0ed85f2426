"""A task's part in checkpoints: it takes barriers from its input, or from outside if it is a source, passes them on,
and tells when. Data that a barrier overtakes is counted, not kept yet: only aligned ones take the task's state.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headgate.exchange.barrier_handler import (
    Abort,
    Action,
    Arrived,
    BarrierHandler,
    Begin,
    Complete,
    Prioritise,
    Resume,
    Trigger,
)
from headgate.exchange.gate import InputGate
from headgate.exchange.writer import RecordWriter
from headgate.records.events import Announcement, CancelMarker, CheckpointBarrier, EndOfData, EndOfPartition, Event

#: What one task tells of one checkpoint; see `TaskBarriers`.
Part = dict[str, Any]


class TaskBarriers:
    """Used by the task thread only, between two batches, but for `inject`. It is a `Timed`: what is urgent is due at
    once, also while the task waits for its output.

    `tell` is given a part when the checkpoint is complete at this task, or aborted, and again if its output turned
    urgent later: `start_delay_s` from the barrier's injection to its first arrival, `alignment_s` from the first to the
    last, `triggered_s` and `completed_s` from the injection on; `unaligned`; `aborted`; and the bytes that were
    overtaken in the input and in the output.
    """

    def __init__(
        self, task: str, gates: Sequence[InputGate], writers: Sequence[RecordWriter], tell: Callable[[Part], None]
    ) -> None:
        self._task = task
        self._gates = gates
        self._writers = writers
        self._tell = tell
        self._channels = [channel for gate in gates for channel in gate.channels]
        self._handler = BarrierHandler(len(self._channels))
        self._injected: deque[CheckpointBarrier] = deque()
        self._urgent = False
        for gate in gates:
            gate.on_priority = self._on_priority
        self._in_order: deque[Action | int] = deque()
        self._barrier = CheckpointBarrier(0, 0)
        self._part: Part = {}
        self._polled: list[int] = []
        self._input_timeout: float | None = None
        self._output_timeout: tuple[float, int] | None = None
        #: Bytes taken from the channels that the task has not worked on; the input says how many.
        self.held_bytes: Callable[[], int] = lambda: 0
        #: Takes the task's state for a checkpoint; all rows before the barrier have been worked on.
        self.capture: Callable[[int], None] = lambda checkpoint: None

    def inject(self, barrier: CheckpointBarrier) -> None:
        """Any thread: a barrier that begins at this task, a source. The task is to be woken."""
        self._injected.append(barrier)
        self._urgent = True

    def _on_priority(self) -> None:
        """Any thread: a gate has a priority event."""
        self._urgent = True

    # --- in order with the rows

    def on_event(self, channel: int, event: Event) -> None:
        """An event has come on a channel; what follows is done by `catch_up`."""
        match event:
            case CheckpointBarrier():
                self._in_order += self._handler.delivered(channel, event)
            case CancelMarker(checkpoint):
                self._in_order += self._handler.cancelled(channel, checkpoint)
            case EndOfData():
                self._in_order.append(channel)
            case EndOfPartition():
                self._in_order += self._handler.ended(channel)

    @property
    def is_behind(self) -> bool:
        """There is something to do before another row is taken from the channels."""
        return bool(self._in_order)

    def catch_up(self) -> None:
        """All rows before them have been worked on: do what follows from the events that came."""
        while self._in_order:
            action = self._in_order.popleft()
            if isinstance(action, int):
                self._channels[action].acknowledge()
            else:
                self._perform(action)

    # --- out of order

    @property
    def deadline(self) -> float | None:
        if self._urgent:
            return 0.0
        output = self._output_timeout[0] if self._output_timeout is not None else None
        if self._input_timeout is None or output is None:
            return output if self._input_timeout is None else self._input_timeout
        return min(self._input_timeout, output)

    def on_time(self, now: float) -> None:
        self._urgent = False  # before the look, or what comes during it would be missed
        if any(writer.is_finished for writer in self._writers):
            self._injected.clear()  # its channels have ended and are not waited for
        while self._injected:
            barrier = self._injected.popleft()
            for action in (Begin(barrier), Trigger(barrier), Complete(barrier.id)):
                self._perform(action)
        self._take_urgent()
        if self._input_timeout is not None and now >= self._input_timeout:
            self._input_timeout = None
            self._perform_urgent(self._handler.timed_out(self._barrier.id))
        if self._output_timeout is not None and now >= self._output_timeout[0]:
            self._turn_output_urgent(self._output_timeout[1])

    def _take_urgent(self) -> None:
        offset = 0
        for gate in self._gates:
            while (polled := gate.poll_priority()) is not None:
                channel, event = offset + polled[0], polled[1]
                if isinstance(event, Announcement):
                    self._perform_urgent(self._handler.announced(channel, event.barrier))
                elif isinstance(event, CheckpointBarrier):
                    self._perform_urgent(self._handler.delivered(channel, event))
            offset += len(gate.channels)

    def _perform_urgent(self, actions: list[Action]) -> None:
        """At once, but not before what has been decided earlier."""
        if self._in_order:
            self._in_order += actions
            return
        for action in actions:
            self._perform(action)

    def _turn_output_urgent(self, checkpoint: int) -> None:
        """The barrier passed on still waits for what is before it: it overtakes that now."""
        self._output_timeout = None
        overtaken = [writer.prioritise(checkpoint) for writer in self._writers]
        found = [size for size in overtaken if size is not None]
        if found and self._part["checkpoint"] == checkpoint:
            self._part["unaligned"] = True
            self._part["overtaken_out_bytes"] += sum(found)
            self._tell(dict(self._part))

    # --- what the handler decides

    def _perform(self, action: Action) -> None:
        match action:
            case Begin(barrier):
                self._begin(barrier)
            case Trigger(barrier):
                self._trigger(barrier)
            case Arrived(channel):
                if self._polled:
                    before = self._channels[channel].bytes_before(self._barrier.id)
                    self._part["overtaken_in_bytes"] += max(0, before - self._polled[channel])
            case Prioritise(channels):
                for channel in channels:
                    self._channels[channel].prioritise(self._barrier.id)
            case Resume(channels):
                for channel in channels:
                    self._channels[channel].resume()
            case Complete():
                self._finish(aborted=False)
            case Abort(checkpoint):
                for writer in self._writers:
                    writer.write_event(CancelMarker(checkpoint))
                if self._part.get("checkpoint") == checkpoint:
                    self._finish(aborted=True)

    def _begin(self, barrier: CheckpointBarrier) -> None:
        self._barrier = barrier
        self._polled = []
        self._part = {
            "checkpoint": barrier.id,
            "task": self._task,
            "start_delay_s": self._since_injection(),
            "unaligned": False,
            "overtaken_in_bytes": 0,
            "overtaken_out_bytes": 0,
        }
        self._input_timeout = self._timeout_of(barrier) if self._channels else None

    def _trigger(self, barrier: CheckpointBarrier) -> None:
        self._part["triggered_s"] = self._since_injection()
        self._part["unaligned"] = barrier.is_priority
        if not barrier.is_priority:
            for writer in self._writers:  # first, so that those behind need not wait for the copying
                writer.write_barrier(barrier)
            if not barrier.is_probe:
                self.capture(barrier.id)
            timeout = self._timeout_of(barrier)
            self._output_timeout = (timeout, barrier.id) if timeout is not None else None
            return
        self._part["overtaken_in_bytes"] = self.held_bytes()
        self._part["overtaken_out_bytes"] = sum(writer.overtake(barrier) for writer in self._writers)
        self._polled = [channel.bytes_polled for channel in self._channels]

    def _finish(self, *, aborted: bool) -> None:
        self._input_timeout = None
        self._part["aborted"] = aborted
        self._part["completed_s"] = self._since_injection()
        self._part["alignment_s"] = self._part["completed_s"] - self._part["start_delay_s"]
        self._tell(dict(self._part))

    def _since_injection(self) -> float:
        return time.time() - self._barrier.timestamp / 1e6

    @staticmethod
    def _timeout_of(barrier: CheckpointBarrier) -> float | None:
        """When the barrier's timeout passes, on the monotonic clock."""
        if not barrier.is_announced:
            return None
        return time.monotonic() + (barrier.timestamp + barrier.timeout) / 1e6 - time.time()
