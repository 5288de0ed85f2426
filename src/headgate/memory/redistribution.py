"""Share spare segments among local pools by Flink's weighted rule, as a pure function.

Every pool has a right to its `required` segments. The pools that may grow divide their required segments and the spare
segments in proportion to `weight`. No pool gets fewer than `required` or more than `maximum` segments. The other pools
give or get the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolClaim:
    """The limits of one pool, in segments: 0 < required <= maximum.

    `weight` is above 0. Pools share segments in proportion to it.
    """

    required: int
    maximum: int
    weight: int


def shares(spare: int, claims: Sequence[PoolClaim]) -> list[int]:
    """Return the size of each pool. `spare` segments remain after all pools have got their `required` segments."""
    sizes = [claim.required for claim in claims]
    elastic = [i for i, claim in enumerate(claims) if claim.required < claim.maximum]
    pot = spare + sum(claims[i].required for i in elastic)
    weights = sum(claims[i].weight for i in elastic)
    for i in elastic:
        sizes[i] = max(claims[i].required, min(claims[i].weight * pot // weights, claims[i].maximum))
    while _pass_on(pot - sum(sizes[i] for i in elastic), sizes, claims):
        pass
    return sizes


def _pass_on(excess: int, sizes: list[int], claims: Sequence[PoolClaim]) -> bool:
    """Give (`excess` > 0) or take back (`excess` < 0) segments by weight, in one round.

    Returns whether any size has changed.
    """
    sign = 1 if excess > 0 else -1
    amount = abs(excess)
    limits = [claim.maximum if excess > 0 else claim.required for claim in claims]
    eligible = [i for i, size in enumerate(sizes) if (limits[i] - size) * sign > 0]
    weights = sum(claims[i].weight for i in eligible)
    remaining = amount
    for i in eligible:
        fair = -(-amount * claims[i].weight // weights)
        step = min(remaining, fair, abs(limits[i] - sizes[i]))
        sizes[i] += sign * step
        remaining -= step
    return remaining != amount
