"""How the excess is shared out: vectors worked out by hand from the rule, and what must hold for any claims."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.memory.redistribution import PoolClaim, shares

BIG = 1000


@pytest.mark.parametrize(
    ("spare", "claims", "sizes"),
    [
        pytest.param(7, [], [], id="no pools"),
        pytest.param(0, [PoolClaim(2, BIG, 2), PoolClaim(3, BIG, 30)], [2, 3], id="nothing to share: what is required"),
        pytest.param(5, [PoolClaim(5, BIG, 5)], [10], id="one pool takes all"),
        pytest.param(5, [PoolClaim(5, 7, 5)], [7], id="but no more than its maximum"),
        pytest.param(10, [PoolClaim(5, 5, 5), PoolClaim(5, BIG, 5)], [5, 15], id="fixed pools take no part"),
        pytest.param(10, [PoolClaim(5, BIG, 5), PoolClaim(5, BIG, 5)], [10, 10], id="equal weights, equal shares"),
        pytest.param(6, [PoolClaim(1, BIG, 1), PoolClaim(2, BIG, 2)], [3, 6], id="in proportion to what was expected"),
        pytest.param(
            10, [PoolClaim(4, 5, 1), PoolClaim(4, BIG, 1)], [5, 13], id="what one cannot take goes to the other"
        ),
        pytest.param(
            10, [PoolClaim(4, 5, 1), PoolClaim(4, 6, 1)], [5, 6], id="all at their maximum: some is left over"
        ),
        # First cut of 11 by 1:1:1 is 3 each; the next round gives out the missing 2 by ceil(2/3) = 1.
        pytest.param(
            8, [PoolClaim(1, BIG, 1), PoolClaim(1, BIG, 1), PoolClaim(1, BIG, 1)], [4, 4, 3], id="remainder in order"
        ),
        # First cut of 12 by 1:9 is 1 and 10, but the first needs 6: the 4 too many are taken from the second.
        pytest.param(4, [PoolClaim(6, BIG, 1), PoolClaim(2, BIG, 9)], [6, 6], id="taken back from who got too much"),
    ],
)
def test_vectors(spare: int, claims: list[PoolClaim], sizes: list[int]) -> None:
    assert shares(spare, claims) == sizes


@st.composite
def _claims(draw: st.DrawFn) -> PoolClaim:
    required = draw(st.integers(1, 20))
    return PoolClaim(required, required + draw(st.integers(0, 30)), draw(st.integers(1, 40)))


@settings(deadline=None, derandomize=True)
@given(spare=st.integers(0, 200), claims=st.lists(_claims(), max_size=8))
def test_every_share_is_legal_and_nothing_is_withheld(spare: int, claims: list[PoolClaim]) -> None:
    sizes = shares(spare, claims)
    assert all(claim.required <= size <= claim.maximum for size, claim in zip(sizes, claims, strict=True))
    wanted = sum(claim.maximum - claim.required for claim in claims)
    assert sum(sizes) - sum(claim.required for claim in claims) == min(spare, wanted)
