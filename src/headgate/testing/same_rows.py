"""Comparing rows that have no order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

#: Rows of each kind that an error shows.
_SHOWN: Final = 10


def assert_same_rows(
    rows: Iterable[Mapping[str, Any]] | pa.Table, expected: Iterable[Mapping[str, Any]] | pa.Table
) -> None:
    """Raise AssertionError, which shows the difference, unless both have the same rows, in any order, each as often.

    Rows are dicts, or those of a table. Floats agree if nine digits do; NaN equals NaN, and 0.0 equals -0.0.

    >>> hg.testing.assert_same_rows([{"n": 1}, {"n": 2}], pa.table({"n": [2, 1]}))
    """
    found, wanted = _counted(rows), _counted(expected)
    missing, unexpected = wanted - found, found - wanted
    if missing or unexpected:
        raise AssertionError(f"the rows differ\n{_listed('missing', missing)}\n{_listed('unexpected', unexpected)}")


def _counted(rows: Iterable[Mapping[str, Any]] | pa.Table) -> Counter[Any]:
    return Counter(_canonical(row) for row in (rows.to_pylist() if isinstance(rows, pa.Table) else rows))


def _canonical(value: Any) -> Any:
    """Hashable, and equal where values count as the same."""
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value + 0.0:.9g}")
    if isinstance(value, Mapping):
        return tuple(sorted(((key, _canonical(each)) for key, each in value.items()), key=repr))
    if isinstance(value, list | tuple):
        return tuple(map(_canonical, value))
    return value


def _listed(what: str, rows: Counter[Any]) -> str:
    lines = [f"  {dict(row)}" + (f", {times} times" if times > 1 else "") for row, times in rows.items()]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([f"{what}:", *(lines[:_SHOWN] or ["  none"]), *more])
