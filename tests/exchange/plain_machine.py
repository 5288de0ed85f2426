"""A rule machine over a link without credit: two gates on one connection, and every step in any order.

At rest reading is stopped only where a gate has no buffer and a task something to consume. In the end consumers that go
on consuming make every producer finish, or the link is cut; either way all memory is back.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.config import FlowControl
from tests.exchange.shared_link import ALL, SEGMENT, SharedLink

CHANNEL = st.integers(0, 2)
GATE = st.integers(0, 1)
#: How many bytes one call of a socket moves.
CUT = st.one_of(st.just(ALL), st.integers(1, 60))
#: Bytes to write, often whole segments or runs of them.
SIZE = st.one_of(st.sampled_from([SEGMENT, 3 * SEGMENT, 9 * SEGMENT, 9 * SEGMENT + 5]), st.integers(1, 40))
STEPS = ["deliver_posts", "produce", "write_socket", "receive", "send_control", "receive_control"]


class PlainMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        one=st.integers(1, 2),
        buffers=st.tuples(st.integers(1, 4), st.integers(1, 4)),
        extra=st.integers(0, 16),
        cap=st.one_of(st.integers(1, 6), st.just(20)),
        capacity=st.one_of(st.just(ALL), st.integers(50, 200)),
        cut_at=st.one_of(st.none(), st.integers(0, 80)),
        read_size=st.one_of(st.just(ALL), st.integers(5, 60)),
    )
    def begin(
        self,
        *,
        one: int,
        buffers: tuple[int, int],
        extra: int,
        cap: int,
        capacity: int,
        cut_at: int | None,
        read_size: int,
    ) -> None:
        self.link = SharedLink(FlowControl.TCP, [one, 1], list(buffers), extra=extra, cap=cap, capacity=capacity)
        self.link.read_size = read_size
        self.cut_at = cut_at
        self.link.settle()

    @rule(channel=CHANNEL, sizes=st.lists(SIZE, min_size=1, max_size=4), settle=st.booleans())
    def produce(self, channel: int, sizes: list[int], settle: bool) -> None:
        channel %= self.link.count
        for size in sizes:
            if not self.link.ended[channel]:
                self.link.write(channel, size)
            if settle:
                self.link.settle()

    @precondition(lambda self: sum(map(len, self.link.written)) > 60)
    @rule(channel=CHANNEL)
    def end(self, channel: int) -> None:
        channel %= self.link.count
        if not self.link.ended[channel]:
            self.link.end(channel)

    @rule(steps=st.lists(st.tuples(st.sampled_from(STEPS), CUT), min_size=2, max_size=16))
    def move(self, steps: list[tuple[str, int]]) -> None:
        """The network threads of both ends, and the wire between them."""
        for step, size in steps:
            if step in ("deliver_posts", "send_control"):
                getattr(self.link, step)()
            elif step == "produce":
                self.link.produce(1 + size % 5)
            else:
                getattr(self.link, step)(size)

    @precondition(lambda self: self.link.to_consumer)
    @rule()
    def receive_byte_by_byte(self) -> None:
        for _ in range(len(self.link.to_consumer)):
            self.link.receive(1)

    @rule(gate=GATE, steps=st.lists(st.integers(-4, 4), max_size=8))
    def consume(self, gate: int, steps: list[int]) -> None:
        """Take buffers (below 0) and finish some of those taken, not always in order."""
        for step in steps:
            if step < 0:
                self.link.consume(gate, -step)
            elif self.link.held:
                self.link.recycle(step)

    @precondition(lambda self: sum(map(len, self.link.written)) > 30)
    @rule(channel=CHANNEL, more=st.one_of(st.just(ALL), st.integers(0, 100)))
    def release(self, channel: int, more: int) -> None:
        """A channel takes leave in the midst of things; `more` bytes arrive before the network thread hears of it."""
        channel %= self.link.count
        if not self.link.released[channel]:
            if not self.link.ended[channel]:
                self.link.write(channel, 33)
            self.link.release(channel)
            self.link.receive(more)

    @rule()
    def settle(self) -> None:
        self.link.settle()

    @invariant()
    def laws_hold(self) -> None:
        self.link.check()

    def teardown(self) -> None:
        if not hasattr(self, "link"):
            return
        if self.cut_at is None:
            self.link.run_to_the_end(50)
        else:
            self.link.cut(self.cut_at)
        self.link.close()
