"""Handles the checkpoint barriers of one task: aligns them, passes them on, and reports the task's part.

A task takes barriers from its input; the driver injects barriers at sources. If a barrier overtakes data, the task
stores these data with its state. Flink's classes are SubtaskCheckpointCoordinator and SingleCheckpointBarrierHandler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.exchange.barrier_handler import (
    AbortAlignment,
    Action,
    AllBarriersIn,
    BarrierArrived,
    BarrierHandler,
    BeginAlignment,
    Prioritise,
    Resume,
    TriggerTask,
)
from headgate.exchange.gate import InputGate
from headgate.exchange.writer import RecordWriter
from headgate.records.events import Announcement, CancelMarker, CheckpointBarrier, EndOfData, EndOfPartition, Event
from headgate.runtime.control_messages import Part
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.in_flight import InFlight, InputRecording, Pieces


class StateCapturer(Protocol):
    """The interface by which `TaskBarriers` takes and stores a task's part of a checkpoint.

    In a job, `TaskState` implements this interface. `TaskBarriers` calls `store` or `drop` once after each `capture`.
    """

    def capture(self, checkpoint: int) -> None:
        """Copy the task's state. The task has processed all rows before the barrier, except for rows in flight."""

    def store(self, checkpoint: int, in_flight: InFlight) -> None:
        """Store the captured state together with the data in flight. This completes the part."""

    def drop(self, checkpoint: int, reason: str) -> None:
        """Discard the captured state, because the checkpoint cannot use it. `reason` goes to the driver."""


