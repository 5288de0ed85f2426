"""A rule machine over a barrier handler, with channels as they are: what is sent in order, what overtakes, who is
blocked.

Producers send data, barriers of growing checkpoints, cancel markers in their place, nothing at all in their place, and
the end; the consumer takes from the channels in any order, and the clock may strike at any time. The machine keeps its
own books of what must follow.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.exchange.barrier_handler import (
    AbortAlignment,
    Action,
    AllBarriersIn,
    BarrierArrived,
    BarrierHandler,
    BeginAlignment,
    HandlerState,
    Prioritise,
    Resume,
    TriggerTask,
)
from headgate.records.events import Alignment, CheckpointBarrier

DATA = "data"
CHANNEL = st.integers(0, 2)
SENT = st.sampled_from(["barrier", "barrier", "barrier", "cancel", DATA, "urgent", "skip", "end"])


@dataclass(kw_only=True)
class Channel:
    """One producer and what is on its way from it."""

    #: In order: data, a barrier, a cancelled checkpoint, or None for the end.
    queue: deque[str | CheckpointBarrier | int | None] = field(default_factory=deque)
    #: Announced barriers, and those that overtake.
    urgent: deque[tuple[bool, CheckpointBarrier]] = field(default_factory=deque)
    sent: int = 0
    sees: int = 0  # the last checkpoint whose place the consumer has passed
    blocked: bool = False
    ended: bool = False
    over: bool = False

    @property
    def is_blocked_later(self) -> bool:
        """By a barrier that is still to come. One that is counted may be, too: the others can overtake it."""
        return any(isinstance(item, CheckpointBarrier) and item.blocks for item in self.queue)


class BarrierMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(channels=st.integers(1, 3), alignments=st.lists(st.sampled_from(Alignment), min_size=12, max_size=12))
    def begin(self, channels: int, alignments: list[Alignment]) -> None:
        self.channels = [Channel() for _ in range(channels)]
        self.handler = BarrierHandler(channels)
        self.barriers = [CheckpointBarrier(at + 1, 0, alignment) for at, alignment in enumerate(alignments)]
        self.under_way = 0
        self.triggered = 0
        self.last = 0  # the last that came to an end
        self.taken_early: set[int] = set()

    # ---- producers

    @rule(sends=st.lists(st.tuples(CHANNEL, SENT), min_size=1, max_size=8))
    def send(self, sends: list[tuple[int, str]]) -> None:
        for channel, what in sends:
            producer = self.channels[channel % len(self.channels)]
            if not producer.blocked and not producer.ended:
                self.send_one(producer, what)

    def send_one(self, producer: Channel, what: str) -> None:
        if what == "end":
            if producer.sent > 1:
                producer.ended = True
                producer.queue.append(None)
        elif what == DATA:
            producer.queue.append(DATA)
        elif producer.sent < len(self.barriers):
            barrier = self.barriers[producer.sent]
            producer.sent += 1
            if what == "cancel":
                producer.queue.append(barrier.id)
            elif what == "urgent" and barrier.is_announced:  # the producer's own timeout
                self.send_barrier(producer, barrier.as_priority())
            elif what != "skip":
                self.send_barrier(producer, barrier)

    @staticmethod
    def send_barrier(producer: Channel, barrier: CheckpointBarrier) -> None:
        if barrier.is_priority:
            producer.urgent.append((False, barrier))
            return
        producer.queue.append(barrier)
        producer.blocked = barrier.blocks
        if barrier.is_announced:
            producer.urgent.append((True, barrier))

    # ---- the consumer

    @rule(takes=st.lists(st.tuples(CHANNEL, st.booleans()), min_size=1, max_size=8))
    def take(self, takes: list[tuple[int, bool]]) -> None:
        for channel, urgent in takes:
            (self.take_urgent if urgent else self.take_next)(channel % len(self.channels))

    def take_next(self, index: int) -> None:
        channel = self.channels[index]
        if not channel.queue or (channel.queue[0] is None and channel.urgent):  # what overtakes is taken before the end
            return
        item = channel.queue.popleft()
        if item is None:
            channel.over = True
            self.carry_out(self.handler.ended(index))
        elif isinstance(item, CheckpointBarrier):
            channel.sees = max(channel.sees, item.id)
            self.carry_out(self.handler.delivered(index, item))
        elif isinstance(item, int):
            self.carry_out(self.handler.cancelled(index, item))
            assert self.last >= item or self.under_way > item, "a cancel marker was not heeded"

    def take_urgent(self, index: int) -> None:
        channel = self.channels[index]
        if not channel.urgent:
            return
        is_announced, barrier = channel.urgent.popleft()
        if not is_announced:
            channel.sees = max(channel.sees, barrier.id)
            self.carry_out(self.handler.delivered(index, barrier))
            assert max(self.last, self.under_way) >= barrier.id, "a priority barrier was not heeded"
            assert self.under_way != barrier.id or self.triggered == barrier.id, "a priority barrier triggers at once"
            return
        self.carry_out(self.handler.announced(index, barrier))
        if self.triggered == self.under_way == barrier.id:
            assert barrier not in channel.queue, "announced after the trigger, and not acted upon"

    @precondition(lambda self: self.under_way and self.barriers[self.under_way - 1].is_announced)
    @rule()
    def strike(self) -> None:
        checkpoint = self.under_way
        self.carry_out(self.handler.timed_out(checkpoint))
        assert self.triggered == checkpoint, "a timeout triggers at once"
        barrier = self.barriers[checkpoint - 1]
        left = [each for each in self.channels if barrier in each.queue and (True, barrier) not in each.urgent]
        assert not left or self.last == checkpoint, "an announced barrier was not acted upon"

    @rule(checkpoint=st.integers(1, 12))
    def strike_late(self, checkpoint: int) -> None:
        """A clock may also strike for what is over."""
        if checkpoint != self.under_way:
            assert self.handler.timed_out(checkpoint) == []

    # ---- what must follow

    def carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case BeginAlignment(barrier):
                    assert not self.under_way, "one at a time, each newer than the last"
                    assert barrier.id > self.last, "one at a time, each newer than the last"
                    self.under_way = barrier.id
                    self.arrived: set[int] = set()
                case TriggerTask(barrier):
                    assert barrier.id == self.under_way != self.triggered, "triggered once"
                    self.triggered = barrier.id
                    if barrier.blocks:
                        missing = [each for each in self.channels if not each.over and each.sees < barrier.id]
                        assert not missing, "an aligned checkpoint was triggered before all barriers were in"
                case BarrierArrived(channel):
                    assert self.under_way, "in once"
                    assert channel not in self.arrived, "in once"
                    self.arrived.add(channel)
                case Prioritise(channels):
                    for channel in channels:
                        barrier = self.barriers[self.under_way - 1]
                        assert barrier in self.channels[channel].queue, "what was acted upon was not in the queue"
                        self.channels[channel].queue.remove(barrier)
                        self.channels[channel].sees = barrier.id
                case Resume(channels):
                    for channel in channels:
                        self.resume(self.channels[channel])
                case AllBarriersIn(checkpoint):
                    assert checkpoint == self.triggered == self.under_way, "complete without a trigger"
                    open_channels = {at for at, each in enumerate(self.channels) if not each.over}
                    assert self.arrived >= open_channels, "complete, and a barrier is missing"
                    self.last, self.under_way = checkpoint, 0
                case AbortAlignment(checkpoint):
                    assert checkpoint > self.last, "aborted after its end"
                    assert not self.under_way or checkpoint == self.under_way, "another one was aborted"
                    self.last, self.under_way = checkpoint, 0

    def resume(self, channel: Channel) -> None:
        assert channel.blocked, "a channel that was not blocked was asked to resume"
        assert not channel.is_blocked_later, "a channel that was not blocked was asked to resume"
        channel.blocked = False

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "handler"):
            return
        self.handler.validate()
        assert (self.handler.state is not HandlerState.IDLE) == bool(self.under_way), "under way, or not"
        assert (self.handler.state is HandlerState.OVERTAKING) == bool(
            self.under_way and self.triggered == self.under_way
        )
        open_channels = {at for at, each in enumerate(self.channels) if not each.over}
        assert not self.under_way or not self.arrived >= open_channels, "all barriers are in, and nothing follows"
        for at, channel in enumerate(self.channels):
            waits = channel.blocked and not channel.is_blocked_later
            assert not waits or (self.under_way and at in self.arrived), "blocked for nothing"

    def teardown(self) -> None:
        """All producers go on to the end, and a consumer that goes on taking must come there."""
        if not hasattr(self, "handler"):
            return
        for _ in range(200):
            for at, channel in enumerate(self.channels):
                while channel.urgent:
                    self.take_urgent(at)
                while channel.queue:
                    self.take_next(at)
                if not channel.blocked and not channel.ended:
                    if channel.sent < len(self.barriers):
                        channel.sent += 1
                        self.send_barrier(channel, self.barriers[channel.sent - 1])
                    else:
                        channel.ended = True
                        channel.queue.append(None)
            self.books_agree()
            if all(channel.over for channel in self.channels):
                break
        else:
            raise AssertionError("stuck: a channel is blocked for good")
        assert self.handler.state is HandlerState.IDLE, "left under way"
        assert not self.under_way, "left under way"
