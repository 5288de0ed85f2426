"""The operators of `top`, `max_by` and `min_by`: aggregations by `TopRows` that emit rows instead of lists of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.aggregates.running_aggregate import RunningAggregate
from headgate.operators.aggregates.top_rows import TopAccumulator, TopRows
from headgate.operators.operator import Operator
from headgate.operators.windows.clock_windows import ClockSessions, ClockWindows
from headgate.operators.windows.count_window import CountWindowAggregate
from headgate.operators.windows.session_window import SessionAggregate
from headgate.operators.windows.window import WindowAggregate
from headgate.records.canonical import Int64s, as_arrow, flat_ranges

#: The name of the internal column with the lists of rows.
ROWS = "top rows"
RANK = pa.field("rank", pa.int64(), nullable=False)


def ranked_schema(lists: pa.Schema, top: TopRows) -> pa.Schema:
    """Return the schema of the emitted rows: the aggregation's other columns, the columns of a list's rows, the rank.

    Raises PlanError if two columns have the same name.
    """
    fields = [*list(lists)[:-1], *lists.field(ROWS).type.value_type, *([RANK] if top.ranked else [])]
    names = [field.name for field in fields]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PlanError(
            f"{top}: the result has columns of its own called {', '.join(map(repr, twice))}; leave yours out, or give "
            "them other names, with select(...) before"
        )
    return pa.schema(fields)


class RankedRows(Operator):
    """The part that the operators have in common. The aggregation passes lists of rows to `emit`, which emits the rows.

    `output` is the schema of the rows: the columns of `ranked_schema` in any order.
    """

    #: The schema of the aggregation, with the lists of rows.
    schema: pa.Schema

    def __init__(self, *arguments: Any, output: pa.Schema, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._output = output
        self._has_rank = len(output) == len(self.schema) + self.schema.field(ROWS).type.value_type.num_fields

    def emit(self, batch: pa.RecordBatch) -> None:
        self._emit_ranked(batch, np.ones(batch.num_rows, np.int64))

    def _emit_ranked(self, batch: pa.RecordBatch, first: Int64s) -> None:
        """Emit the rows of lists. `first` has the rank of the first row of each list."""
        *others, lists = batch.columns
        counts = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        ranks, _ = flat_ranges(first, counts)
        parents = as_arrow(np.repeat(np.arange(len(counts)), counts))
        columns = {name: column.take(parents) for name, column in zip(batch.schema.names[:-1], others, strict=True)}
        rows = lists.flatten()
        columns |= dict(zip((field.name for field in rows.type), rows.flatten(), strict=True))
        if self._has_rank:
            columns[RANK.name] = as_arrow(ranks)
        super().emit(pa.RecordBatch.from_arrays([columns[name] for name in self._output.names], schema=self._output))


class RunningTop(RankedRows, RunningAggregate):
    """The operator that emits the rows of a key after each batch that changes them, from the first changed rank on.
    See `RunningAggregate`."""

    @property
    def _top(self) -> TopAccumulator:
        [top] = self._accumulators.parts
        assert isinstance(top, TopAccumulator)
        return top

    def _changed_slots(self, slots: Int64s) -> Int64s:
        return self._top.changed

    def _emit(self, slots: Int64s) -> None:
        if self._final:
            super()._emit(slots)
            return
        columns = [*self._keys.keys(slots), self._top.changed_rows()]
        self._emit_ranked(pa.RecordBatch.from_arrays(columns, schema=self.schema), 1 + self._top.changed_from)


class TopInWindows(RankedRows, WindowAggregate):
    """The operator that emits the rows of each key and window. See `WindowAggregate`."""


class TopInSessions(RankedRows, SessionAggregate):
    """The operator that emits the rows of each session. See `SessionAggregate`."""


class TopInCountWindows(RankedRows, CountWindowAggregate):
    """The operator that emits the rows of each window by count. See `CountWindowAggregate`."""


class TopInClockWindows(RankedRows, ClockWindows):
    """The operator that emits the rows of each key and window by the clock. See `ByClock`."""


class TopInClockSessions(RankedRows, ClockSessions):
    """The operator that emits the rows of each session by the clock. See `ByClock`."""
