"""`OpenFile`: the one Parquet file of a table that a source has open, and the place up to which it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

#: Opens a file. Returns it, and the names of the columns to read.
Opened = Callable[[], tuple[pq.ParquetFile, Sequence[str]]]


class OpenFile:
    """Reads files one after the other, at most `batch_rows` rows at a time. The caller numbers the files."""

    def __init__(self, batch_rows: int) -> None:
        self.batch_rows = batch_rows
        self.parquet: pq.ParquetFile | None = None
        self._rest: Iterator[pa.RecordBatch] = iter(())
        #: The file and the row with which `_rest` begins.
        self._place = (-1, -1)

    def next(self, number: int, row: int, opened: Opened) -> pa.RecordBatch | None:
        """Return rows of file `number` from `row` on, or None at its end. `opened` opens the file if it is not open."""
        if self._place != (number, row):
            self.close()
            self.parquet, names = opened()
            self._rest = _after(self.parquet.iter_batches(self.batch_rows, columns=list(names)), row)
        batch = next(self._rest, None)
        if batch is None:
            self.close()
        else:
            self._place = (number, row + batch.num_rows)
        return batch

    def close(self) -> None:
        """Close the file that is open. The caller may then number the files anew."""
        if self.parquet is not None:
            self.parquet.close(force=True)
        self.parquet, self._rest, self._place = None, iter(()), (-1, -1)


def needed_names(names: Sequence[str], is_needed: Callable[[str], bool]) -> Sequence[str]:
    """Return the needed names of a file's columns, at least one: a batch without a column has no number of rows."""
    return [name for name in names if is_needed(name)] or names[:1]


def _after(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the first `rows` rows."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(0, rows - batch.num_rows)
