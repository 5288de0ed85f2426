"""The segments of one result partition, or the floating segments of one input gate.

Any thread may call any method. Nothing here waits: a pool that has nothing says so and calls back later. Callbacks
(`on_available`, listeners) run with no lock held, on the thread that made them due, and must be short.

Locks are taken in the order factory lock, local lock, queue lock, and the factory lock only by `destroy`.
The rules are Flink's LocalBufferPool's, but for one: a segment that comes from the global pool also goes to a waiting
listener first, so that a listener never waits while there is a segment that it could have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.errors import ExchangeError
from headgate.memory.lock import Lock
from headgate.memory.redistribution import PoolClaim
from headgate.memory.segment import MemorySegment

#: Told at most once: with a segment, which it may decline with False, or with None when the pool is destroyed.
Listener = Callable[[MemorySegment | None], bool]


class GlobalPool(Protocol):
    """What a local pool needs of the pool of all segments. Only `dismiss` may take the factory lock."""

    segment_size: int

    def take(self, waiter: LocalBufferPool | None) -> MemorySegment | None:
        """A free segment. If there is none and a waiter is given, it gets one `offer` as soon as there is."""

    def give_back(self, segment: MemorySegment) -> None: ...

    def dismiss(self, pool: LocalBufferPool, segments: list[MemorySegment]) -> None:
        """The pool has been destroyed and returns what it did not use."""


class LocalBufferPool:
    """A changing share of the global pool. Create it with `NetworkBufferPool.create_local_pool`.

    `available` is read before every batch: True promises that the next `request` is met without overdraft and that no
    subpartition has reached its cap. `on_available` is called each time it turns True, and `on_refill` when a segment
    has come from the global pool and it does not, because of a cap: the other subpartitions can go on. The cap is soft:
    a request for a subpartition beyond it is still met, since the record at hand has to be finished.
    """

    __slots__ = (
        "_cap", "_capped", "_counts", "_destroyed", "_free", "_global", "_listeners", "_lock", "_max_overdraft",
        "_waiting", "available", "claim", "on_available", "on_refill", "owner", "requested", "size",
    )  # fmt: skip

    def __init__(
        self,
        source: GlobalPool,
        lock: Lock,
        *,
        owner: str,
        claim: PoolClaim,
        subpartitions: int,
        max_per_subpartition: int,
        max_overdraft: int,
    ) -> None:
        self.owner = owner
        self.claim = claim
        self.size = claim.required  # how many segments it may own now; changed by redistribution
        self.requested = 0  # how many it owns: free here, or in use
        self.available = False
        self.on_available: Callable[[], None] = _ignore
        self.on_refill: Callable[[], None] = _ignore
        self._global = source
        self._lock = lock
        self._free: list[MemorySegment] = []  # last in, first out: the warmest in the cache
        self._counts = [0] * subpartitions  # in use, per subpartition
        self._cap = max_per_subpartition
        self._capped = 0  # how many subpartitions are at their cap or beyond
        self._max_overdraft = max_overdraft
        self._listeners: deque[Listener] = deque()
        self._waiting = False  # the global pool owes us one offer
        self._destroyed = False

    @property
    def is_overdrawn(self) -> bool:
        """It owns more than its share: by overdraft, or because the share has shrunk."""
        return self.requested > self.size

    @property
    def segment_size(self) -> int:
        """Bytes of each segment."""
        return self._global.segment_size

    @property
    def free(self) -> int:
        """Segments here that are not in use."""
        return len(self._free)

    @property
    def in_use(self) -> int:
        """Segments requested from here and not yet recycled."""
        return self.requested - len(self._free)

    def outstanding(self, subpartition: int) -> int:
        """Segments in use for this subpartition."""
        return self._counts[subpartition]

    def request_many(self, count: int, subpartition: int = 0, *, overdraft: bool = False) -> list[MemorySegment]:
        """Up to `count` segments. Never waits. Raises ExchangeError once the pool is destroyed.

        With `overdraft`, when all of the pool's share is in use, up to `max_overdraft` more come straight from the
        global pool.
        """
        segments: list[MemorySegment] = []
        if count <= 0:
            return segments
        with self._lock:
            free = self._free
            while len(segments) < count:
                if free:
                    last = len(segments) - count
                    segments += free[last:]
                    del free[last:]
                elif (segment := self._overdraw(overdraft)) is not None:
                    segments.append(segment)
                else:
                    break
                if not free:
                    ahead = self._fetch()
                    if ahead is not None:
                        free.append(ahead)
            before = self._counts[subpartition]
            self._counts[subpartition] = after = before + len(segments)
            if before < self._cap <= after:
                self._capped += 1
            self.available = bool(free) and not self._capped
        return segments

    @property
    def listeners(self) -> int:
        """How many wait for a segment."""
        return len(self._listeners)

    def recycle(self, segment: MemorySegment, subpartition: int = 0) -> None:
        """Take back a segment that was requested for `subpartition`. Raises ExchangeError if there is no such one."""
        self.recycle_many((segment,), subpartition)

    def recycle_many(self, segments: Sequence[MemorySegment], subpartition: int = 0) -> None:
        """Take back segments of one subpartition together, as that many calls of `recycle` would."""
        with self._lock:
            self._discharge(subpartition, len(segments))
            keep = self.requested <= self.size and not self._listeners
            if keep:
                self._free.extend(segments)
                if self.available or self._capped:
                    return
                self.available = True
        if keep:
            self.on_available()
            return
        for segment in segments:
            self._place(segment)

    def add_listener(self, listener: Listener) -> bool:
        """Wait for one segment, behind those that wait already; a listener that needs more registers again.

        False if there is no need to wait, because a segment is free, or no use in it, because the pool is destroyed.
        A segment that is accepted counts for subpartition 0.
        """
        with self._lock:
            if self._free or self._destroyed:
                return False
            self._listeners.append(listener)
            return True

    def destroy(self) -> None:
        """Give everything up; again is harmless. Segments still in use go to the global pool as they are recycled.

        Listeners hear None. `available` becomes True for good, so that who waits for it goes on and meets the error.
        """
        with self._lock:
            if self._destroyed:
                return
            self._destroyed = True
            self.size = 0
            self.requested -= len(self._free)
            unused, self._free = self._free, []
            listeners, self._listeners = self._listeners, deque()
            self.available = True
        self._global.dismiss(self, unused)
        for listener in listeners:
            listener(None)
        self.on_available()

    # ---- for the global pool only

    def resize(self, size: int) -> list[MemorySegment]:
        """Set the share and return the free segments beyond it; those in use follow when they are recycled.

        Calls no listener, since the factory lock is held: `refill` does, afterwards.
        """
        surplus: list[MemorySegment] = []
        with self._lock:
            if self._destroyed:
                return surplus
            self.size = size
            while self._free and self.requested > size:
                surplus.append(self._free.pop())
                self.requested -= 1
            self.available = bool(self._free) and not self._capped
        return surplus

    def refill(self) -> None:
        """Use a share that has grown: have one segment ready."""
        with self._lock:
            segment = self._fetch()
        self._place(segment)

    def offer(self, segment: MemorySegment) -> bool:
        """The segment this pool waited for; False if there is no more need of it, so that others come first."""
        with self._lock:
            self._waiting = False
            if self._free or self.requested >= self.size:
                return False
            self.requested += 1
        self._place(segment)
        return True

    def idle(self) -> list[int]:
        """Numbers of the segments that are free here."""
        return [segment.index for segment in self._free]

    # ---- inside

    def _overdraw(self, allowed: bool) -> MemorySegment | None:
        if self._destroyed:
            raise ExchangeError(f"{self.owner} asked for a buffer after its pool was destroyed")
        if not (allowed and self.size <= self.requested < self.size + self._max_overdraft):
            return None
        segment = self._global.take(None)
        if segment is not None:
            self.requested += 1
        return segment

    def _fetch(self) -> MemorySegment | None:
        """One segment ahead of need, if none is free here and the share allows; the caller has the lock."""
        if self._free or self._waiting or self.requested >= self.size:
            return None
        segment = self._global.take(self)
        if segment is None:
            self._waiting = True
        else:
            self.requested += 1
        return segment

    def _place(self, segment: MemorySegment | None) -> None:
        """Find a home for a segment we own: beyond our share the global pool, else a listener, else the free list."""
        while segment is not None:
            listener: Listener | None = None
            turned = False
            with self._lock:
                surplus = self.requested > self.size
                if surplus:
                    self.requested -= 1
                elif self._listeners:
                    listener = self._listeners.popleft()
                    self._charge(0)
                else:
                    self._free.append(segment)
                    turned = not self.available and not self._capped
                    self.available = not self._capped
            if listener is None:
                if surplus:
                    self._global.give_back(segment)
                elif turned:
                    self.on_available()
                else:
                    self.on_refill()
                return
            accepted = listener(segment)
            with self._lock:
                if accepted:
                    segment = self._fetch()
                else:
                    self._discharge(0)

    def _charge(self, subpartition: int) -> None:
        self._counts[subpartition] += 1
        if self._counts[subpartition] == self._cap:
            self._capped += 1

    def _discharge(self, subpartition: int, freed: int = 1) -> None:
        before = self._counts[subpartition]
        if before < freed:
            raise ExchangeError(f"{self.owner}: a buffer of subpartition {subpartition} was recycled twice")
        self._counts[subpartition] = after = before - freed
        if after < self._cap <= before:
            self._capped -= 1

    def validate(self) -> None:
        """Check every law that holds while no call is under way. Raises AssertionError."""
        with self._lock:
            free, in_use = len(self._free), self.in_use
            who = f"{self.owner}: size {self.size}, requested {self.requested}, free {free}, in use {self._counts}"
            assert in_use == sum(self._counts), f"{who}: owns more or fewer segments than are free or in use"
            assert self._capped == sum(count >= self._cap for count in self._counts), f"{who}: {self._capped} capped"
            if self._destroyed:
                assert not self._free and not self._listeners, f"{who}: destroyed, but not empty"
                return
            assert self.claim.required <= self.size <= self.claim.maximum, f"{who}: share outside {self.claim}"
            assert self.available == (free > 0 and not self._capped), f"{who}: available is {self.available}"
            assert not (self._free and self.requested > self.size), f"{who}: keeps free segments beyond its share"
            assert not (self._free and self._listeners), f"{who}: a listener waits though a segment is free"
            hungry = not self._free and self.requested < self.size
            assert self._waiting or not hungry, f"{who}: entitled to a segment, but does not wait for one"


def _ignore() -> None:
    """The default of both callbacks."""
