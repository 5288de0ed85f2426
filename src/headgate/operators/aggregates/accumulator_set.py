"""`AccumulatorSet`: the state of all aggregates of an operator.

A slot is a number that stands for one key. It stands for the same key in every aggregate.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa

from headgate.operators.aggregates.accumulators import Accumulator, CountAccumulator
from headgate.operators.aggregates.aggregates import Aggregate, Kind
from headgate.operators.aggregates.number_accumulators import (
    ExtremeAccumulator,
    FloatMeanAccumulator,
    FloatSumAccumulator,
    IntegerMeanAccumulator,
    IntegerSumAccumulator,
)
from headgate.records.canonical import Int64s, as_arrow, is_bytes, value_type

_NO_SLOTS = np.zeros(0, np.int64)


def accumulator(aggregate: Aggregate, schema: pa.Schema) -> Accumulator:
    """Return the empty state of an aggregate over columns of this schema.

    `Aggregate.output_field` has already checked the aggregate against the schema.
    """
    if (own := aggregate.own_accumulator(schema)) is not None:
        return own
    kind, name = aggregate.kind, aggregate.column
    if kind == "count" or name is None:
        return CountAccumulator()
    values = value_type(schema.field(name).type)
    if kind in ("sum", "mean"):
        return _sums(kind, name, values)
    if kind in ("stddev", "var"):
        from headgate.operators.aggregates.variance import VarianceAccumulator

        return VarianceAccumulator(root=kind == "stddev")
    wide = is_bytes(values) or (pa.types.is_decimal(values) and values.bit_width > 64)
    if kind in ("min", "max") and not wide:
        return ExtremeAccumulator(values, greatest=kind == "max")
    return _of_values(kind, values)


def _sums(kind: Kind, name: str, values: pa.DataType) -> Accumulator:
    if pa.types.is_decimal(values):
        from headgate.operators.aggregates import decimal_accumulators as decimals

        return (decimals.DecimalSumAccumulator if kind == "sum" else decimals.DecimalMeanAccumulator)(name, values)
    if kind == "sum":
        return IntegerSumAccumulator(name) if pa.types.is_integer(values) else FloatSumAccumulator()
    return IntegerMeanAccumulator() if pa.types.is_integer(values) else FloatMeanAccumulator()


def _of_values(kind: Kind, values: pa.DataType) -> Accumulator:
    from headgate.operators.aggregates import value_accumulators as accumulators

    if kind in ("first", "last"):
        return accumulators.TimedAccumulator(values, latest=kind == "last")
    if kind == "count_distinct":
        return accumulators.DistinctAccumulator(values)
    if kind == "approx_count_distinct":
        from headgate.operators.aggregates.hyper_log_log import ApproximateDistinctAccumulator

        return ApproximateDistinctAccumulator()
    if kind == "collect_list":
        return accumulators.ListAccumulator(values)
    if kind in ("min", "max"):
        return accumulators.OrderedAccumulator(values, greatest=kind == "max")
    raise ValueError(f"no accumulator keeps the state of {kind!r}")


class AccumulatorSet:
    """The accumulators of named aggregates. They find columns by position, because a stream's schema does not
    change."""

    def __init__(self, aggregates: tuple[tuple[str, Aggregate], ...], schema: pa.Schema) -> None:
        self._names = [f"{name}={aggregate}" for name, aggregate in aggregates]
        self._parts = [(aggregate.reader(schema), accumulator(aggregate, schema)) for _, aggregate in aggregates]
        #: The conditions of the aggregates, each once, and the number of each aggregate's condition, or None.
        self._conditions, self._condition_of = _conditions(aggregates, schema)
        for (_, part), condition in zip(self._parts, self._condition_of, strict=True):
            if condition is not None:
                part.allow_gaps()

    @property
    def parts(self) -> list[Accumulator]:
        """The accumulators, in the order of the aggregates."""
        return [part for _, part in self._parts]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for _, part in self._parts)

    def update(self, size: int, slots: Int64s, batch: pa.RecordBatch, times: Int64s | None) -> None:
        """Add a batch. `slots` has the slot of each row, and `times` has the event time of each row, or is None if no
        aggregate needs it.

        `size` is the number of slots that exist now. `slots` contains every slot that is new since the last call.
        """
        chosen = [rows_where(batch) for rows_where in self._conditions]
        for (read, part), condition in zip(self._parts, self._condition_of, strict=True):
            column = read(batch)
            if condition is None:
                part.update(size, slots, column, times)
                continue
            rows = chosen[condition]
            some = None if column is None else column.take(as_arrow(rows))
            part.update(size, slots.take(rows), some, None if times is None else times.take(rows))

    def absorb(self, size: int, slots: Int64s, other: AccumulatorSet, others: Int64s) -> None:
        """Add the state of another set of the same aggregates to this set.

        Slot `others[i]` of the other set is added to slot `slots[i]` of this set. The `others` are all different. For
        `size` see `update`.
        """
        for (_, part), (_, other_part) in zip(self._parts, other._parts, strict=True):
            part.absorb(size, slots, other_part, others)

    def results(self, slots: Int64s) -> list[pa.Array]:
        """Return the results of these slots, one column for each aggregate.

        Raises DataError if a result does not fit its type.
        """
        return [part.result(slots) for _, part in self._parts]

    def keep(self, slots: Int64s) -> None:
        """Keep only these slots. They become 0, 1, 2 ..."""
        for _, part in self._parts:
            part.keep(slots)

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only its `columns` may be used."""
        reader = copy.copy(self)
        reader._parts = [(read, part.frozen()) for read, part in self._parts]
        return reader

    def columns(self, slots: Int64s) -> dict[str, pa.Array]:
        """Return the whole state of these slots for a snapshot, one row for each slot.

        The name of each column begins with the name of its aggregate.
        """
        columns: dict[str, pa.Array] = {}
        for name, (_, part) in zip(self._names, self._parts, strict=True):
            for number, column in enumerate(part.columns(slots)):
                columns[f"{name}[{number}]"] = column
        return columns

    def with_exact_sums(self, table: pa.Table) -> pa.Table:
        """Return the table of a snapshot with sums of decimals in the current format.

        Earlier versions stored these sums as float64. Raises CheckpointError for a sum that does not fit its type.
        """
        from headgate.operators.aggregates.decimal_accumulators import DecimalSumAccumulator

        for name, (_, part) in zip(self._names, self._parts, strict=True):
            at = table.schema.get_field_index(f"{name}[0]")
            if isinstance(part, DecimalSumAccumulator) and at >= 0 and table.schema.types[at] == pa.float64():
                columns, end = table.columns, at + part.FLOAT_COLUMNS
                exact = part.columns_of_floats([column.combine_chunks() for column in columns[at:end]])
                names = [f"{name}[{number}]" for number in range(len(exact))]
                table = pa.table(
                    [*columns[:at], *exact, *columns[end:]],
                    [*table.column_names[:at], *names, *table.column_names[end:]],
                )
        return table

    def load(self, size: int, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        """Restore columns that `columns` returned. `slots` are new slots, all different. For `size` see `update`."""
        begin = 0
        for _, part in self._parts:
            end = begin + len(part.columns(_NO_SLOTS))
            part.load(size, slots, columns[begin:end])
            begin = end


def _conditions(
    aggregates: tuple[tuple[str, Aggregate], ...], schema: pa.Schema
) -> tuple[list[Callable[[pa.RecordBatch], Int64s]], list[int | None]]:
    """Return the functions that choose the rows of a batch, and for each aggregate the index of its function, or None
    without a condition."""
    functions: list[Callable[[pa.RecordBatch], Int64s]] = []
    numbers: dict[str, int] = {}
    found: list[int | None] = []
    for name, aggregate in aggregates:
        if aggregate.where is None:
            found.append(None)
            continue
        from headgate.operators.aggregates.where_conditions import compiled, rows_where

        text = aggregate.where_text
        if text not in numbers:
            numbers[text] = len(functions)
            functions.append(partial(rows_where, compiled(name, aggregate.where, schema)))
        found.append(numbers[text])
    return functions, found
