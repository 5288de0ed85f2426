"""The processor time of a write to keyed state, for each plain type of Arrow."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from datetime import time as day_time
from decimal import Decimal
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
    **dict.fromkeys([pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")], datetime(2024, 2, 29, 12)),
    **dict.fromkeys([pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")], datetime(2024, 2, 29, 12, tzinfo=UTC)),
    pa.time32("s"): day_time(12), pa.time64("us"): day_time(12), pa.duration("us"): timedelta(hours=12),
    pa.decimal128(10, 2): Decimal("12.25"),
}  # fmt: skip
_SLOTS: Final = 1024


def write_cost(kind: pa.DataType, writes: int) -> float:
    """Return the microseconds of processor time of an update of a `ValueState`, on average.

    The value is of the Python class that functions get for this type from their rows.
    """
    at = Current()
    state = hg.ValueState(kind).bound("state", at)
    value = pa.array([VALUES[kind]], kind)[0].as_py()
    began = time.process_time()
    for number in range(writes):
        at.slot = number % _SLOTS
        state.update(value)
    return (time.process_time() - began) / writes * 1e6
