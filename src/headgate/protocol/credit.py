"""Both ends' credit of one channel: one credit is one free buffer at the consumer.

1. The consumer reserves exclusive buffers and announces them with its request: the initial credit.
2. The producer spends one credit per data buffer and sends none at 0. Events are free.
3. Each frame carries the backlog, the data buffers still queued behind it. The consumer then wants `backlog + initial`
buffers and takes floating ones from its gate's pool, as far as there are any; each is a new credit. It wants no fewer
than its share of the pool: all for the only channel of a gate, and half of it for several together. Flink wants none
without a backlog; but the backlog of a producer that is slower than its consumer is next to nothing most of the time,
and each of its bursts would wait for a round trip.
4. Credit comes back when the task has *consumed* a buffer and recycled it, never when it was received.
5. New credit gathers until the connection can write, and goes out as one AddCredit.
6. A channel without exclusive buffers begins at credit 0; its producer announces a backlog that no buffer can tell of.

Flink has these rules in BufferManager and RemoteInputChannel. Invariant: credit at the producer + credit on its way +
unannounced credit + buffers in flight = free buffers held by the channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from headgate.errors import ExchangeError
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment
from headgate.protocol.exclusive import ExclusiveBuffers

MAX_CREDIT = 1 << 24


class SenderCredit:
    """The producer's end. One thread only."""

    __slots__ = ("_initial", "available")

    def __init__(self, initial: int) -> None:
        self._initial = initial
        self.available = 0
        self.add(initial)

    def add(self, credit: int) -> None:
        """Raises ExchangeError when a peer grants more than any consumer could have."""
        if credit < 0 or self.available + credit > MAX_CREDIT:
            raise ExchangeError(f"credit of {credit} on top of {self.available} is impossible")
        self.available += credit

    def on_resume(self) -> None:
        """A consumer without exclusive buffers gave up all others when it was blocked: no credit stands for one now."""
        if not self._initial:
            self.available = 0

    @property
    def is_whole(self) -> bool:
        """Floating buffers may make up for exclusive ones in use; without exclusive ones it tells nothing."""
        return self.available >= self._initial

    @property
    def needs_announcement(self) -> bool:
        return not self._initial and not self.available

    def spend(self, count: int) -> None:
        if self.available < count:
            raise ExchangeError("a data buffer was about to be sent without credit")
        self.available -= count


