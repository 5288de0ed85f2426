"""Comparison of rows without regard to their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

#: How many missing rows an error shows at most, and how many unexpected rows.
_SHOWN: Final = 10


def assert_same_rows(
    rows: Iterable[Mapping[str, Any]] | pa.Table, expected: Iterable[Mapping[str, Any]] | pa.Table
) -> None:
    """Check that `rows` and `expected` have the same rows, each the same number of times, in any order.

    Rows are dicts, or those of a table. Floats are equal if nine significant digits agree; NaN equals NaN, and 0.0
    equals -0.0. Raises AssertionError, which lists the missing and the unexpected rows.

    >>> hg.testing.assert_same_rows([{"n": 1}, {"n": 2}], pa.table({"n": [2, 1]}))
    """
    actual, wanted = counted(rows), counted(expected)
    missing, unexpected = wanted - actual, actual - wanted
    if missing or unexpected:
        raise AssertionError(f"the rows differ\n{_listing('missing', missing)}\n{_listing('unexpected', unexpected)}")


def counted(rows: Iterable[Mapping[str, Any]] | pa.Table) -> Counter[Any]:
    """Return how often each row occurs. Rows that count as the same have the same key."""
    return Counter(_canonical(row) for row in (rows.to_pylist() if isinstance(rows, pa.Table) else rows))


def _canonical(value: Any) -> Any:
    """Return a hashable value that is equal for values that count as the same."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value + 0.0:.9g}")
    if isinstance(value, Mapping):
        return tuple(sorted(((key, _canonical(each)) for key, each in value.items()), key=repr))
    if isinstance(value, list | tuple):
        return tuple(map(_canonical, value))
    return value


def _listing(what: str, rows: Counter[Any]) -> str:
    lines = [f"  {dict(row)}" + (f", {times} times" if times > 1 else "") for row, times in rows.items()]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"{what}:", *(lines[:_SHOWN] or ["  none"]), *more])
