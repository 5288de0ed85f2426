"""The credit of one channel, at both ends. One credit is one free buffer at the consumer.

1. The consumer reserves exclusive buffers and announces them with its request: the initial credit.
2. The producer spends one credit per data buffer and sends no data at credit 0. Events need no credit.
3. Each frame carries the backlog: the number of data buffers queued behind the frame. The consumer then requires
`backlog + initial` buffers. It takes *floating* buffers from its gate's pool until it has this number or the pool is
empty. Each floating buffer is a new credit. The backlog counts as at least the channel's share of the pool. The only
channel of a gate has the whole pool as its share; several channels share half the pool equally. (Flink requires no
floating buffers without a backlog. But a producer that is slower than its consumer has almost no backlog most of the
time. Each of its bursts would then wait for a round trip.)
4. Credit returns when the task has *consumed* a buffer and recycled it, not when the buffer was received.
5. New credit accumulates until the connection can write, and is sent as one AddCredit.
6. A channel without exclusive buffers starts at credit 0. While it has no credit, no frame can carry the backlog. Its
producer therefore sends a BacklogAnnouncement.

These are the rules of Flink's BufferManager and RemoteInputChannel. Invariant: credit at the producer + credit in
transit + unannounced credit + buffers in flight = free buffers held by the channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.errors import ExchangeError
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment
from headgate.protocol.exclusive import ExclusiveBuffers
from headgate.protocol.waiting_time import WaitingTime, no_clock

MAX_CREDIT = 1 << 24


class HasBacklog(Protocol):
    """The property of a subpartition that `SenderCredit` reads."""

    @property
    def reported_backlog(self) -> int: ...


class SenderCredit:
    """The producer's side: the credit that a channel may still spend. One thread changes it; any thread may read it.

    `granted` is the total of all credit from the consumer. Without a `clock`, waits for credit are not measured.
    """

    __slots__ = ("_initial", "_waiting", "available", "granted")

    def __init__(self, initial: int, clock: Callable[[], float] = no_clock) -> None:
        self._initial = initial
        self._waiting = WaitingTime(clock)
        self.available = 0
        self.granted = 0
        self.add(initial)

    def add(self, credit: int) -> None:
        """Add credit. Raises ExchangeError when a peer grants more than any consumer can have."""
        if credit < 0 or self.available + credit > MAX_CREDIT:
            raise ExchangeError(
                f"the consumer granted an impossible credit of {credit} on top of {self.available}: "
                f"a channel has 0 to {MAX_CREDIT}"
            )
        self.available += credit
        self.granted += credit

    def note_backlog(self, view: HasBacklog) -> None:
        """Start or end the measured wait for credit.

        Data wait while the credit is 0 and `view` has data that could be sent. The method reads `view` only at credit
        0, because reading takes a lock.
        """
        if not self.available:
            self._waiting.note(view.reported_backlog > 0)
        elif self._waiting.is_waiting:
            self._waiting.note(False)

    def note_new_data(self, view: HasBacklog) -> None:
        """Start the measured wait for credit if the credit is 0. More data do not end a wait."""
        if not self.available and not self._waiting.is_waiting:
            self.note_backlog(view)

    @property
    def waited_s(self) -> float:
        """The seconds in which data waited for credit."""
        return self._waiting.seconds

    def on_resume(self) -> None:
        """Set the credit to 0 if the consumer has no exclusive buffers.

        Such a consumer returned its floating buffers when a barrier blocked the channel.
        """
        if not self._initial:
            self.available = 0

    @property
    def is_whole(self) -> bool:
        """Whether the credit is at least the initial credit.

        Credit of floating buffers counts too, so some exclusive buffers may still be in use. Without exclusive buffers
        the value is always True.
        """
        return self.available >= self._initial

    @property
    def needs_announcement(self) -> bool:
        return not self._initial and not self.available

    def spend(self, count: int) -> None:
        if self.available < count:
            raise ExchangeError(f"{count} data buffers were about to be sent with a credit of {self.available}")
        self.available -= count


class BufferManager:
    """The consumer's side: the free buffers of one remote channel, and the credit that announces them.

    The network thread takes buffers and reports backlogs. The task thread recycles buffers. Either thread may run the
    pool's listener. The lock protects all counts and the floating buffers. It is taken before the lock of the gate's
    pool. `on_credit` is called, without the lock, when unannounced credit rises from 0. `channels` is the number of
    remote channels that share the pool.
    """

    __slots__ = (
        "_channels", "_exclusive", "_expects_data", "_floating", "_free_exclusive", "_lock", "_on_credit", "_pool",
        "_released", "_required", "_waiting", "_without", "initial_credit", "unannounced",
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
        clock: Callable[[], float] = no_clock,
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
        self._expects_data = False
        self._without = WaitingTime(clock)
        self._waiting = False
        self._released = False
        self.unannounced = 0

    @property
    def free(self) -> int:
        """The number of empty buffers that this channel holds."""
        return self._free_exclusive + len(self._floating)

    @property
    def free_exclusive(self) -> int:
        """The number of exclusive buffers that are ready for data. After the release: the number of all of them."""
        return self.initial_credit if self._released else self._free_exclusive

    @property
    def free_floating(self) -> int:
        """The number of floating buffers that are ready for data."""
        return len(self._floating)

    @property
    def announced(self) -> int:
        """The number of empty buffers that the producer knows of, or that an AddCredit on its way announces to it."""
        with self._lock:
            return self.free - self.unannounced

    def validate(self) -> None:
        """Raise AssertionError when a free buffer is held twice, or when credit exceeds the free buffers."""
        with self._lock:
            own, floating = self._free_exclusive, [segment.index for segment in self._floating]
            assert 0 <= own <= self.initial_credit, f"{own} exclusive buffers free of {self.initial_credit}"
            assert own <= self._exclusive.free, f"{own} exclusive buffers free, but {self._exclusive.free} in the stack"
            assert not any(map(self._exclusive.owns, self._floating)), f"exclusive among the floating ones {floating}"
            assert len(set(floating)) == len(floating), f"a buffer is free twice: {floating}"
            assert 0 <= self.unannounced <= self.free, f"{self.unannounced} credit for {self.free} free buffers"
            assert not self._released or not (own or floating), "released, but holds buffers"
            assert not (self._without.is_waiting and self.free), f"without a buffer, but {self.free} are free"

    def take(self, count: int) -> Sequence[MemorySegment] | None:
        """Take `count` free buffers for arriving data, floating ones first. Returns None after the release.

        Raises ExchangeError when the producer sent more buffers than its credit.
        """
        with self._lock:
            if self._released:
                return None
            if count > self.free:
                raise ExchangeError(
                    f"the producer exceeded its credit: it sent {count} buffers, the channel has {self.free} free"
                )
            floating = self._floating
            taken = [floating.pop() for _ in range(min(count, len(floating)))]
            if own := count - len(taken):
                self._free_exclusive -= own
                taken += self._exclusive.take(own)
            return taken

    def recycle(self, *segments: MemorySegment) -> None:
        """Take back buffers that the task has consumed.

        An exclusive buffer becomes new credit. If the channel then has too many free buffers, a floating buffer leaves,
        and the exclusive buffer takes over its credit. A floating buffer becomes new credit only if this channel
        requires it and no other channel waits for a buffer. Floating buffers that leave return to the gate's pool, for
        the channel that waits longest.
        """
        exclusive = self._exclusive
        own, others = exclusive.separate(segments)
        with self._lock:
            before, is_released = self.unannounced, self._released
            surplus = others if is_released else self._take_back(own, others)
            if self._without.is_waiting:  # more free buffers can only end the wait
                self._note_buffers()
            first = not before and self.unannounced > 0
        if is_released and own:
            exclusive.give_back(own)
        if surplus:
            self._pool.recycle_many(surplus)
        if first:
            self._on_credit()

    def _take_back(self, own: list[MemorySegment], others: list[MemorySegment]) -> list[MemorySegment]:
        """Take back exclusive (`own`) and floating (`others`) buffers, and return surplus floating buffers.

        The caller holds the lock.
        """
        pool, floating = self._pool, self._floating
        none_waits = pool.listeners <= self._waiting and pool.requested <= pool.size
        room = max(0, self._required + self.initial_credit - self.free)
        replaced = min(len(floating), max(0, len(own) - room))
        surplus = [floating.popleft() for _ in range(replaced)]
        credit = len(own) - replaced
        retained = others[: max(0, room - credit)] if none_waits else []
        self._exclusive.put(own)
        self._free_exclusive += len(own)
        floating.extend(retained)
        self.unannounced += credit + len(retained)
        return surplus + others[len(retained) :]

    def on_backlog(self, backlog: int) -> None:
        """Take floating buffers for the `backlog` data buffers that the producer has queued.

        If the pool is empty, the channel waits as a listener for further buffers.
        """
        with self._lock:
            if self._released:
                return
            self._expects_data = backlog > 0 or self.initial_credit > 0
            self._required = max(backlog, self._share)
            first = self._request_floating()
            self._note_buffers()
        if first:
            self._on_credit()

    def _note_buffers(self) -> None:
        """Start or end the measured time without a buffer. The caller holds the lock.

        This is the time in which the producer may have data and the channel has no free buffer for them. At credit 0
        the producer reports no backlog, unless the channel has no exclusive buffers.
        """
        self._without.note(self._expects_data and not self.free)

    @property
    def without_buffer_s(self) -> float:
        """The seconds in which the channel had no free buffer for data that its producer may have."""
        return self._without.seconds

    #: A frame always finds a buffer, because the producer spends a credit for it.
    reader_stops = 0

    @property
    def _share(self) -> int:
        """The number of floating buffers that the channel holds even without a backlog.

        The shares of several channels leave half the pool for backlogs.
        """
        size = self._pool.size
        return size if self._channels == 1 else size // (2 * self._channels)

    def block(self) -> None:
        """Stop requiring floating buffers: a barrier blocks the channel until the consumer resumes it.

        A channel without exclusive buffers also returns its floating ones. The producer sets its credit to 0 when it
        resumes.
        """
        with self._lock:
            self._required = 0
            self._expects_data = False
            self._note_buffers()
            if self.initial_credit:
                return
            self.unannounced = 0
            floating, self._floating = self._floating, deque()
        for segment in floating:
            self._pool.recycle(segment)

    def _request_floating(self) -> bool:
        """Take floating buffers up to the required number. If the pool is empty, add a listener for the next buffer.

        The caller holds the lock. Returns whether unannounced credit has risen from 0.
        """
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
        """Accept an offered buffer if it is still required, and return whether it is. None: the pool is destroyed."""
        with self._lock:
            self._waiting = False
            if segment is None or self._released or self.free >= self._required + self.initial_credit:
                return False
            self._floating.append(segment)
            first = self._add_unannounced(1)
            first = self._request_floating() or first
            self._note_buffers()
        if first:
            self._on_credit()
        return True

    def _add_unannounced(self, credit: int) -> bool:
        before, self.unannounced = self.unannounced, self.unannounced + credit
        return before == 0 and credit > 0

    def take_unannounced(self) -> int:
        """Return all unannounced credit and reset it. The caller sends it as one AddCredit."""
        with self._lock:
            credit, self.unannounced = self.unannounced, 0
            return credit

    def release(self) -> None:
        """Return floating buffers to the gate's pool and exclusive ones to the network pool.

        Buffers that the task still uses follow when it recycles them.
        """
        with self._lock:
            if self._released:
                return
            self._released = True
            floating, self._floating = self._floating, deque()
            own, self._free_exclusive = self._free_exclusive, 0
            self.unannounced = 0
            self._expects_data = False
            self._note_buffers()
        for segment in floating:
            self._pool.recycle(segment)
        self._exclusive.give_back(self._exclusive.take(own))
