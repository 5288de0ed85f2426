"""The processor time of a write to keyed state: of a value of each plain type of Arrow, of an element of a list, and of
an entry of a map."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from datetime import time as day_time
from decimal import Decimal
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.operators.keyed.state_base import Current

#: A value of each plain type.
VALUES: Final[dict[pa.DataType, Any]] = {
    **dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.int64()], -5),
    **dict.fromkeys([pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], 5),
    pa.float16(): np.float16(1.5), pa.float32(): 1.5, pa.float64(): 1.5, pa.bool_(): True,
    pa.string(): "a text of some words", pa.large_string(): "a text of some words", pa.binary(): b"bytes",
    pa.large_binary(): b"bytes", pa.binary(5): b"bytes", pa.date32(): date(2024, 2, 29), pa.date64(): date(2024, 2, 29),
    **{pa.timestamp(unit): datetime(2024, 2, 29, 12) for unit in ("s", "ms", "us", "ns")},
    **{pa.timestamp(unit, "UTC"): datetime(2024, 2, 29, 12, tzinfo=UTC) for unit in ("s", "ms", "us", "ns")},
    **dict.fromkeys([pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], day_time(12)),
    **{pa.duration(unit): timedelta(hours=12) for unit in ("s", "ms", "us", "ns")},
    pa.decimal128(10, 2): Decimal("12.25"), pa.decimal256(40, 2): Decimal("12.25"),
}  # fmt: skip
#: The writes to other states, of a float. The key in a map is always the same whole number.
OTHERS: Final[dict[str, Callable[[Current], Callable[[Any], None]]]] = {
    "ListState.add": lambda at: hg.ListState(pa.float64()).bound("state", at).add,
    "MapState.put": lambda at: partial(hg.MapState(pa.int64(), pa.float64()).bound("state", at).put, 7),
}
_SLOTS: Final = 1024


def write_cost(kind: pa.DataType, writes: int) -> float:
    """Return the microseconds of processor time of an update of a `ValueState`, on average.

    The value is of the Python class that functions get for this type from their rows.
    """
    at = Current()
    return _cost(hg.ValueState(kind).bound("state", at).update, pa.array([VALUES[kind]], kind)[0].as_py(), at, writes)


def other_cost(name: str, writes: int) -> float:
    """Return the microseconds of processor time of a write in `OTHERS`, on average."""
    at = Current()
    return _cost(OTHERS[name](at), 1.5, at, writes)


def _cost(write: Callable[[Any], None], value: Any, at: Current, writes: int) -> float:
    began = time.process_time()
    for number in range(writes):
        at.slot = number % _SLOTS
        write(value)
    return (time.process_time() - began) / writes * 1e6
