"""`JoinSide`: what a join knows about the rows of one side, and the event times of these rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.errors import DataError
from headgate.operators.event_times import event_times
from headgate.records.canonical import Bools, Int64s, as_arrow, null_mask

#: Event times of joined rows are at most this far from 1970: 36,000 years.
_FARTHEST = 1 << 60


@dataclass(frozen=True, slots=True)
class JoinSide:
    """The rows of one side of a join.

    `keys` has the positions of the key columns, and `time` the event-time column with its offset in microseconds, or
    None without event time. With `null_is_late`, rows without an event time are late. With `keeps_all`, rows without a
    partner are in the result.
    """

    schema: pa.Schema
    keys: tuple[int, ...]
    time: tuple[str, int] | None
    null_is_late: bool
    keeps_all: bool

    def timed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """Return the rows that have an event time, and these times in microseconds.

        The other rows are late, or without `null_is_late` raise DataError. So do times that are too far from 1970.
        """
        assert self.time is not None
        name, offset = self.time
        column = batch.column(batch.schema.get_field_index(name))
        nulls = null_mask(column)
        if nulls is not None:
            if not self.null_is_late:
                raise DataError(
                    f"event-time column {name!r} is null in {np.count_nonzero(nulls)} of {len(nulls)} rows; filter "
                    "them out, or count them as late with hg.Watermark(..., on_null_time='late')"
                )
            batch = batch.filter(as_arrow(~nulls))
            column = batch.column(batch.schema.get_field_index(name))
        times = event_times(column, name, offset)
        if len(times) and not -_FARTHEST < times.min() <= times.max() < _FARTHEST:
            raise DataError(
                f"event-time column {name!r} has a time that is too far from 1970 for a join; filter such rows out"
            )
        return batch, times

    def has_null_key(self, batch: pa.RecordBatch) -> Bools | None:
        """Return for each row whether one of its keys is null, or None if no row has such a key."""
        masks = [mask for key in self.keys if (mask := null_mask(batch.column(key))) is not None]
        return np.logical_or.reduce(masks) if masks else None
