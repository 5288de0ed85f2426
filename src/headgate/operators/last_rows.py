"""`LastRows`: the operator of `deduplicate(keep="last", final=True)`, which keeps the last row of each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.operators.deduplicate import KeepLast
from headgate.records.canonical import Int64s, value_type
from headgate.state.growable import Growable
from headgate.state.row_log import RowLog

#: The most rows that the operator emits at once.
_MOST_ROWS = 65_536
#: The operator compacts its log when it has this many rows more than twice the number of keys.
_SLACK = 1 << 16


def last_rows_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the rows that the operator emits. Dictionaries and views become their value types."""
    return pa.schema([field.with_type(value_type(field.type)) for field in schema])


class LastRows(KeepLast):
    """The operator that emits the last row of each key when the input ends.

    The last row is the one with the greatest event time. Without a `time_column`, and of rows with equal times, it is
    the one that came last. `output` has the columns to emit.
    """

    what = "deduplication that emits last rows at the end"

    def __init__(self, keys: tuple[str, ...], *, input_schema: pa.Schema, output: pa.Schema, **options: Any) -> None:
        super().__init__(keys, input_schema=input_schema, **options)
        self._output = output
        self._indices = [input_schema.get_field_index(name) for name in output.names]
        self._log = RowLog(output.types)
        #: The position of each key's row in the log.
        self._places = Growable(np.int64, -1)
        self._ended = False

    def state_bytes(self) -> int:
        return super().state_bytes() + self._log.nbytes + self._places.nbytes

    def _times_of(self, batch: pa.RecordBatch) -> Int64s:
        """Return the event times, or equal times without event time: of equal times, the row that came last is
        taken."""
        return np.zeros(batch.num_rows, np.int64) if self._time_column is None else super()._times_of(batch)

    def _pass_on(self, batch: pa.RecordBatch, slots: Int64s, rows: Int64s) -> None:
        self._keep(slots.take(rows), [batch.column(index) for index in self._indices], rows)
        if len(self._log) > 2 * len(self._places) + _SLACK:
            self._log.keep(self._places.values)
            self._places.replace(np.arange(len(self._places)))

    def _keep(self, slots: Int64s, columns: Sequence[pa.Array], rows: Int64s) -> None:
        """Keep these rows of the columns, one for each of these slots."""
        begin = self._log.append(columns, rows)
        self._places.resize(len(self._keys))
        self._places.values[slots] = np.arange(begin, begin + len(rows))

    def end_input(self) -> None:
        self._ended = True
        for begin in range(0, len(self._places), _MOST_ROWS):
            columns = self._log.take(self._places.values[begin : begin + _MOST_ROWS])
            self.emit(pa.RecordBatch.from_arrays(columns, schema=self._output))

    def _kept(self) -> int:
        """Return the number of keys in a snapshot. There are none after the input's end: a restart must not emit their
        rows again."""
        return 0 if self._ended else super()._kept()

    def _frozen_columns(self) -> Callable[[slice], dict[str, pa.Array]]:
        log, places, names = self._log.frozen(), self._places.frozen(), [f"row {name}" for name in self._output.names]
        return lambda part: dict(zip(names, log.take(places.values[part]), strict=True))

    def _load_columns(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        self._keep(slots, columns, np.arange(len(slots)))
