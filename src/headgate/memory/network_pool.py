"""The TaskManager's pool of all segments. It lends them to local pools and, as exclusive buffers, to input channels.

Two locks prevent deadlock, by Flink's rule. The queue lock protects the free segments. A thread takes it for each
request that a local pool cannot serve alone. The factory lock protects the claims and shares. A thread takes it to
create or release a pool or exclusive buffers, and to report who uses segments. Locks are taken in the order factory
lock, local pool's lock, queue lock. A local pool that holds its own lock may take the queue lock, never the factory
lock.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable

from headgate.errors import ExchangeError, InsufficientBuffers
from headgate.memory.guarded_pool import GuardedPool
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.redistribution import PoolClaim, shares
from headgate.memory.segment import MemorySegment, SegmentArena


class NetworkBufferPool:
    """The pool of `total_segments` segments of `segment_size` bytes each.

    The pool checks each claim when it grants the claim. The owner of a local pool or of exclusive buffers therefore
    always gets the promised segments. The pool lends the other segments to the local pools, and takes them back when
    they are recycled. It lends free segments in the order in which they came back.
    """

    def __init__(self, total_segments: int, segment_size: int, lock_factory: LockFactory) -> None:
        self.total_segments = total_segments
        self.segment_size = segment_size
        self._lock_factory = lock_factory
        self._factory_lock = lock_factory()
        self._lock = lock_factory()
        self._arena = SegmentArena(total_segments, segment_size)
        self._free = deque(self._arena.segments)
        self._waiters: deque[LocalBufferPool] = deque()
        # Under the factory lock:
        self._pools: list[LocalBufferPool] = []
        self._leaving: list[LocalBufferPool] = []  # destroyed, with segments still in use
        self._exclusive: Counter[str] = Counter()
        self._required = 0
        self._elastic = 0  # what all pools together may have beyond their required segments
        self._has_plenty = True  # whether each pool may have its maximum, by the last redistribution
        self._unshared: list[LocalBufferPool] = []  # pools without a share
        self._grown: list[LocalBufferPool] = []  # pools to refill
        self._closed = False

    @property
    def free_segments(self) -> int:
        """The number of segments that are not lent."""
        return len(self._free)

    @property
    def requested_usage(self) -> float:
        """The segments that all owners together could use, as a fraction of all segments.

        If the fraction is above 1, the owners compete for the segments beyond their claims.
        """
        with self._factory_lock:
            most = sum(min(pool.claim.maximum, self.total_segments) for pool in self._pools)
            return (most + self._exclusive.total()) / self.total_segments

    def create_local_pool(
        self,
        owner: str,
        *,
        required: int,
        maximum: int,
        expected: int | None = None,
        subpartitions: int = 1,
        max_per_subpartition: int = sys.maxsize,
        max_overdraft: int = 0,
        guard: Callable[[], float] | None = None,
    ) -> LocalBufferPool:
        """Create a pool with a right to `required` (at least 1) segments.

        The pool gets up to `maximum` segments while others need fewer. `expected` (default: `required`) is its weight
        when segments are divided. Raises InsufficientBuffers when fewer than `required` segments are unpromised.

        `guard` returns the seconds since the job started. With `guard`, no share limits the pool: see `GuardedPool`.
        """
        if not 1 <= required <= maximum:
            raise ExchangeError(f"{owner}: a pool needs 1 <= required <= maximum, not {required} and {maximum}")
        claim = PoolClaim(required, maximum, max(1, required if expected is None else expected))
        with self._factory_lock:
            self._reserve(required, owner)
            pool: LocalBufferPool
            if guard is not None:
                pool = GuardedPool(
                    self, self._lock_factory(), owner=owner, claim=claim, subpartitions=subpartitions, elapsed=guard
                )
            else:
                pool = LocalBufferPool(
                    self,
                    self._lock_factory(),
                    owner=owner,
                    claim=claim,
                    subpartitions=subpartitions,
                    max_per_subpartition=max_per_subpartition,
                    max_overdraft=max_overdraft,
                )
            self._pools.append(pool)
            self._unshared.append(pool)
            self._elastic += maximum - required
            self._redistribute()
        self._settle()
        return pool

    def request_exclusive(self, count: int, owner: str) -> list[MemorySegment]:
        """Return `count` segments for `owner` alone, until `recycle_exclusive`.

        Raises InsufficientBuffers when fewer than `count` segments are unpromised. It also raises when local pools
        still use segments beyond their share. The error then names these pools, and a later call succeeds after they
        have recycled the segments. The second case occurs only while a task of this TaskManager runs.
        """
        with self._factory_lock:
            self._reserve(count, owner)
            self._exclusive[owner] += count
            self._redistribute()
            with self._lock:
                enough = len(self._free) >= count
                segments = [self._free.popleft() for _ in range(count)] if enough else []
            if not enough:
                users = self._pools + self._leaving
                over = {pool.owner: pool.requested - pool.size for pool in users if pool.requested > pool.size}
                self._release_exclusive(count, owner)
                self._redistribute()
        self._settle()
        if not enough:
            raise InsufficientBuffers(
                f"{owner} has a right to {count} network buffers, but others still use more than their share: {over}; "
                f"request them again when these are recycled"
            )
        return segments

    def recycle_exclusive(self, segments: Iterable[MemorySegment], owner: str) -> None:
        """Take back exclusive segments. Pass all in one call, because each call redistributes all spare segments."""
        returned = list(segments)
        with self._factory_lock:
            if len(returned) > self._exclusive[owner]:
                raise ExchangeError(
                    f"{owner} returns {len(returned)} exclusive buffers but has only {self._exclusive[owner]}"
                )
            self._release_exclusive(len(returned), owner)
            with self._lock:
                self._free.extend(returned)
            self._redistribute()
        self._settle()

    def holders(self) -> dict[str, int]:
        """Return the number of segments lent to each owner, sorted by name. A local pool's free segments count too."""
        with self._factory_lock:
            return self._holders()

    def close(self) -> None:
        """Unmap the memory. A second call changes nothing.

        Raises ExchangeError, which names the holders, while a segment is lent or a pool exists.
        """
        with self._factory_lock:
            if self._closed:
                return
            if self._pools or len(self._free) < self.total_segments:
                lent = self.total_segments - len(self._free)
                raise ExchangeError(
                    f"network memory closed too early: {lent} of {self.total_segments} buffers are still lent: "
                    f"{self._holders()}; pools not destroyed: {[pool.owner for pool in self._pools]}"
                )
            self._closed = True
            self._free.clear()
            self._arena.close()

    # ---- for local pools only

    def take(self, waiter: LocalBufferPool | None) -> MemorySegment | None:
        """Return a free segment, or None. After None, a `waiter` gets one call of `offer` when a segment comes back."""
        with self._lock:
            if self._free:
                return self._free.popleft()
            if waiter is not None:
                self._waiters.append(waiter)
            return None

    def give_back(self, segment: MemorySegment) -> None:
        """Take back a segment. The caller holds no lock, because another pool's callbacks may run."""
        with self._lock:
            self._free.append(segment)
        self._serve_waiters()

    def dismiss(self, pool: LocalBufferPool, segments: list[MemorySegment]) -> None:
        """Remove a destroyed pool and take back its unused segments."""
        with self._factory_lock:
            self._pools.remove(pool)
            self._leaving.append(pool)
            self._required -= pool.claim.required
            self._elastic -= pool.claim.maximum - pool.claim.required
            with self._lock:
                self._free.extend(segments)
            self._redistribute()
        self._settle()

    # ---- inside; the callers of the first three methods hold the factory lock, those of the next two hold no lock

    def _reserve(self, count: int, owner: str) -> None:
        unpromised = self.total_segments - self._required
        if count > unpromised:
            raise InsufficientBuffers(
                f"{owner} needs {count} network buffers of {self.segment_size} bytes, but only {unpromised} of "
                f"{self.total_segments} are not promised to others: raise network_memory, or lower "
                f"buffers_per_channel or segment_size"
            )
        self._required += count

    def _release_exclusive(self, count: int, owner: str) -> None:
        self._required -= count
        self._exclusive[owner] -= count
        if not self._exclusive[owner]:
            del self._exclusive[owner]

    def _redistribute(self) -> None:
        """Share out the unpromised segments. It makes no callback: call `_settle` after releasing the lock.

        While each pool may have its maximum, no share changes, so only new pools get one.
        """
        self._leaving = [pool for pool in self._leaving if pool.requested]
        spare = self.total_segments - self._required
        pools, had_plenty = self._pools, self._has_plenty
        self._has_plenty = self._elastic <= spare
        if had_plenty and self._has_plenty:
            pools = self._unshared
        sizes = shares(spare, [pool.claim for pool in pools])
        surplus = [segment for pool, size in zip(pools, sizes, strict=True) for segment in pool.resize(size)]
        self._grown += pools
        self._unshared = []
        with self._lock:
            self._free.extend(surplus)

    def _settle(self) -> None:
        """Give the segments that a redistribution has freed to pools that wait, or whose share has grown."""
        self._serve_waiters()
        with self._factory_lock:
            pools, self._grown = self._grown, []
        for pool in pools:
            pool.refill()

    def _serve_waiters(self) -> None:
        """Offer one segment to each waiter in turn. A waiter that declines leaves the queue."""
        while True:
            with self._lock:
                if not (self._free and self._waiters):
                    return
                pool, segment = self._waiters.popleft(), self._free.popleft()
            if not pool.offer(segment):
                with self._lock:
                    self._free.appendleft(segment)

    def _holders(self) -> dict[str, int]:
        lent = self._exclusive.copy()
        for pool in self._pools + self._leaving:
            lent[pool.owner] += pool.requested
        return {owner: lent[owner] for owner in sorted(lent) if lent[owner]}

    def validate(self) -> None:
        """Raise AssertionError when a segment is lost or counted twice, or when a claim is broken.

        Call it while no other call is in progress. The error names each owner and its number of segments.
        """
        with self._factory_lock:
            holders = self._holders()
            facts = f"{len(self._free)} free of {self.total_segments}, lent: {holders}"
            for pool in self._pools + self._leaving:
                pool.validate()
            assert len(self._free) + sum(holders.values()) == self.total_segments, f"segments lost or doubled: {facts}"
            idle = [segment.index for segment in self._free]
            idle += [index for pool in self._pools for index in pool.idle()]
            assert len(set(idle)) == len(idle), f"a segment is free twice: {facts}"
            assert not (self._free and self._waiters), f"pools wait though segments are free: {facts}"
            exclusive = sum(self._exclusive.values())
            promised = exclusive + sum(pool.claim.required for pool in self._pools)
            assert promised == self._required <= self.total_segments, (
                f"{self._required} promised, not {promised}: {facts}"
            )
            lent = exclusive + sum(pool.size for pool in self._pools if pool.is_limited)
            assert lent <= self.total_segments, f"shares of {lent} segments: {facts}"
