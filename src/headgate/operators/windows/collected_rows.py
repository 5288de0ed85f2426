"""`CollectedRows`: small batches of rows that wait for a window operator to add them to its state together."""

from __future__ import annotations

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.records.arrow import BatchCodec

#: Adding a batch to windows has a fixed cost, as high as that of some thousand rows. Batches of at most this many rows
#: wait for others; a longer batch would delay those after it.
SMALL_ROWS = 512
#: The most rows and bytes that wait for more, and the seconds after which the next rows end the wait, so that the
#: metrics of the state are not long out of date.
_MOST_ROWS = 2048
_MOST_BYTES = 256 << 10
_LONGEST = 0.25


class CollectedRows:
    """The rows that wait, and the least and the greatest of their event times, in microseconds.

    >>> one, two = pa.record_batch({"a": [1]}), pa.record_batch({"a": [2]})
    >>> rows = CollectedRows(one.schema)
    >>> rows.add(one, 10, 20, now=1.0), rows.add(two, 5, 5, now=1.1)
    (False, False)
    >>> rows.take()[0]["a"].to_pylist(), rows.rows
    ([1, 2], 0)
    """

    __slots__ = ("_batch_bytes", "_batches", "_since", "bytes", "first", "last", "rows")

    def __init__(self, schema: pa.Schema) -> None:
        self._batch_bytes = BatchCodec(schema).batch_bytes
        self._clear()

    def _clear(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.rows = self.bytes = self.first = self.last = 0
        self._since = 0.0

    def add(self, batch: pa.RecordBatch, first: int, last: int, now: float) -> bool:
        """Append a batch with event times from `first` to `last`. Returns whether the rows have waited long enough, or
        are enough. `now` is in seconds."""
        if self.rows:
            self.first, self.last = min(self.first, first), max(self.last, last)
        else:
            self.first, self.last, self._since = first, last, now
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += self._batch_bytes(batch)
        return self.rows >= _MOST_ROWS or self.bytes >= _MOST_BYTES or now >= self._since + _LONGEST

    def take(self) -> tuple[pa.RecordBatch, tuple[int, int]]:
        """Remove all rows. Returns them as one batch, and their least and greatest time. There must be a row."""
        batches, span = self._batches, (self.first, self.last)
        self._clear()
        return batches[0] if len(batches) == 1 else concat_batches(batches), span
