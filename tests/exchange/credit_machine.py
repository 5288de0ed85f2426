"""A rule machine over a whole link: tasks, network threads and wire take their steps in any order.

After every step the laws of credit hold (`Link.check`). At rest nothing waits that could move. In the end a consumer
that goes on consuming makes every producer finish, or the link is cut; either way all memory is back.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.protocol.messages import MAX_RUN
from tests.exchange.link import ALL, SEGMENT, Link

CHANNEL = st.integers(0, 2)
#: How many bytes one call of a socket moves.
CUT = st.one_of(st.just(ALL), st.integers(1, 40))
#: Bytes to write, often whole segments or runs of them, or what else a task does.
WRITE = st.one_of(
    st.builds(lambda whole, rest: whole * SEGMENT + rest, st.integers(0, 6), st.integers(1, 12)),
    st.sampled_from([SEGMENT, 4 * SEGMENT + 3, 9 * SEGMENT, "event", "barrier", "overtake", "let go"]),
    st.sampled_from(["flush", "settle"]),
)
STEPS = ["deliver_posts", "produce", "write_socket", "receive", "send_control", "receive_control"]


class CreditMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        channels=st.integers(1, 3),
        exclusive=st.integers(0, 2),
        floating=st.one_of(st.integers(1, 4), st.just(12)),
        extra=st.integers(0, 16),
        cap=st.one_of(st.integers(1, 6), st.just(20)),
        overdraft=st.integers(0, 1),
        connected=st.booleans(),
        cut_at=st.one_of(st.none(), st.integers(0, 80)),
        read_size=CUT,
        room=st.one_of(st.just(MAX_RUN), st.integers(1, 6)),
    )
    def begin(self, connected: bool, cut_at: int | None, read_size: int, room: int, **sizes: int) -> None:
        self.link = Link(**sizes)
        self.link.read_size, self.link.room = read_size, room
        self.cut_at = cut_at
        if connected:
            self.link.settle()

    @rule(channel=CHANNEL, writes=st.lists(WRITE, max_size=5))
    def produce(self, channel: int, writes: list[int | str]) -> None:
        channel %= self.link.count
        for write in writes:
            if write == "settle":
                self.link.settle()
            elif write == "flush":
                self.link.flush(channel)
            elif write == "let go":
                self.link.let_go()
            elif not self.link.ended[channel]:
                if isinstance(write, int):
                    self.link.write(channel, write)
                elif write == "barrier":
                    self.link.write_barrier(channel)
                elif write == "overtake":
                    self.link.overtake(channel)
                else:
                    self.link.write_event(channel)

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
                self.link.produce(1 + size % 6)
            else:
                getattr(self.link, step)(size)

    @precondition(lambda self: self.link.to_consumer)
    @rule()
    def receive_byte_by_byte(self) -> None:
        for _ in range(len(self.link.to_consumer)):
            self.link.receive(1)

    @rule(steps=st.lists(st.integers(-4, 4), max_size=8))
    def consume(self, steps: list[int]) -> None:
        """Go on behind barriers seen before, take buffers (below 0) and finish some of those taken, not always in
        order."""
        self.link.resume()
        for step in steps:
            if step < 0:
                self.link.consume(-step)
            elif self.link.held:
                self.link.recycle(step, 1 + step // 2)

    @precondition(lambda self: sum(map(len, self.link.written)) > 30)
    @rule(channel=CHANNEL, more=st.one_of(st.just(ALL), st.integers(0, 100)))
    def release(self, channel: int, more: int) -> None:
        """A channel takes leave in the midst of things; `more` bytes arrive before the network thread hears of it."""
        channel %= self.link.count
        if not self.link.channels[channel].released:
            self.produce(channel, [33, "event"])
            self.link.settle_producer()
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
