"""`TransformsRows`: the calls of a stream that make rows from rows: Python functions, conditions, SQL expressions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, TypeVar

import pyarrow as pa

from headgate.api.checks import check_expressions, check_named
from headgate.api.event_time import visible
from headgate.api.planned_rows import PlannedRows
from headgate.errors import PlanError
from headgate.operators.rows import FlatMapRows, MapBatches, MapRows, select_expressions, with_columns_expressions
from headgate.operators.side_output import SideOutput

if TYPE_CHECKING:
    from headgate.operators.operator import Operator

#: Stands for the class of streams. Its module imports this one, so this one cannot import it.
DataStream = TypeVar("DataStream")


class TransformsRows(ABC, Generic[DataStream]):
    """A stream whose rows can be changed one by one, or in batches."""

    _rows: PlannedRows

    @abstractmethod
    def _stream(self, rows: PlannedRows) -> DataStream: ...

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return visible(self._rows.schema)

    def map_batches(
        self,
        fn: Callable[[Any], Any],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
        frame: Literal["pandas", "polars"] | None = None,
    ) -> DataStream:
        """Apply a Python function to each batch of rows. This is the fast way to use Python.

        `fn` gets a RecordBatch, and returns a RecordBatch, a list of RecordBatches, or None for no rows. The returned
        batches have `schema`. Batch sizes may change from run to run, so `fn` must not depend on where batches end.
        `fn` may also return `hg.SideOutput(tag, batch)`, alone or in the list. `side_outputs` maps each tag to the
        schema of its rows, and `side_output(tag)` reads these rows.

        With `frame="pandas"` or `frame="polars"`, `fn` gets and returns DataFrames in place of RecordBatches. Columns
        may be in any order. Their values are cast to the types of `schema`; a value that does not fit its type raises
        UserFunctionError.

        >>> def halve(batch):
        ...     return batch.set_column(1, "km", pc.divide(batch["km"], 2))
        >>> trips.map_batches(halve, schema=trips.schema).collect()["km"].to_pylist()
        [3, 1, 2]
        >>> def far(df):
        ...     return df[df["km"] > 4]
        >>> trips.map_batches(far, schema=trips.schema, frame="pandas").collect()["km"].to_pylist()
        [7, 5]
        """
        operator: Callable[..., Operator] = MapBatches
        if frame is not None:
            from headgate.operators.map_frames import operator_for

            operator = operator_for(frame)
        return self._stream(self._rows.function("map_batches", operator, fn, schema, side_outputs))

    def map(
        self,
        fn: Callable[[dict[str, Any]], dict[str, Any] | SideOutput],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """Apply a Python function to each row. This is convenient, but far slower than `map_batches`.

        `fn` gets a row as a dict, and returns a row with `schema`, or `hg.SideOutput(tag, row)`. It must not change
        a dict that it has returned: return `row`, or a new dict.

        >>> trips.map(lambda row: {"m": row["km"] * 1000}, schema=pa.schema({"m": pa.int64()})).collect().to_pylist()
        [{'m': 7000}, {'m': 3000}, {'m': 5000}]
        """
        return self._stream(self._rows.function("map", MapRows, fn, schema, side_outputs))

    def flat_map(
        self,
        fn: Callable[[dict[str, Any]], Iterable[dict[str, Any] | SideOutput]],
        *,
        schema: pa.Schema,
        side_outputs: Mapping[str, pa.Schema] | None = None,
    ) -> DataStream:
        """Apply a Python function to each row; it returns any number of rows. This is far slower than `map_batches`.

        `fn` gets a row as a dict, and returns an iterable of rows with `schema` and of `hg.SideOutput(tag, row)`. It
        must not change a dict that it has returned: make a new one for each row.

        >>> trips.flat_map(lambda row: [row] * (row["km"] // 3), schema=trips.schema).collect()["km"].to_pylist()
        [7, 7, 3, 5]
        """
        return self._stream(self._rows.function("flat_map", FlatMapRows, fn, schema, side_outputs))

    def side_output(self, tag: str) -> DataStream:
        """Return the side output `tag` of the last operator, as a stream.

        Functions have the side outputs that `side_outputs` declares. Windows have the one that `late_output` declares.
        Sources of lines and of Kafka messages have one with the tag "bad". A side output without a reader drops its
        rows.

        >>> check = lambda row: row if row["km"] > 4 else hg.SideOutput("short", row)
        >>> checked = trips.map(check, schema=trips.schema, side_outputs={"short": trips.schema})
        >>> checked.side_output("short").collect().to_pylist()
        [{'city': 'Oslo', 'km': 3}]
        """
        return self._stream(self._rows.side_output(tag))

    def filter(self, condition: Any, *more: Never, rows: bool = False) -> DataStream:
        """Keep the rows for which `condition` is true; drop those where it is false or null.

        `condition` is a SQL string, a `pyarrow.compute.Expression`, or a function that gets a RecordBatch and returns a
        boolean Arrow array. With `rows=True`, it is a function that gets one row as a dict and returns True, False or
        None. Such a function is convenient, but far slower.

        >>> trips.filter("km > 4 and city is not null").collect()["km"].to_pylist()
        [7, 5]
        """
        if not isinstance(rows, bool):
            raise PlanError(f"filter: rows={rows!r} must be True or False")
        if more:
            raise PlanError('filter takes one condition; write filter("a > 1 and b > 1")')
        return self._stream(self._rows.filter(condition, by_row=rows))

    def select(self, /, *columns: str, **expressions: str) -> DataStream:
        """Keep only the given columns, and add columns that SQL expressions compute.

        >>> trips.select("city", m="km * 1000").collect(limit=1).to_pylist()
        [{'city': 'Rome', 'm': 7000}]
        """
        check_expressions("select", expressions)
        return self._stream(
            self._rows.project("select", select_expressions(visible(self._rows.schema), *columns, **expressions))
        )

    def with_columns(self, /, *unnamed: Never, **expressions: str) -> DataStream:
        """Keep all columns, and add or replace columns that SQL expressions compute.

        >>> trips.with_columns(is_long="km > 6").collect(limit=1).to_pylist()
        [{'city': 'Rome', 'km': 7, 'is_long': True}]
        """
        check_named("with_columns", unnamed, 'with_columns(total="a + b")')
        check_expressions("with_columns", expressions)
        return self._stream(
            self._rows.project("with_columns", with_columns_expressions(visible(self._rows.schema), **expressions))
        )