class TaskBarriers:
    """The barriers of one task: aligns them, passes them on, and lets `capturer` take the task's state.

    Only the task thread uses this object, between two batches. The exceptions are the methods that say "any thread".
    The object is a `Timed`: an urgent event is due at once, also while the task waits for its output.

    `report` gets a `Part`, the measurements of the checkpoint at this task, when the checkpoint is complete or aborted
    here. If the barrier later overtakes data in the output, `report` gets the `Part` again. It has these fields:

    - `start_delay_s` is the time from the barrier's injection to its first arrival at the task. `alignment_s` is the
      time from the first arrival to the last. `triggered_s` and `completed_s` are times since the injection. `sync_s`
      is the time in which the task did nothing but take its state.
    - `unaligned` says whether the barrier overtook data. `aborted` says whether the alignment was aborted.
    - `processed_bytes` counts the bytes that the task read during the alignment. `overtaken_in_bytes` and
      `overtaken_out_bytes` count the bytes that the barrier overtook in the input and in the output.

    `capturer` stores the state together with the data in flight, once all of these data are known. A barrier with a
    timeout may still overtake data in the output, so they are known only when the barrier has left the output.
    """

    def __init__(
        self,
        task: str,
        gates: Sequence[InputGate],
        writers: Sequence[RecordWriter],
        report: Callable[[Part], None],
        clocks: Clocks = SYSTEM,
    ) -> None:
        self._task = task
        self._gates = gates
        self._writers = writers
        self._report = report
        self._clocks = clocks
        self._channels = [channel for gate in gates for channel in gate.channels]
        self._handler = BarrierHandler(len(self._channels))
        self._injected: deque[CheckpointBarrier] = deque()
        self._urgent = False
        self._has_ended = False
        for gate in gates:
            gate.on_priority = self._on_priority
        self._in_order: deque[Action | int] = deque()  # a number is a channel whose end of data must be acknowledged
        self._barrier = CheckpointBarrier(0, 0)
        self._part: Part = {"checkpoint": 0, "task": task}
        self._polled = 0
        self._input_timeout: float | None = None
        self._output_timeout: tuple[float, int] | None = None
        self._captured = 0  # the captured checkpoint that is neither stored nor dropped yet, or 0
        self._is_complete = False
        self._in_flight = InFlight()
        #: The recording of the input, from the capture of the state until all barriers have arrived. None at other
        #: times.
        self.recording: InputRecording | None = None
        #: `TaskInput` sets this function. It returns, for each channel, the bytes that the task has taken but not
        #: processed.
        self.held: Callable[[], list[Pieces]] = list
        #: Lets the task go on with channels that a barrier has blocked. An input with a queue sets this function: its
        #: producers have already resumed.
        self.unblock: Callable[[Sequence[int]], None] = self._resume_channels
        self.capturer: StateCapturer | None = None

    def inject(self, barrier: CheckpointBarrier) -> None:
        """Add a barrier that starts at this task. Any thread may call this; the caller then wakes the task."""
        self._injected.append(barrier)
        self._urgent = True

    def end(self) -> None:
        """Take no part in later checkpoints, because the last row has left the task."""
        self._has_ended = True

    def _on_priority(self) -> None:
        """Record that a gate has a priority event: a barrier that overtakes data. Any thread may call this."""
        self._urgent = True

    def on_barrier_left(self) -> None:
        """Record that a barrier with a timeout has left an output. Any thread may call this; the caller then wakes the
        task."""
        self._urgent = True

    # --- in order with the rows

    def on_event(self, channel: int, event: Event) -> None:
        """Take an event that a channel delivered. `catch_up` later handles the event, in order with the rows."""
        match event:
            case CheckpointBarrier():
                self._in_order += self._handler.delivered(channel, event)
            case Announcement(_, barrier):
                self._in_order += self._handler.announced(channel, barrier)
            case CancelMarker(checkpoint):
                self._in_order += self._handler.cancelled(channel, checkpoint)
            case EndOfData():
                self._in_order.append(channel)
            case EndOfPartition():
                self._in_order += self._handler.ended(channel)

    @property
    def is_behind(self) -> bool:
        """Whether `catch_up` must run before the task takes another row from its channels."""
        return bool(self._in_order)

    @property
    def blocks_input(self) -> bool:
        """Whether any channel is blocked: its barrier has arrived, and a barrier of another channel has not."""
        return self._handler.blocks_channels

    def catch_up(self) -> None:
        """Handle the events that `on_event` took. The task has processed all rows before these events."""
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
        self._urgent = False  # cleared first: an event that comes during the poll sets it again
        if self._has_ended:
            self._injected.clear()  # an ended task has no state to take
        while self._injected:
            barrier = self._injected.popleft()
            for action in (BeginAlignment(barrier), TriggerTask(barrier), AllBarriersIn(barrier.id)):
                self._perform(action)
        self._take_urgent()
        if self._input_timeout is not None and now >= self._input_timeout:
            self._input_timeout = None
            self._perform_urgent(self._handler.timed_out(self._barrier.id))
        if self._output_timeout is not None and now >= self._output_timeout[0]:
            self._turn_output_urgent(self._output_timeout[1])
        elif self._output_timeout is not None and not self._waits_in_output(self._output_timeout[1]):
            self._output_timeout = None
            self._store_if_known()

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
        """Perform the actions now, or queue them behind other actions that wait."""
        if self._in_order:
            self._in_order += actions
            return
        for action in actions:
            self._perform(action)

    def _turn_output_urgent(self, checkpoint: int) -> None:
        """Let the barrier in the outputs overtake the data before it.

        A channel that the barrier has already left has no data in flight.
        """
        self._output_timeout = None
        overtaken = [writer.prioritise(checkpoint) for writer in self._writers]
        if any(pieces is not None for channels in overtaken for pieces in channels):
            self._in_flight.outputs = [[pieces or [] for pieces in channels] for channels in overtaken]
            self._part["unaligned"] = True
            self._part["overtaken_out_bytes"] = self._in_flight.output_bytes
            self._report(self._part.copy())
        self._store_if_known()

    def _waits_in_output(self, checkpoint: int) -> bool:
        return any(writer.holds_barrier(checkpoint) for writer in self._writers)

    # --- what the handler decides

    def _perform(self, action: Action) -> None:
        match action:
            case BeginAlignment(barrier):
                self._begin(barrier)
            case TriggerTask(barrier):
                self._trigger(barrier)
            case BarrierArrived(channel):
                if self.recording is not None:
                    self.recording.end(channel, self._channels[channel].bytes_before(self._barrier.id))
            case Prioritise(channels):
                for channel in channels:
                    self._channels[channel].prioritise(self._barrier.id)
            case Resume(channels):
                self.unblock(channels)
            case AllBarriersIn():
                self._finish(aborted=False)
            case AbortAlignment(checkpoint):
                for writer in self._writers:
                    writer.write_event(CancelMarker(checkpoint))
                if self._part["checkpoint"] == checkpoint:
                    self._finish(aborted=True)

    def _resume_channels(self, channels: Sequence[int]) -> None:
        for channel in channels:
            self._channels[channel].resume()

    def _begin(self, barrier: CheckpointBarrier) -> None:
        self._drop(f"checkpoint {barrier.id} started before this checkpoint's barrier had left the task")
        self._barrier = barrier
        self._is_complete = False
        self._output_timeout = None
        self._polled = self._bytes_polled
        self._part = {
            "checkpoint": barrier.id,
            "task": self._task,
            "start_delay_s": self._since_injection(),
            "unaligned": False,
            "sync_s": 0.0,
            "overtaken_in_bytes": 0,
            "overtaken_out_bytes": 0,
        }
        self._input_timeout = self._deadline_of(barrier) if self._channels else None

    def _trigger(self, barrier: CheckpointBarrier) -> None:
        began = self._clocks.monotonic()
        self._part["triggered_s"] = self._since_injection()
        self._part["unaligned"] = barrier.is_priority
        # Send the barriers first: the next tasks then need not wait while this task copies its state.
        if barrier.is_priority:
            self._in_flight.outputs = [writer.overtake(barrier) for writer in self._writers]
            self.recording = InputRecording(self._channels, self.held())
        else:
            for writer in self._writers:
                writer.write_barrier(barrier)
            timeout = self._deadline_of(barrier)
            if timeout is not None and self._waits_in_output(barrier.id):
                self._output_timeout = timeout, barrier.id
        if self.capturer is not None and not barrier.is_probe:
            self._captured = barrier.id
            self.capturer.capture(barrier.id)
        self._part["sync_s"] = self._clocks.monotonic() - began

    def _finish(self, *, aborted: bool) -> None:
        self._input_timeout = None
        self._is_complete = not aborted
        if self.recording is not None:
            self._in_flight.inputs, self.recording = self.recording.pieces, None
        self._part["overtaken_in_bytes"] = self._in_flight.input_bytes
        self._part["overtaken_out_bytes"] = self._in_flight.output_bytes
        self._part["processed_bytes"] = self._bytes_polled - self._polled
        self._part["aborted"] = aborted
        self._part["completed_s"] = self._since_injection()
        self._part["alignment_s"] = self._part["completed_s"] - self._part["start_delay_s"]
        self._report(self._part.copy())
        if aborted:
            self._drop("its barrier was cancelled upstream")
        self._store_if_known()

    def _store_if_known(self) -> None:
        """Store the captured state if all data in flight are known.

        They are known when the input is aligned and no barrier in the output can still overtake data.
        """
        if not self._is_complete or self._output_timeout is not None:
            return
        in_flight, self._in_flight = self._in_flight, InFlight()
        checkpoint, self._captured = self._captured, 0
        if checkpoint and self.capturer is not None:
            self.capturer.store(checkpoint, in_flight)

    def _drop(self, reason: str) -> None:
        """Discard the captured state, if there is one."""
        self._in_flight = InFlight()
        checkpoint, self._captured = self._captured, 0
        if checkpoint and self.capturer is not None:
            self.capturer.drop(checkpoint, reason)

    @property
    def _bytes_polled(self) -> int:
        return sum(channel.bytes_polled for channel in self._channels)

    def _since_injection(self) -> float:
        return self._clocks.wall() - self._barrier.timestamp / 1e6

    def _deadline_of(self, barrier: CheckpointBarrier) -> float | None:
        """Return when the barrier's timeout passes, in seconds of the monotonic clock, or None without a timeout."""
        if not barrier.is_announced:
            return None
        return self._clocks.monotonic_at((barrier.timestamp + barrier.timeout) / 1e6)
