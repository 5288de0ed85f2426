"""A rule machine over a blocking partition: a task writes it, then consumers read it, in place and over a wire.

What is read is what was written, events in their places. The task holds no segment that is full; the file has what is
full and nothing else, is open while a reader may read it, and closed afterwards. In the end consumers that go on
reading come to the end, or all is cancelled, its parts in any order; either way all memory is back.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.config import FlowControl
from headgate.records.events import CancelMarker
from tests.exchange.stage import Stage, StageShape
from tests.exchange.whole import ALL, SEGMENT

CHANNEL = st.integers(0, 2)
SEED = st.integers(0, 1 << 16)
SIZE = st.one_of(st.sampled_from([SEGMENT, 3 * SEGMENT, 9 * SEGMENT + 5]), st.integers(1, SEGMENT))
SHAPES = st.builds(
    StageShape,
    mode=st.sampled_from([FlowControl.CREDIT, FlowControl.TCP]),
    is_local=st.lists(st.booleans(), min_size=1, max_size=3).map(tuple),
    compress=st.booleans(),
    extra=st.integers(0, 6),
    cap=st.one_of(st.integers(1, 5), st.just(100)),
    exclusive=st.integers(0, 2),
    floating=st.integers(1, 4),
    capacity=st.sampled_from([300, ALL]),
)


class BlockingMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(shape=SHAPES, ends=st.booleans())
    def begin(self, shape: StageShape, ends: bool) -> None:
        self.stage = Stage(shape)
        self.ends = ends
        self.order = random.Random(0)

    @precondition(lambda self: not self.stage.is_finished)
    @rule(channel=CHANNEL, sizes=st.lists(SIZE, min_size=1, max_size=3), seed=SEED, is_dull=st.booleans())
    def write(self, channel: int, sizes: list[int], seed: int, is_dull: bool) -> None:
        """Bytes that LZ4 makes fewer, or not."""
        self.order.seed(seed)
        for size in sizes:
            data = bytes([self.order.randrange(256)]) * size if is_dull else self.order.randbytes(size)
            self.stage.write(channel % self.stage.channels, data)

    @precondition(lambda self: not self.stage.is_finished)
    @rule(channel=CHANNEL, checkpoint=st.integers(1, 100))
    def write_event(self, channel: int, checkpoint: int) -> None:
        """Any; what batch jobs have is the end of data."""
        self.stage.write_event(channel % self.stage.channels, CancelMarker(checkpoint))

    @precondition(lambda self: not self.stage.is_finished)
    @rule(channel=CHANNEL)
    def look(self, channel: int) -> None:
        """A flush shows nothing, and no reader may attach yet."""
        self.stage.partition.flush(channel % self.stage.channels)
        assert self.stage.refuses_reader(channel % self.stage.channels), "a reader came too early"

    @precondition(lambda self: not self.stage.is_finished and any(self.stage.written))
    @rule()
    def finish(self) -> None:
        self.stage.finish()

    @rule(channel=CHANNEL)
    def start(self, channel: int) -> None:
        self.stage.start(channel % self.stage.channels)

    @rule(seed=SEED)
    def move(self, seed: int) -> None:
        """The network threads of both ends, and the wire between them."""
        self.order.seed(seed)
        self.stage.move(self.order)

    @precondition(lambda self: self.stage.is_finished)
    @rule(limits=st.lists(st.integers(1, 9), max_size=4), recycled=st.lists(st.integers(0, 9), max_size=4))
    def consume(self, limits: list[int], recycled: list[int]) -> None:
        """Take buffers and finish some of those taken, not always in order."""
        for limit in limits:
            self.stage.consume(limit)
        for which in recycled:
            if self.stage.held:
                self.stage.recycle(which)

    @precondition(lambda self: any(self.stage.written))
    @rule(channel=CHANNEL, chance=st.integers(0, 2))
    def leave(self, channel: int, chance: int) -> None:
        """Now and then a consumer goes, in the midst of things or before it came."""
        if not chance and channel % self.stage.channels not in self.stage.left:
            self.stage.leave(channel % self.stage.channels)

    @invariant()
    def laws_hold(self) -> None:
        self.stage.check()

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        if self.ends:
            self.stage.run_to_the_end()
        self.stage.close(self.order)
