"""When a task may take its part of a checkpoint: what its channels have delivered decides. No I/O, no clock.

*Aligned*: a barrier blocks its channel (the producer sends nothing behind it) until all open channels have delivered
theirs; then the checkpoint is triggered and all go on. *Overtaking*: a priority barrier, or a timeout, triggers it at
once; what the channels deliver before their own barriers belongs to it, and blocked ones go on when the last barrier is
in. *Counted*: no channel is blocked, and it is triggered by the last barrier; what came behind the others is in it,
too. A newer checkpoint, or a cancel marker, ends the one under way. Flink's is SingleCheckpointBarrierHandler
(FLIP-76).

`_RULES` says what is done with each input in each state, by whether its checkpoint is older than, the same as or newer
than the one under way.
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
    """The first sign of a checkpoint. A barrier with a timeout wants `timed_out` to be called when that has passed."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class TriggerTask:
    """Take the task's part, and pass the barrier on; if it is a priority one, before everything queued."""

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class Prioritise:
    """These channels' announced barriers have been acted upon, and are not to come again."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """A channel's barrier is in: what follows does not belong to the checkpoint."""

    channel: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Have the producers of these channels go on."""

    channels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AllBarriersIn:
    """All barriers are in."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class AbortAlignment:
    """The checkpoint will not be: pass a cancel marker on."""

    checkpoint: int


Action: TypeAlias = BeginAlignment | TriggerTask | Prioritise | BarrierArrived | Resume | AllBarriersIn | AbortAlignment


class HandlerState(enum.Enum):
    IDLE = "no checkpoint is under way"
    ALIGNING = "some channels have delivered or announced their barrier"
    OVERTAKING = "triggered, some barriers are still to come"


class Input(enum.Enum):
    ANNOUNCED = "a barrier stands in a channel's queue"
    BLOCKING = "a barrier came in order, and blocks its channel"
    PRIORITY = "a barrier overtook its channel's queue"
    COUNTED = "a barrier came in order, and blocks no channel"
    TIMEOUT = "the barriers' timeout has passed"
    CANCELLED = "a cancel marker came in a barrier's place"
    ENDED = "a channel has ended"


class CheckpointOrder(enum.Enum):
    """Of an input's checkpoint, beside the one under way or, if there is none, the last."""

    OLD = -1
    SAME = 0
    NEW = 1


class BarrierHandler:
    """The barriers of all channels of a task. Each method returns what is to be done, in order."""

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
        return self._apply(Input.ANNOUNCED, barrier.id, channel, barrier)

    def delivered(self, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        """A barrier has come, in order or overtaking. Raises ExchangeError for a second one of its checkpoint."""
        kind = Input.PRIORITY if barrier.is_priority else Input.BLOCKING if barrier.blocks else Input.COUNTED
        return self._apply(kind, barrier.id, channel, barrier)

    def timed_out(self, checkpoint: int) -> list[Action]:
        return self._apply(Input.TIMEOUT, checkpoint, -1, self._barrier)

    def cancelled(self, channel: int, checkpoint: int) -> list[Action]:
        return self._apply(Input.CANCELLED, checkpoint, channel, CheckpointBarrier(checkpoint, 0))

    def ended(self, channel: int) -> list[Action]:
        return self._apply(Input.ENDED, self._barrier.id, channel, self._barrier)

    def _apply(self, what: Input, checkpoint: int, channel: int, barrier: CheckpointBarrier) -> list[Action]:
        for step in _RULES.get((self.state, what, self._age(checkpoint)), ()):
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
        """Their producers have sent the barriers and wait behind them."""
        if self._announced:
            announced = sorted(self._announced)
            self._actions.append(Prioritise(tuple(announced)))
            for each in announced:
                self._block(each, barrier)
                self._arrive(each, barrier)

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
        """Cancelled before its first barrier."""
        self._last = barrier.id
        self._actions.append(AbortAlignment(barrier.id))

    def validate(self) -> None:
        """Raises AssertionError when the handler broke its own rules."""
        assert self._arrived | self._announced | self._blocked <= self._open, "a closed channel takes part"
        assert self._blocked <= self._arrived, "blocked without a barrier"
        assert not self._arrived & self._announced, "both announced and delivered"
        assert self.state is not HandlerState.IDLE or not self._arrived | self._announced, "idle with barriers at hand"


_Step = Callable[[BarrierHandler, int, CheckpointBarrier], None]
_H = BarrierHandler
_BEGIN, _ABORT, _IN, _CHECK = _H._begin, _H._abort, _H._arrive, _H._finish_if_all_in

#: What is not listed is not minded.
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
