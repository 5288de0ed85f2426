"""The pool of one result partition's segments, or of one input gate's floating segments.

Any thread may call any method. No method waits: an empty pool returns no segment and calls back later. Callbacks
(`on_available`, listeners) run without a lock, on the thread that freed the segment, and must be short.

Locks are taken in the order factory lock, local lock, queue lock (see `network_pool`). Only `destroy` takes the factory
lock. The local lock is this pool's own: it protects the counts, the free segments and the listeners.
The rules are those of Flink's LocalBufferPool, except one: a segment from the global pool also goes to a waiting
listener first. A listener therefore never waits while the pool has a segment for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.errors import ExchangeError
from headgate.memory.lock import Lock
from headgate.memory.redistribution import PoolClaim
from headgate.memory.segment import MemorySegment

#: A callback that waits for a segment. The pool calls it at most once: with a segment, or with None when the pool is
#: destroyed. The listener returns False to decline the segment.
Listener = Callable[[MemorySegment | None], bool]


class GlobalPool(Protocol):
    """The methods of the global pool that a local pool calls. Only `dismiss` may take the factory lock."""

    segment_size: int
    total_segments: int

    def take(self, waiter: LocalBufferPool | None) -> MemorySegment | None:
        """Return a free segment, or None. After None, a `waiter` gets one call of `offer` when a segment comes back."""

    def give_back(self, segment: MemorySegment) -> None: ...

    def dismiss(self, pool: LocalBufferPool, segments: list[MemorySegment]) -> None:
        """Remove a destroyed pool and take back its unused segments."""


class LocalBufferPool:
    """A share of the global pool that may grow and shrink. Create it with `NetworkBufferPool.create_local_pool`.

    `available` is True if the next request succeeds without overdraft and no subpartition has reached its cap
    (`max_per_subpartition`). The pool calls `on_available` each time `available` turns True. It calls `on_refill`
    when a segment has come back but a cap keeps `available` False: the other subpartitions can continue.
    The cap is soft: the pool still serves a request beyond it, because a task must finish the record at hand.
    """

    __slots__ = (
        "_cap", "_capped", "_counts", "_destroyed", "_free", "_global", "_listeners", "_lock", "_max_overdraft",
        "_waiting", "available", "claim", "on_available", "on_refill", "owner", "requested", "size",
    )  # fmt: skip
    #: Whether the pool may use only the segments of its share, and overdraft.
    is_limited = True

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
        self.size = claim.required  # segments that the pool may own now; redistribution changes it
        self.requested = 0  # segments that the pool owns, free here or in use
        self.available = False
        self.on_available: Callable[[], None] = _ignore
        self.on_refill: Callable[[], None] = _ignore
        self._global = source
        self._lock = lock
        self._free: list[MemorySegment] = []  # last in, first out: the last is still in the processor's cache
        self._counts = [0] * subpartitions  # in use, per subpartition
        self._cap = max_per_subpartition
        self._capped = 0  # subpartitions that are at their cap or beyond
        self._max_overdraft = max_overdraft
        self._listeners: deque[Listener] = deque()
        self._waiting = False  # the global pool has promised one offer
        self._destroyed = False

    @property
    def is_overdrawn(self) -> bool:
        """Whether the pool owns more segments than its share, by overdraft or because the share has shrunk."""
        return self.requested > self.size

    @property
    def segment_size(self) -> int:
        """The number of bytes of each segment."""
        return self._global.segment_size

    @property
    def free(self) -> int:
        """The number of segments that the pool owns and no buffer uses."""
        return len(self._free)

    @property
    def in_use(self) -> int:
        """The number of segments requested from this pool and not yet recycled."""
        return self.requested - len(self._free)

    def outstanding(self, subpartition: int) -> int:
        """Return the number of segments in use for this subpartition."""
        return self._counts[subpartition]

    def request_many(self, count: int, subpartition: int = 0, *, overdraft: bool = False) -> list[MemorySegment]:
        """Return up to `count` segments, without waiting. Raises ExchangeError when the pool is destroyed.

        With `overdraft`, up to `max_overdraft` more segments come from the global pool when the whole share is in use.
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
        """The number of listeners that wait for a segment."""
        return len(self._listeners)

    def recycle(self, segment: MemorySegment, subpartition: int = 0) -> None:
        """Take back a segment that was requested for `subpartition`.

        Raises ExchangeError when no segment of that subpartition is in use.
        """
        self.recycle_many((segment,), subpartition)

    def recycle_many(self, segments: Sequence[MemorySegment], subpartition: int = 0) -> None:
        """Take back several segments of one subpartition, like one `recycle` call per segment."""
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
        """Queue a listener for one segment. Queue it again for the next segment.

        Returns False, and does not queue it, when a segment is free or the pool is destroyed. A segment that the
        listener accepts counts for subpartition 0.
        """
        with self._lock:
            if self._free or self._destroyed:
                return False
            self._listeners.append(listener)
            return True

    def destroy(self) -> None:
        """Return all free segments to the global pool. Segments in use follow when they are recycled.

        A second call changes nothing. Listeners are called with None. `available` stays True from now on, so that a
        waiting task resumes and gets the error.
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
        """Set the share and return the free segments beyond it. Segments in use follow when they are recycled.

        The caller holds the factory lock, so `resize` makes no callback. `refill` makes the callbacks afterwards.
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
        """Fetch one segment if the share has grown and no segment is free."""
        with self._lock:
            segment = self._fetch()
        self._place(segment)

    def offer(self, segment: MemorySegment) -> bool:
        """Accept the segment that this pool waited for. Returns False when the pool no longer needs it."""
        with self._lock:
            self._waiting = False
            if self._free or self.requested >= self.size:
                return False
            self.requested += 1
        self._place(segment)
        return True

    def idle(self) -> list[int]:
        """Return the indices of the free segments of this pool."""
        return [segment.index for segment in self._free]

    # ---- inside

    def _overdraw(self, allowed: bool) -> MemorySegment | None:
        if self._destroyed:
            raise ExchangeError(f"{self.owner} requested a buffer after its pool was destroyed")
        if not (allowed and self.size <= self.requested < self.size + self._max_overdraft):
            return None
        segment = self._global.take(None)
        if segment is not None:
            self.requested += 1
        return segment

    def _fetch(self) -> MemorySegment | None:
        """Take one segment in advance from the global pool, if none is free here and the share allows it; else None.

        The caller holds the lock.
        """
        if self._free or self._waiting or self.requested >= self.size:
            return None
        segment = self._global.take(self)
        if segment is None:
            self._waiting = True
        else:
            self.requested += 1
        return segment

    def _place(self, segment: MemorySegment | None) -> None:
        """Pass on a segment that the pool owns.

        If the pool owns more than its share, the segment goes to the global pool. Otherwise it goes to a listener, or
        to the free list when no listener waits.
        """
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
            raise ExchangeError(
                f"{self.owner}: a buffer of subpartition {subpartition} was recycled twice: "
                f"{freed} came back, {before} were in use"
            )
        self._counts[subpartition] = after = before - freed
        if after < self._cap <= before:
            self._capped -= 1

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold. Call it while no other call is in progress."""
        with self._lock:
            free, in_use = len(self._free), self.in_use
            facts = f"{self.owner}: size {self.size}, requested {self.requested}, free {free}, in use {self._counts}"
            assert in_use == sum(self._counts), f"{facts}: owns more or fewer segments than are free or in use"
            assert self._capped == sum(count >= self._cap for count in self._counts), f"{facts}: {self._capped} capped"
            if self._destroyed:
                assert not self._free and not self._listeners, f"{facts}: destroyed, but not empty"
                return
            assert self.claim.required <= self.size <= self.claim.maximum, f"{facts}: share outside {self.claim}"
            assert self.available == (free > 0 and not self._capped), f"{facts}: available is {self.available}"
            assert not (self._free and self.requested > self.size), f"{facts}: retains free segments beyond its share"
            assert not (self._free and self._listeners), f"{facts}: a listener waits though a segment is free"
            starved = not self._free and self.requested < self.size
            assert self._waiting or not starved, f"{facts}: the pool may take a segment, but does not wait for one"


def _ignore() -> None:
    """Do nothing: the default of both callbacks."""
