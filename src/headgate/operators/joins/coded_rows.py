"""`Codes` and `CodedRows`: a batch of rows in the form in which a join keeps them and looks for their partners.

Each row has a span of time, from `begin` to `end`. Two rows are partners if they have the same key and their spans
overlap. The code of a row orders rows by key and begin. Its upper half is a part of the key's hash. Its lower half is
the number of a bucket of time. Both halves are coarse. So a join first finds candidates by their codes, and then
compares keys and spans exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Bools, Int64s, UInt64s, as_arrow, same_values
from headgate.records.hashing import key_hash

#: The begins and the ends of rows. Both are the same array object if each span is a point.
Spans = tuple[Int64s, Int64s]

_HALF = np.uint64(32)
_LAST_BUCKET = (1 << 32) - 1


@dataclass(slots=True)
class Codes:
    """The codes of one join. A bucket has 2 ** `shift` microseconds; the first time is in the middle bucket. `base` is
    the number of the first bucket, or None before the first time.

    Times outside the buckets are in the first or the last one: such rows only have more candidates.
    """

    shift: int
    base: int | None = None

    def of(self, hashes: UInt64s, times: Int64s) -> UInt64s:
        """Return the code of each row, from its key's hash and a time in microseconds."""
        if self.base is None:
            self.base = (int(times[0]) >> self.shift) - (_LAST_BUCKET >> 1) if len(times) else None
        buckets = np.clip((times >> self.shift) - (self.base or 0), 0, _LAST_BUCKET)
        codes: UInt64s = (hashes >> _HALF << _HALF) | buckets.view(np.uint64)
        return codes


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRows:
    """Rows that look for partners, in the order of their codes. Row i has position `at[i]` in `rows`.

    `keys` has the positions of the key columns. No key column has a null in these rows.
    """

    rows: pa.RecordBatch
    keys: Sequence[int]
    hashes: UInt64s
    codes: UInt64s
    begins: Int64s
    ends: Int64s
    at: Int64s
    #: Whether each row has found a partner.
    matched: Bools

    @classmethod
    def of(
        cls,
        rows: pa.RecordBatch,
        keys: Sequence[int],
        spans: Spans,
        codes: Codes,
        matched: Bools | None = None,
    ) -> CodedRows:
        """Return rows with their codes. `spans` has their begins and ends. By default no row has a partner."""
        begins, ends = spans
        hashes = key_hash([rows.column(index) for index in keys])
        code = codes.of(hashes, begins)
        order = np.argsort(code)
        sorted_begins = begins.take(order)
        return cls(
            rows=rows,
            keys=keys,
            hashes=hashes.take(order),
            codes=code.take(order),
            begins=sorted_begins,
            ends=sorted_begins if ends is begins else ends.take(order),
            at=order,
            matched=np.zeros(len(order), np.bool_) if matched is None else matched.take(order),
        )

    def __len__(self) -> int:
        return len(self.codes)


class Picked(NamedTuple):
    """Rows at some positions of a batch, with the positions of the key columns."""

    rows: pa.RecordBatch
    keys: Sequence[int]
    at: Int64s


def same_keys(some: Picked, others: Picked) -> Bools:
    """Return for each pair of rows whether the keys are equal. NaN equals NaN, and -0.0 equals 0.0. No key is null."""
    same = np.ones(len(some.at), np.bool_)
    indices, other_indices = as_arrow(some.at), as_arrow(others.at)
    for mine, its in zip(some.keys, others.keys, strict=True):
        same &= same_values(some.rows.column(mine).take(indices), others.rows.column(its).take(other_indices))
    return same
