"""How the segments that no pool has a right to are shared out among local pools: Flink's weighted rule, as a pure
function.

Every pool has a right to its `required` segments. What is left is lent in proportion to what each pool `expected`,
never beyond its `maximum`; what one pool cannot take goes to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolClaim:
    """What one pool may have, in segments: 0 < required <= maximum; `weight` > 0 is its part of the excess."""

    required: int
    maximum: int
    weight: int


def shares(spare: int, claims: Sequence[PoolClaim]) -> list[int]:
    """The size of each pool when `spare` segments are left over after everybody's `required`."""
    sizes = [claim.required for claim in claims]
    elastic = [i for i, claim in enumerate(claims) if claim.required < claim.maximum]
    pot = spare + sum(claims[i].required for i in elastic)
    weights = sum(claims[i].weight for i in elastic)
    for i in elastic:
        sizes[i] = max(claims[i].required, min(claims[i].weight * pot // weights, claims[i].maximum))
    while _pass_on(pot - sum(sizes[i] for i in elastic), sizes, claims):
        pass
    return sizes


def _pass_on(left: int, sizes: list[int], claims: Sequence[PoolClaim]) -> bool:
    """One round of giving (`left` > 0) or taking back (`left` < 0) by weight; False when it changed nothing."""
    sign = 1 if left > 0 else -1
    amount = abs(left)
    limits = [claim.maximum if left > 0 else claim.required for claim in claims]
    eligible = [i for i, size in enumerate(sizes) if (limits[i] - size) * sign > 0]
    weights = sum(claims[i].weight for i in eligible)
    remaining = amount
    for i in eligible:
        fair = -(-amount * claims[i].weight // weights)
        step = min(remaining, fair, abs(limits[i] - sizes[i]))
        sizes[i] += sign * step
        remaining -= step
    return remaining != amount
