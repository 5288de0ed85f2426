"""A rule machine over a NetworkBufferPool and its local pools: random owners that take, return, wait, come and go.

The machine keeps its own books (who was promised and given what) and compares after every step. At the end everything
is returned; then no owner may be stuck, every claim must be granted at once, and no segment may be missing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.errors import ExchangeError, InsufficientBuffers
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.redistribution import PoolClaim, shares
from headgate.memory.segment import MemorySegment
from tests.memory.conftest import CheckedLocks, request_one

INDEX = st.integers(0, 50)
SMALL = st.integers(0, 4)


@dataclass(kw_only=True)
class Owner:
    """The user of one local pool, and what the pool owes it."""

    pool: LocalBufferPool
    claim: PoolClaim
    subpartitions: int
    cap: int
    overdraft: int
    locks: CheckedLocks
    used: list[tuple[MemorySegment, int]] = field(default_factory=list)
    waiting: deque[int] = field(default_factory=deque)
    registered: int = 0
    available: bool = True
    had_free: bool = True
    notified: int = 0
    refilled: int = 0
    acted: bool = False
    destroyed: bool = False

    def __post_init__(self) -> None:
        self.pool.on_available = self.on_available
        self.pool.on_refill = self.on_refill
        self.available, self.had_free = self.pool.available, self.pool.free > 0

    def on_available(self) -> None:
        self.locks.assert_free()
        assert self.pool.available, "notified of availability, but the pool is not available"
        self.notified += 1

    def on_refill(self) -> None:
        self.locks.assert_free()
        assert self.pool.free, "notified of a segment, but the pool has none"
        self.refilled += 1

    def listen(self, wanted: int) -> None:
        """Wait for `wanted` segments, one registration after the other; 0: decline the first."""
        ticket = self.registered

        def listener(segment: MemorySegment | None) -> bool:
            self.locks.assert_free()
            assert self.waiting, "listeners are served out of turn"
            assert self.waiting.popleft() == ticket, "listeners are served out of turn"
            if segment is None:
                assert self.destroyed, "notified of a destruction that did not happen"
                return False
            if not wanted:
                return False
            self.used.append((segment, 0))
            if wanted > 1:
                self.listen(wanted - 1)
            return True

        # The pool may call back at once, so the books are made up first.
        self.waiting.append(ticket)
        self.registered += 1
        if not self.pool.add_listener(listener):
            assert self.waiting.pop() == ticket
            assert self.pool.free or self.destroyed, "sent away though nothing is free"


class PoolMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(total=st.integers(4, 14))
    def begin(self, total: int) -> None:
        self.locks = CheckedLocks()
        self.network = NetworkBufferPool(total, 8, self.locks)
        self.total = total
        self.owners: list[Owner] = []
        self.exclusive: list[list[MemorySegment]] = []

    # ---- what is promised

    @property
    def live(self) -> list[Owner]:
        return [owner for owner in self.owners if not owner.destroyed]

    def promised(self) -> int:
        return sum(owner.claim.required for owner in self.live) + sum(map(len, self.exclusive))

    @rule(
        required=st.integers(1, 4),
        extra=st.integers(0, 12),
        weight=st.integers(1, 9),
        subpartitions=st.integers(1, 3),
        cap=st.one_of(st.just(1000), st.integers(1, 4)),
        overdraft=st.integers(0, 3),
    )
    def create(self, *, required: int, extra: int, weight: int, subpartitions: int, cap: int, overdraft: int) -> None:
        claim = PoolClaim(required, required + extra, weight)
        try:
            pool = self.network.create_local_pool(
                f"pool {len(self.owners)}",
                required=claim.required,
                maximum=claim.maximum,
                expected=weight,
                subpartitions=subpartitions,
                max_per_subpartition=cap,
                max_overdraft=overdraft,
            )
        except InsufficientBuffers:
            assert self.promised() + required > self.total, "refused what could be promised"
            return
        assert self.promised() + required <= self.total, "promised more than there is"
        self.owners.append(
            Owner(pool=pool, claim=claim, subpartitions=subpartitions, cap=cap, overdraft=overdraft, locks=self.locks)
        )

    @rule(count=st.integers(1, 5))
    def request_exclusive(self, count: int) -> None:
        try:
            segments = self.network.request_exclusive(count, "channels")
        except InsufficientBuffers as error:
            refusal = error.message
            if self.promised() + count <= self.total:
                assert "request them again" in refusal, "refused what could be promised"
                rights = [0 if owner.destroyed else owner.claim.required for owner in self.owners]
                over = [owner.pool.requested > right for owner, right in zip(self.owners, rights, strict=True)]
                assert any(over), "refused although no owner uses more than its share"
            return
        assert self.promised() + count <= self.total, "promised more than there is"
        assert len(segments) == count
        self.exclusive.append(segments)

    @precondition(lambda self: self.exclusive)
    @rule(which=INDEX)
    def recycle_exclusive(self, which: int) -> None:
        self.network.recycle_exclusive(self.exclusive.pop(which % len(self.exclusive)), "channels")

    # ---- what is used

    @precondition(lambda self: self.live)
    @rule(which=INDEX, subpartition=SMALL, times=st.integers(1, 4))
    def request(self, which: int, subpartition: int, times: int) -> None:
        for _ in range(times):
            self._request(self.live[which % len(self.live)], subpartition)

    def _request(self, owner: Owner, subpartition: int) -> MemorySegment | None:
        pool = owner.pool
        promised, free, over = pool.available, pool.free, pool.requested - pool.size
        globally_free = self.network.free_segments
        subpartition %= owner.subpartitions
        owner.acted = True
        segment = request_one(pool, subpartition)
        if segment is not None:
            owner.used.append((segment, subpartition))
        if promised:
            assert segment is not None, "availability did not keep its promise"
            assert pool.requested <= pool.size, "availability did not keep its promise"
        elif free:
            assert segment is not None, "refused a free segment"
        elif 0 <= over < owner.overdraft and globally_free:
            assert segment is not None, "refused an overdraft"
        else:
            assert segment is None, "gave more than the share and the overdraft"
        return segment

    @precondition(lambda self: self.live)
    @rule(which=INDEX, subpartition=SMALL, count=st.integers(0, 6), overdraft=st.booleans())
    def request_many(self, which: int, subpartition: int, count: int, overdraft: bool) -> None:
        owner = self.live[which % len(self.live)]
        pool, subpartition = owner.pool, subpartition % owner.subpartitions
        owner.acted = True
        before = pool.requested
        segments = pool.request_many(count, subpartition, overdraft=overdraft)
        assert len(segments) <= count, "gave more than was asked for"
        assert overdraft or pool.requested <= max(before, pool.size), "an overdraft that was not requested"
        owner.used += [(segment, subpartition) for segment in segments]
        if len(segments) < count:
            over = pool.requested - pool.size
            may_overdraw = overdraft and 0 <= over < owner.overdraft and self.network.free_segments
            assert not pool.free, "gave less than there was"
            assert not may_overdraw, "gave less than there was"

    @precondition(lambda self: any(owner.used for owner in self.owners))
    @rule(which=INDEX, index=INDEX, times=st.integers(1, 4))
    def recycle(self, which: int, index: int, times: int) -> None:
        users = [owner for owner in self.owners if owner.used]
        owner = users[which % len(users)]
        subpartition = owner.used[index % len(owner.used)][1]
        together = [used for used in owner.used if used[1] == subpartition][:times]
        before, surplus = owner.pool.requested, max(0, owner.pool.requested - owner.pool.size)
        owner.acted = True
        for used in together:
            owner.used.remove(used)
        owner.pool.recycle_many([segment for segment, _ in together], subpartition)
        returned = min(surplus, len(together))
        assert not surplus or owner.pool.requested <= before - returned, "kept a segment beyond its share"

    def _recycle(self, owner: Owner, index: int) -> None:
        owner.acted = True
        segment, subpartition = owner.used.pop(index % len(owner.used))
        before, surplus = owner.pool.requested, owner.pool.requested > owner.pool.size
        owner.pool.recycle(segment, subpartition)
        if surplus:
            assert owner.pool.requested == before - 1, "kept a segment beyond its share"

    @precondition(lambda self: self.live)
    @rule(which=INDEX, wanted=st.integers(0, 3))
    def listen(self, which: int, wanted: int) -> None:
        self.live[which % len(self.live)].listen(wanted)

    @precondition(lambda self: self.live)
    @rule(which=INDEX)
    def destroy(self, which: int) -> None:
        self._destroy(self.live[which % len(self.live)])

    def _destroy(self, owner: Owner) -> None:
        owner.destroyed = True
        owner.pool.destroy()
        assert not owner.waiting, "listeners do not know that their pool is gone"
        try:
            request_one(owner.pool)
        except ExchangeError:
            return
        raise AssertionError("a destroyed pool gave a segment")

    # ---- what must always hold

    @invariant()
    def books_agree(self) -> None:
        self.locks.assert_free()
        self.network.validate()
        sizes = shares(self.total - self.promised(), [owner.claim for owner in self.live])
        assert [owner.pool.size for owner in self.live] == sizes, "shared out by another rule"
        lent = [segment.index for owner in self.owners for segment, _ in owner.used]
        lent += [segment.index for segments in self.exclusive for segment in segments]
        assert len(set(lent)) == len(lent), "a segment was lent twice"
        idle = self.network.free_segments + sum(owner.pool.free for owner in self.owners)
        assert len(lent) + idle == self.total, "segments were lost"
        for owner in self.owners:
            self._check(owner)

    def _check(self, owner: Owner) -> None:
        pool, counts = owner.pool, [0] * owner.subpartitions
        for _, subpartition in owner.used:
            counts[subpartition] += 1
        assert [pool.outstanding(index) for index in range(owner.subpartitions)] == counts, "miscounted"
        if owner.destroyed:
            return
        available = pool.free > 0 and max(counts) < owner.cap
        assert pool.available == available, f"available should be {available}"
        assert owner.notified or owner.available or not available, "no owner was notified of the availability"
        was_notified = owner.acted or owner.had_free or owner.notified or owner.refilled
        assert was_notified or not pool.free, "no owner was notified of the segment that came back"
        owner.available, owner.had_free = available, pool.free > 0
        owner.notified = owner.refilled = 0
        owner.acted = False
        assert not (owner.waiting and pool.free), "a listener waits though a segment is free"
        starved = not pool.free and pool.requested < pool.size
        assert not (starved and self.network.free_segments), "a pool may take a segment that is free, but has none"

    # ---- the end: all segments returned, no owner stuck

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        while self.exclusive:
            self.network.recycle_exclusive(self.exclusive.pop(), "channels")
        for _ in range(500):
            users = [owner for owner in self.owners if owner.used]
            if not users:
                break
            self._recycle(users[0], 0)
        self.books_agree()
        for owner in self.live:
            assert not owner.waiting, "a listener was never served"
            assert owner.pool.available, "stuck: everything was returned, and still nothing is available"
        for owner in self.live:
            for _ in range(owner.claim.required):
                segment = request_one(owner.pool)
                assert segment is not None, "a promise was not kept"
                assert owner.pool.requested <= owner.pool.size, "a promise was not kept"
                owner.used.append((segment, 0))
        for owner in self.live:
            self._destroy(owner)
        for owner in self.owners:
            while owner.used:
                self._recycle(owner, 0)
        self.books_agree()
        assert self.network.holders() == {}
        self.network.close()
