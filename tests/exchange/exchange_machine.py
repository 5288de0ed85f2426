"""A rule machine over a whole exchange: several writers and readers, within a TaskManager and across, in any order.

Every row comes once and in order, none behind a watermark that promised it would not, none on the wrong side of an
aligned barrier or of a latency marker, which comes to one reader and once; gates of a union have their turns. At rest
readers have seen all that was flushed. In the end all readers come to the end, or everything is cancelled; either way
all memory is back and all counts agree.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.config import FlowControl
from headgate.records.events import Alignment
from tests.exchange.whole import ALL, INTERVAL, Exchange, Shape

TASK = st.integers(0, 2)
#: The TaskManager of each writer or reader.
PLACES = st.sampled_from([(0,), (0, 1), (1, 0), (0, 0, 1), (1, 1)])
#: Of which tasks draw the order of their steps.
SEED = st.integers(0, 1 << 16)
ALIGNMENT = st.sampled_from([Alignment.ALIGNED, Alignment.TIMEOUT, Alignment.UNALIGNED])
SHAPES = st.builds(
    Shape,
    mode=st.sampled_from([FlowControl.CREDIT, FlowControl.TCP]),
    writers=PLACES,
    readers=PLACES,
    selector=st.sampled_from(["key groups", "key groups", "rebalance", "broadcast"]),
    buffer_timeout=st.sampled_from([-1.0, 0.0, 0.05, "adaptive"]),
    message_size=st.sampled_from([64, 200, 1000]),
    exclusive=st.integers(0, 2),
    floating=st.integers(1, 4),
    extra=st.integers(0, 6),
    cap=st.one_of(st.integers(1, 5), st.just(100)),
    overdraft=st.integers(0, 2),
    limit=st.sampled_from([0, 2000, *[1 << 20] * 4]),
    capacity=st.sampled_from([300, ALL]),
    unions=st.integers(1, 3),
)


class ExchangeMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(shape=SHAPES, ends=st.booleans())
    def begin(self, shape: Shape, ends: bool) -> None:
        self.world = Exchange(shape)
        self.ends = ends
        self.order = random.Random(0)

    @rule(
        writer=TASK,
        batches=st.lists(st.sampled_from([1, 3, 17, 60]), min_size=1, max_size=4),
        watermark=st.booleans(),
        seed=SEED,
    )
    def emit(self, writer: int, batches: list[int], watermark: bool, seed: int) -> None:
        """What a task makes of one input, often one batch. It takes none while its writer is not available."""
        producer = self.world.producers[writer % len(self.world.producers)]
        if producer.may_emit:
            for rows in batches:
                self.world.emit(producer.number, rows)
            if watermark:
                self.world.watermark(producer.number)
        self.move(seed)

    @rule(seed=SEED)
    def watermarks(self, seed: int) -> None:
        """Of all writers, so that event time goes on."""
        for producer in self.world.producers:
            if producer.may_emit:
                self.world.watermark(producer.number)
        self.move(seed)

    @rule(writer=TASK, seed=SEED, rows=st.sampled_from([0, 1, 17]), flush=st.booleans())
    def marker(self, writer: int, seed: int, rows: int, flush: bool) -> None:
        """A latency marker between rows; those behind it may be in one message with those before it, or not."""
        producer = self.world.producers[writer % len(self.world.producers)]
        for element in ("rows", "marker", "flush", "rows"):
            if not producer.may_emit:
                break
            if element == "marker":
                self.world.marker(producer.number)
            elif element == "rows" and rows:
                self.world.emit(producer.number, rows)
            elif element == "flush" and flush:
                self.world.flush(producer.number)
        self.move(seed)

    @rule(writer=TASK, seed=SEED, rows=st.sampled_from([0, 1, 17]), active=st.booleans())
    def status(self, writer: int, seed: int, rows: int, active: bool) -> None:
        """A writer turns active, or idle behind its last rows; the others go on."""
        producer = self.world.producers[writer % len(self.world.producers)]
        if not producer.writer.is_finished:
            if rows and producer.may_emit:
                self.world.emit(producer.number, rows)
            self.world.status(producer.number, active)
        self.watermarks(seed)

    @rule(writer=TASK, seed=SEED, rows=st.sampled_from([0, 1, 17]), alignment=ALIGNMENT)
    def barrier(self, writer: int, seed: int, rows: int, alignment: Alignment) -> None:
        """A writer has its barrier, and goes on behind it."""
        producer = self.world.producers[writer % len(self.world.producers)]
        may_overtake = self.world.shape.mode is FlowControl.CREDIT
        self.world.inject(producer.number, alignment if may_overtake else Alignment.ALIGNED)
        if rows and producer.may_emit:
            self.world.emit(producer.number, rows)
            self.world.flush(producer.number)
        self.move(seed)

    @rule(seed=SEED, passes=st.booleans())
    def move(self, seed: int, passes: bool = False) -> None:
        """The network threads and all tasks go on for a while, in an order that the seed chooses."""
        self.order.seed(seed)
        self.world.timeouts_pass = bool(seed % 3)
        if passes:
            self.world.now += INTERVAL / 2
        self.world.move(self.order, 20)

    @rule()
    def rest(self) -> None:
        self.world.rest()

    @rule(writer=TASK, reader=TASK, what=st.integers(0, 3))
    def end(self, writer: int, reader: int, what: int) -> None:
        """Now and then a writer comes to its end, or a reader leaves in the midst of things."""
        producers, readers = self.world.producers, self.world.readers
        if what == 0 and not producers[writer % len(producers)].writer.is_finished:
            producers[writer % len(producers)].finish()
        elif what == 1 and not readers[reader % len(readers)].left:
            readers[reader % len(readers)].leave()

    @invariant()
    def laws_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.ends:
            self.world.rest()
            self.world.run_to_the_end()
        self.world.close(self.order)