class BufferManager:
    """The consumer's end: the buffers of one remote channel, and the credit they stand for.

    The network thread takes buffers and reports backlogs, the task thread recycles, the pool's listener may run on
    either; hence the lock. `on_credit` is called, outside the lock, when unannounced credit goes from none to some.
    """

    __slots__ = (
        "_channels", "_exclusive", "_floating", "_free_exclusive", "_lock", "_on_credit", "_pool", "_released",
        "_required", "_waiting", "initial_credit", "unannounced",
    )  # fmt: skip

    def __init__(
        self,
        on_credit: Callable[[], None],
        *,
        exclusive: ExclusiveBuffers,
        initial_credit: int,
        floating_pool: LocalBufferPool,
        channels: int,
        lock_factory: LockFactory,
    ) -> None:
        exclusive.reserve(initial_credit)
        self._exclusive = exclusive
        self._free_exclusive = initial_credit
        self._floating: deque[MemorySegment] = deque()
        self._pool = floating_pool
        self._channels = channels
        self._on_credit = on_credit
        self._lock = lock_factory()
        self.initial_credit = initial_credit
        self._required = 0
        self._waiting = False
        self._released = False
        self.unannounced = 0

    @property
    def free(self) -> int:
        """Buffers that are empty and held by this channel."""
        return self._free_exclusive + len(self._floating)

    @property
    def free_exclusive(self) -> int:
        """Exclusive buffers that stand ready for data; all of them once released."""
        return self.initial_credit if self._released else self._free_exclusive

    @property
    def free_floating(self) -> int:
        """Floating buffers that stand ready for data."""
        return len(self._floating)

    def validate(self) -> None:
        """Raises AssertionError unless every free buffer is in its place and credit stands for free buffers only."""
        with self._lock:
            own, floating = self._free_exclusive, [segment.index for segment in self._floating]
            assert 0 <= own <= self.initial_credit, f"{own} exclusive buffers free of {self.initial_credit}"
            assert own <= self._exclusive.free, f"{own} exclusive buffers free, but {self._exclusive.free} in the stack"
            assert not any(map(self._exclusive.owns, self._floating)), f"exclusive among the floating ones {floating}"
            assert len(set(floating)) == len(floating), f"a buffer is free twice: {floating}"
            assert 0 <= self.unannounced <= self.free, f"{self.unannounced} credit for {self.free} free buffers"
            assert not self._released or not (own or floating), "released, but holds buffers"

    def take(self, count: int) -> Sequence[MemorySegment] | None:
        """Buffers for data that arrived, floating ones first; None once released. Raises ExchangeError when the
        producer sent without credit."""
        with self._lock:
            if self._released:
                return None
            if count > self.free:
                raise ExchangeError("the producer sent a buffer without credit")
            floating = self._floating
            taken = [floating.pop() for _ in range(min(count, len(floating)))]
            if own := count - len(taken):
                self._free_exclusive -= own
                taken += self._exclusive.take(own)
            return taken

    def recycle(self, *segments: MemorySegment) -> None:
        """The task has consumed buffers of this channel. Each is new credit, unless the channel holds enough without
        it: then a floating one goes back to the gate's pool, for the channel that needs it most. One that the channel
        would ask for again at once, while no other waits for it, stays here."""
        exclusive = self._exclusive
        own = [segment for segment in segments if exclusive.owns(segment)]
        others = [segment for segment in segments if not exclusive.owns(segment)]
        with self._lock:
            before, is_released = self.unannounced, self._released
            surplus = others if is_released else self._take_back(own, others)
            first = not before and self.unannounced > 0
        if is_released and own:
            exclusive.give_back(own)
        if surplus:
            self._pool.recycle_many(surplus)
        if first:
            self._on_credit()

    def _take_back(self, own: list[MemorySegment], others: list[MemorySegment]) -> list[MemorySegment]:
        """Under the lock: consumed exclusive and floating buffers. Returns the floating ones that are not needed."""
        pool, floating = self._pool, self._floating
        nobody_waits = pool.listeners <= self._waiting and pool.requested <= pool.size
        room = max(0, self._required + self.initial_credit - self.free)
        replaced = min(len(floating), max(0, len(own) - room))
        surplus = [floating.popleft() for _ in range(replaced)]
        credit = len(own) - replaced
        kept = others[: max(0, room - credit)] if nobody_waits else []
        self._exclusive.put(own)
        self._free_exclusive += len(own)
        floating.extend(kept)
        self.unannounced += credit + len(kept)
        return surplus + others[len(kept) :]

    def on_backlog(self, backlog: int) -> None:
        """The producer has `backlog` more data buffers queued: hold buffers for them, as far as the pool has any."""
        with self._lock:
            if self._released:
                return
            self._required = max(backlog, self._share)
            first = self._request_floating()
        if first:
            self._on_credit()

    @property
    def _share(self) -> int:
        """How many floating buffers it may hold without a backlog, so that others find some that have one."""
        size = self._pool.size
        return size if self._channels == 1 else size // (2 * self._channels)

    def block(self) -> None:
        """Nothing comes until the consumer asks for it. A channel without buffers of its own holds none meanwhile: the
        producer forgets the credit that stood for them when it goes on."""
        with self._lock:
            self._required = 0
            if self.initial_credit:
                return
            self.unannounced = 0
            floating, self._floating = self._floating, deque()
        for segment in floating:
            self._pool.recycle(segment)

    def _request_floating(self) -> bool:
        """Under the lock: take floating buffers up to what is required; wait in line for the one that is missing."""
        credit = 0
        wanted = self._required + self.initial_credit
        while not self._waiting and self.free < wanted:
            segments = self._pool.request_many(wanted - self.free)
            if segments:
                self._floating.extend(segments)
                credit += len(segments)
            elif self._pool.add_listener(self._offered):
                self._waiting = True
            # Otherwise a buffer came back between the two calls: ask again.
        return self._add_unannounced(credit)

    def _offered(self, segment: MemorySegment | None) -> bool:
        """The pool offers one buffer (None: it is destroyed). Returns whether it was taken."""
        with self._lock:
            self._waiting = False
            if segment is None or self._released or self.free >= self._required + self.initial_credit:
                return False
            self._floating.append(segment)
            first = self._add_unannounced(1)
            first = self._request_floating() or first
        if first:
            self._on_credit()
        return True

    def _add_unannounced(self, credit: int) -> bool:
        before, self.unannounced = self.unannounced, self.unannounced + credit
        return before == 0 and credit > 0

    def take_unannounced(self) -> int:
        """All credit not yet announced; the caller sends it as one AddCredit."""
        with self._lock:
            credit, self.unannounced = self.unannounced, 0
            return credit

    def release(self) -> None:
        """Hold nothing more: floating buffers go back to the gate's pool, exclusive ones to the network pool; those
        still with the task follow when it recycles them."""
        with self._lock:
            if self._released:
                return
            self._released = True
            floating, self._floating = self._floating, deque()
            own, self._free_exclusive = self._free_exclusive, 0
            self.unannounced = 0
        for segment in floating:
            self._pool.recycle(segment)
        self._exclusive.give_back(self._exclusive.take(own))
