"""Decide when a task takes its part of a checkpoint. No I/O, no clock.

*Aligned*: a barrier blocks its channel, and the producer sends nothing behind the barrier. When all open channels have
delivered their barriers, the checkpoint is triggered and all channels resume.

*Overtaking*: a priority barrier or a timeout triggers the checkpoint at once. Data that a channel delivers before its
own barrier belong to the checkpoint. Blocked channels resume when the last barrier arrives.

*Counted*: no channel is blocked, and the last barrier triggers the checkpoint. The checkpoint therefore also contains
data from behind the earlier barriers.

A newer checkpoint or a cancel marker ends the current checkpoint. Flink's class is SingleCheckpointBarrierHandler
(FLIP-76).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from headgate.errors import ExchangeError
from headgate.records.events import CheckpointBarrier


@dataclass(frozen=True, slots=True)
class BeginAlignment:
    """An action: begin a checkpoint. Its first barrier or announcement has arrived.

    The code that performs the action calls `BarrierHandler.timed_out` when the barrier's timeout has passed.
    """

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class TriggerTask:
    """An action: take the snapshot of the task, and send the barrier to all outputs.

    A priority barrier overtakes queued data.
    """

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class Prioritise:
    """An action: treat the announced barriers of these channels as delivered. `poll` then skips these barriers."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """The notice that a channel's barrier has arrived. Data after the barrier do not belong to the checkpoint."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """An action: ask the producers of these channels to resume."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllBarriersIn:
    """The notice that all channels have delivered their barriers."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortAlignment:
    """An action: cancel the checkpoint, and send a cancel marker to all outputs."""

    checkpoint: int


Action: TypeAlias = BeginAlignment | TriggerTask | Prioritise | BarrierArrived | Resume | AllBarriersIn | AbortAlignment


class HandlerState(enum.Enum):
    """The progress of the current checkpoint."""

    IDLE = "no checkpoint is in progress"
    ALIGNING = "some channels have delivered or announced their barrier"
    OVERTAKING = "triggered, some barriers have not arrived"


class Input(enum.Enum):
    """The inputs of the handler."""

    ANNOUNCED = "a barrier waits in a channel's queue"
    BLOCKING = "a barrier arrived in order, and blocks its channel"
    PRIORITY = "a barrier overtook its channel's queue"
    COUNTED = "a barrier arrived in order, and blocks no channel"
    TIMEOUT = "the barrier's timeout has passed"
    CANCELLED = "a cancel marker arrived in place of a barrier"
    ENDED = "a channel has ended"


class CheckpointOrder(enum.Enum):
    """The order of an input's checkpoint relative to the current checkpoint.

    While idle, the last checkpoint and older ones are OLD, and all others are NEW.
    """

    OLD = -1
    SAME = 0
    NEW = 1


class BarrierHandler:
    """The state machine over the barriers of a task's channels.

    Each input method returns the actions to take, in order.
    """

    def __init__(self, channels: int) -> None:
        self.state = HandlerState.IDLE
        self._open = set(range(channels))
        self._last = 0
        self._barrier = CheckpointBarrier(0, 0)
        self._announced: set[int] = set()
        self._arrived: set[int] = set()
        self._blocked: set[int] = set()
        self._actions: list[Action] = []

    # --- inputs

    def announced(self, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        """Handle the announcement of a barrier that waits in a channel's queue."""
        return self._apply(Input.ANNOUNCED, barrier.id, channel, barrier)

    def delivered(self, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        """Handle the arrival of a barrier. Raises ExchangeError for a channel's second barrier of a checkpoint."""
        kind = Input.PRIORITY if barrier.is_priority else Input.BLOCKING if barrier.blocks else Input.COUNTED
        return self._apply(kind, barrier.id, channel, barrier)

    def timed_out(self, checkpoint: int) -> list[Action]:
        """Handle the end of the time that a checkpoint's alignment may take."""
        return self._apply(Input.TIMEOUT, checkpoint, -1, self._barrier)

    def cancelled(self, channel: int, checkpoint: int) -> list[Action]:
        """Handle a cancel marker, which arrives in place of a checkpoint's barrier."""
        return self._apply(Input.CANCELLED, checkpoint, channel, CheckpointBarrier(checkpoint, 0))

    def ended(self, channel: int) -> list[Action]:
        """Handle the end of a channel. The channel delivers no more barriers."""
        return self._apply(Input.ENDED, self._barrier.id, channel, self._barrier)

    def _apply(self, kind: Input, checkpoint: int, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        for step in _RULES.get((self.state, kind, self._age(checkpoint)), ()):
            step(self, channel, barrier)
        actions, self._actions = self._actions, []
        return actions

    def _age(self, checkpoint: int) -> CheckpointOrder:
        if self.state is HandlerState.IDLE:
            return CheckpointOrder.NEW if checkpoint > self._last else CheckpointOrder.OLD
        return CheckpointOrder((checkpoint > self._barrier.id) - (checkpoint < self._barrier.id))

    # --- steps

    def _begin(self, channel: int, barrier: CheckpointBarrier) -> None:
        self.state, self._barrier = HandlerState.ALIGNING, barrier
        self._actions.append(BeginAlignment(barrier))

    def _announce(self, channel: int, barrier: CheckpointBarrier) -> None:
        if channel not in self._arrived:
            self._announced.add(channel)

    def _arrive(self, channel: int, barrier: CheckpointBarrier) -> None:
        if channel in self._arrived:
            raise ExchangeError(f"channel {channel} delivered the barrier of checkpoint {barrier.id} twice")
        self._announced.discard(channel)
        self._arrived.add(channel)
        self._actions.append(BarrierArrived(channel))

    def _block(self, channel: int, barrier: CheckpointBarrier) -> None:
        self._blocked.add(channel)

    def _resume(self, channel: int, barrier: CheckpointBarrier) -> None:
        self._actions.append(Resume((channel,)))

    def _overtake(self, channel: int, barrier: CheckpointBarrier) -> None:
        self.state = HandlerState.OVERTAKING
        self._actions.append(TriggerTask(self._barrier.as_priority()))
        self._prioritise(channel, barrier)

    def _prioritise(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Treat announced barriers as delivered. Each producer has sent its barrier and waits behind it."""
        if self._announced:
            announced = sorted(self._announced)
            self._actions.append(Prioritise(tuple(announced)))
            for announced_channel in announced:
                self._block(announced_channel, barrier)
                self._arrive(announced_channel, barrier)

    def _close(self, channel: int, barrier: CheckpointBarrier) -> None:
        for channels in (self._open, self._announced, self._arrived, self._blocked):
            channels.discard(channel)

    def _finish_if_all_in(self, channel: int, barrier: CheckpointBarrier) -> None:
        if not self._arrived >= self._open:
            return
        if self.state is HandlerState.ALIGNING:
            self._actions.append(TriggerTask(self._barrier))
        self._end()
        self._actions.append(AllBarriersIn(self._last))

    def _abort(self, channel: int, barrier: CheckpointBarrier) -> None:
        self._end()
        self._actions.append(AbortAlignment(self._last))

    def _end(self) -> None:
        if self._blocked:
            self._actions.append(Resume(tuple(sorted(self._blocked))))
        self.state, self._last = HandlerState.IDLE, self._barrier.id
        for channels in (self._announced, self._arrived, self._blocked):
            channels.clear()

    def _abandon(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Give up a checkpoint that was cancelled before its first barrier."""
        self._last = barrier.id
        self._actions.append(AbortAlignment(barrier.id))

    @property
    def blocks_channels(self) -> bool:
        """Whether any channel is blocked: its barrier has arrived, and a barrier of another channel has not."""
        return bool(self._blocked)

    def validate(self) -> None:
        """Raise AssertionError when the sets of channels contradict each other or the state."""
        closed = (self._arrived | self._announced | self._blocked) - self._open
        assert not closed, f"closed channels {closed} take part"
        assert self._blocked <= self._arrived, f"channels {self._blocked - self._arrived} blocked without a barrier"
        both = self._arrived & self._announced
        assert not both, f"channels {both} both announced and delivered a barrier"
        assert self.state is not HandlerState.IDLE or not self._arrived | self._announced, "idle, but with barriers"


_Step = Callable[[BarrierHandler, int, CheckpointBarrier], None]
_H = BarrierHandler
_BEGIN, _ABORT, _IN, _CHECK = _H._begin, _H._abort, _H._arrive, _H._finish_if_all_in

#: The steps for each state, each input and each order of the input's checkpoint. An unlisted combination has no effect.
_RULES: Final[dict[tuple[HandlerState, Input, CheckpointOrder], tuple[_Step, ...]]] = {
    (HandlerState.IDLE, Input.ANNOUNCED, CheckpointOrder.NEW): (_BEGIN, _H._announce),
    (HandlerState.IDLE, Input.BLOCKING, CheckpointOrder.OLD): (_H._resume,),
    (HandlerState.IDLE, Input.BLOCKING, CheckpointOrder.NEW): (_BEGIN, _H._block, _IN, _CHECK),
    (HandlerState.IDLE, Input.PRIORITY, CheckpointOrder.NEW): (_BEGIN, _H._overtake, _IN, _CHECK),
    (HandlerState.IDLE, Input.COUNTED, CheckpointOrder.NEW): (_BEGIN, _IN, _CHECK),
    (HandlerState.IDLE, Input.CANCELLED, CheckpointOrder.NEW): (_H._abandon,),
    (HandlerState.IDLE, Input.ENDED, CheckpointOrder.OLD): (_H._close,),
    (HandlerState.ALIGNING, Input.ANNOUNCED, CheckpointOrder.SAME): (_H._announce,),
    (HandlerState.ALIGNING, Input.ANNOUNCED, CheckpointOrder.NEW): (_ABORT, _BEGIN, _H._announce),
    (HandlerState.ALIGNING, Input.BLOCKING, CheckpointOrder.OLD): (_H._resume,),
    (HandlerState.ALIGNING, Input.BLOCKING, CheckpointOrder.SAME): (_H._block, _IN, _CHECK),
    (HandlerState.ALIGNING, Input.BLOCKING, CheckpointOrder.NEW): (_ABORT, _BEGIN, _H._block, _IN, _CHECK),
    (HandlerState.ALIGNING, Input.PRIORITY, CheckpointOrder.SAME): (_H._overtake, _IN, _CHECK),
    (HandlerState.ALIGNING, Input.PRIORITY, CheckpointOrder.NEW): (_ABORT, _BEGIN, _H._overtake, _IN, _CHECK),
    (HandlerState.ALIGNING, Input.COUNTED, CheckpointOrder.SAME): (_IN, _CHECK),
    (HandlerState.ALIGNING, Input.COUNTED, CheckpointOrder.NEW): (_ABORT, _BEGIN, _IN, _CHECK),
    (HandlerState.ALIGNING, Input.TIMEOUT, CheckpointOrder.SAME): (_H._overtake, _CHECK),
    (HandlerState.ALIGNING, Input.CANCELLED, CheckpointOrder.SAME): (_ABORT,),
    (HandlerState.ALIGNING, Input.CANCELLED, CheckpointOrder.NEW): (_ABORT, _H._abandon),
    (HandlerState.ALIGNING, Input.ENDED, CheckpointOrder.SAME): (_H._close, _CHECK),
    (HandlerState.OVERTAKING, Input.ANNOUNCED, CheckpointOrder.SAME): (_H._announce, _H._prioritise, _CHECK),
    (HandlerState.OVERTAKING, Input.ANNOUNCED, CheckpointOrder.NEW): (_ABORT, _BEGIN, _H._announce),
    (HandlerState.OVERTAKING, Input.BLOCKING, CheckpointOrder.OLD): (_H._resume,),
    (HandlerState.OVERTAKING, Input.BLOCKING, CheckpointOrder.SAME): (_H._block, _IN, _CHECK),
    (HandlerState.OVERTAKING, Input.BLOCKING, CheckpointOrder.NEW): (_ABORT, _BEGIN, _H._block, _IN, _CHECK),
    (HandlerState.OVERTAKING, Input.PRIORITY, CheckpointOrder.SAME): (_IN, _CHECK),
    (HandlerState.OVERTAKING, Input.PRIORITY, CheckpointOrder.NEW): (_ABORT, _BEGIN, _H._overtake, _IN, _CHECK),
    (HandlerState.OVERTAKING, Input.COUNTED, CheckpointOrder.NEW): (_ABORT, _BEGIN, _IN, _CHECK),
    (HandlerState.OVERTAKING, Input.CANCELLED, CheckpointOrder.SAME): (_ABORT,),
    (HandlerState.OVERTAKING, Input.CANCELLED, CheckpointOrder.NEW): (_ABORT, _H._abandon),
    (HandlerState.OVERTAKING, Input.ENDED, CheckpointOrder.SAME): (_H._close, _CHECK),
}
