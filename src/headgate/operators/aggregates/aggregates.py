"""The aggregates that users call, such as `hg.count()` and `hg.sum("seats")`, and the types of their results."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PlanError
from headgate.operators.aggregates.accumulators import Accumulator
from headgate.operators.decimal_types import mean_type, sum_type
from headgate.operators.sql.expressions import Expression
from headgate.other_names import OtherNames
from headgate.records.canonical import check_keyable, decoded, is_bytes, value_type

Kind = Literal[
    "count",
    "sum",
    "min",
    "max",
    "mean",
    "first",
    "last",
    "count_distinct",
    "approx_count_distinct",
    "collect_list",
    "stddev",
    "var",
    "top",
    "user",
    "quantile",
]
#: A condition: a SQL string, a compiled SQL string, or a pyarrow expression. None means no condition.
Where: TypeAlias = str | Expression | pc.Expression | None
Reader = Callable[[pa.RecordBatch], pa.Array | None]
#: The results of aggregates over no rows. The result of any other aggregate is null.
_OF_NO_ROWS: Final[dict[Kind, Any]] = {"count": 0, "count_distinct": 0, "approx_count_distinct": 0, "collect_list": []}
_DISTINCT: Final = ("count_distinct", "approx_count_distinct")
_SUMS: Final = ("sum", "mean")
_SPREADS: Final = ("stddev", "var")


@dataclass(frozen=True, slots=True)
class Aggregate(OtherNames):
    """An aggregate of one column. `column` is None only for a count of rows.

    With `where`, the aggregate uses only the rows for which this condition is true.
    """

    kind: Kind
    column: str | None = None
    where: Where = None

    def output_field(self, name: str, schema: pa.Schema) -> pa.Field:
        """Return the field of the result. Raises PlanError for a missing column, or for a column of an unsuitable
        type."""
        if self.column is None:
            if self.kind != "count":
                raise PlanError(f"{name}={self.kind}() needs a column: {self.kind}('column')")
            return pa.field(name, pa.int64(), nullable=False)
        kind = value_type(self._field(name, schema).type)
        if self.kind in ("count", *_DISTINCT):
            if self.kind in _DISTINCT:
                self._check_distinct(name, kind)
            return pa.field(name, pa.int64(), nullable=False)
        if self.kind in _SUMS:
            return pa.field(name, self._sum_type(name, kind))
        if self.kind in _SPREADS:
            self._sum_type(name, kind)  # takes the same types
            return pa.field(name, pa.float64())
        if self.kind in ("min", "max") and not is_ordered(kind):
            raise self._wrong(name, kind, "numbers, times, strings, binaries and booleans")
        return pa.field(name, pa.list_(kind) if self.kind == "collect_list" else kind)

    def _field(self, name: str, schema: pa.Schema) -> pa.Field:
        indices = schema.get_all_field_indices(str(self.column))
        if not indices:
            raise PlanError(f"{name}={self}: there is no column {self.column!r}; there are: {', '.join(schema.names)}")
        if len(indices) > 1:
            raise PlanError(f"{name}={self}: there is more than one column {self.column!r}; rename them first")
        return schema.field(indices[0])

    def _sum_type(self, name: str, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_integer(kind):
            return pa.float64() if self.kind == "mean" else pa.int64()
        if pa.types.is_decimal(kind):
            return (mean_type if self.kind == "mean" else sum_type)(kind)
        if pa.types.is_floating(kind):
            return pa.float64()
        raise self._wrong(name, kind, "numbers")

    def _check_distinct(self, name: str, kind: pa.DataType) -> None:
        try:
            check_keyable(kind)
        except PlanError:
            raise self._wrong(name, kind, "numbers, times, strings, binaries and booleans") from None

    def _wrong(self, name: str, kind: pa.DataType, takes: str) -> PlanError:
        return PlanError(f"{name}={self}: column {self.column!r} is {kind}, and {self.kind} takes {takes}")

    def compiled(self, name: str, schema: pa.Schema) -> Self:
        """Return the aggregate with a compiled condition, so that tasks need not compile it. Raises PlanError for a
        wrong condition."""
        if self.where is None:
            return self
        from headgate.operators.aggregates.where_conditions import compiled

        return replace(self, where=compiled(f"aggregate: {name}", self.where, schema))

    @property
    def reads(self) -> frozenset[str] | None:
        """The columns that the aggregate reads. None: all columns, since a pyarrow Expression does not tell its
        columns."""
        if self.where is None:
            return self.inputs
        return self.inputs | self.where.columns if isinstance(self.where, Expression) else None

    @property
    def inputs(self) -> frozenset[str]:
        """The columns that the accumulator gets."""
        return frozenset() if self.column is None else frozenset([self.column])

    @property
    def where_text(self) -> str:
        """The condition as text. Different conditions have different texts, though Arrow's text of a long list leaves
        out its middle."""
        if isinstance(self.where, Expression):
            return self.where.text
        text = str(self.where)
        if "..." not in text:
            return text
        return f"{text} #{hashlib.sha256(pickle.dumps(self.where)).hexdigest()[:16]}"

    def reader(self, schema: pa.Schema) -> Reader:
        """Return the function that reads the values for the accumulator from a batch. For a count of rows, it returns
        None."""
        if self.column is None:
            return lambda batch: None
        index = schema.get_field_index(self.column)
        return lambda batch: batch.column(index)

    @property
    def of_no_rows(self) -> Any:
        """The result of no rows, as in SQL: 0 for counts, an empty list for `collect_list`, and otherwise null."""
        return _OF_NO_ROWS.get(self.kind)

    def own_accumulator(self, schema: pa.Schema) -> Accumulator | None:
        """Return the accumulator if the subclass has its own. None means the standard one for `kind`."""
        return None

    def __str__(self) -> str:
        arguments = [] if self.column is None else [repr(self.column)]
        arguments += [] if self.where is None else [f"where={self.where_text!r}"]
        return f"{self.kind}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True)
class OfColumns(Aggregate):
    """An aggregate that reads several columns, `columns`, as structs."""

    columns: tuple[str, ...] = ()

    @property
    def inputs(self) -> frozenset[str]:
        """The columns that the accumulator gets."""
        return frozenset(self.columns)

    def reader(self, schema: pa.Schema) -> Reader:
        """Return the function that reads the columns from a batch, as structs."""
        indices, names = [schema.get_field_index(name) for name in self.columns], list(self.columns)
        return lambda batch: pa.StructArray.from_arrays([decoded(batch.column(index)) for index in indices], names)


def is_ordered(kind: pa.DataType) -> bool:
    """Return whether `min` and `max` take values of this type."""
    if is_bytes(kind) or pa.types.is_decimal(kind):
        return True
    return bool(pa.types.is_primitive(kind)) and kind.bit_width <= 64


def count(column: str | None = None, *, where: Where = None) -> Aggregate:
    """Count the rows, or the non-null values of a column. The result is an int64, never null.

    `where` is a SQL string or a pyarrow Expression. The aggregate ignores the rows for which the condition is false or
    null. All other aggregates have `where`, too.

    ```python
    stream.key_by("shop").aggregate(rows=hg.count(), priced=hg.count("price"), dear=hg.count(where="price > 3"))
    ```
    """
    return Aggregate("count", column, where)


def sum(column: str, *, where: Where = None) -> Aggregate:
    """Sum the non-null values. The result is null if there are no such values.

    The sum of integers is an exact int64. The sum of floats is a float64. The sum of decimals (p, s) is an exact
    decimal (p + 10, s), as in Spark SQL. It has at most 38 digits, and for decimal256 at most 76. The job fails if a
    sum of integers or decimals does not fit its type. An intermediate sum may be larger.

    ```python
    stream.key_by("shop").aggregate(total=hg.sum("price"))
    ```
    """
    return Aggregate("sum", column, where)


def min(column: str, *, where: Where = None) -> Aggregate:
    """Find the least non-null value. The result is null if there are no such values. NaN is greater than any number.

    ```python
    stream.key_by("shop").aggregate(cheapest=hg.min("price"))
    ```
    """
    return Aggregate("min", column, where)


def max(column: str, *, where: Where = None) -> Aggregate:
    """Find the greatest non-null value. The result is null if there are no such values. NaN is greater than any number.

    ```python
    stream.key_by("shop").aggregate(dearest=hg.max("price"))
    ```
    """
    return Aggregate("max", column, where)


def mean(column: str, *, where: Where = None) -> Aggregate:
    """Compute the mean of the non-null values. The result is null if there are no such values.

    The mean of integers or floats is a float64. The mean of decimals (p, s) is a decimal (p + 4, s + 4), as in Spark
    SQL. This mean is computed exactly, and rounded half up. It has at most 38 digits, and for decimal256 at most 76.
    The job fails if the mean does not fit its type.

    ```python
    stream.key_by("shop").aggregate(usual=hg.mean("price"))
    ```
    """
    return Aggregate("mean", column, where)


def stddev(column: str, *, where: Where = None) -> Aggregate:
    """Compute the sample standard deviation of the non-null values, as a float64: the root of `var`.

    ```python
    stream.key_by("shop").aggregate(usual=hg.mean("price"), spread=hg.stddev("price"))
    ```
    """
    return Aggregate("stddev", column, where)


def var(column: str, *, where: Where = None) -> Aggregate:
    """Compute the sample variance of the non-null values, as a float64: the sum of the squared distances from the mean,
    divided by the number of values minus 1. The result is null if there are fewer than two values.

    ```python
    stream.key_by("shop").aggregate(variance=hg.var("price"))
    ```
    """
    return Aggregate("var", column, where)


def first(column: str, *, where: Where = None) -> Aggregate:
    """Take the value of the row with the least event time, even if the value is null.

    If several rows have this event time, the value of any of them may be taken.

    ```python
    stream.key_by("shop").aggregate(opening=hg.first("price"))
    ```
    """
    return Aggregate("first", column, where)


def last(column: str, *, where: Where = None) -> Aggregate:
    """Take the value of the row with the greatest event time, even if the value is null.

    If several rows have this event time, the value of any of them may be taken.

    ```python
    stream.key_by("shop").aggregate(closing=hg.last("price"))
    ```
    """
    return Aggregate("last", column, where)


def count_distinct(column: str, *, where: Where = None) -> Aggregate:
    """Count the different non-null values. All NaN are one value, and so are 0.0 and -0.0.

    ```python
    stream.key_by("shop").aggregate(customers=hg.count_distinct("customer"))
    ```
    """
    return Aggregate("count_distinct", column, where)


def approx_count_distinct(column: str, *, where: Where = None) -> Aggregate:
    """Estimate the number of different non-null values, with a standard error of 1.6 %, and less for few values.

    A group takes at most about 100 KB of memory, however many values it has. `count_distinct` keeps all values. The
    estimate is a HyperLogLog of Headgate's own: those of Python's libraries take one value in each call.

    ```python
    stream.key_by("shop").aggregate(customers=hg.approx_count_distinct("customer"))
    ```
    """
    return Aggregate("approx_count_distinct", column, where)


def collect_list(column: str, *, where: Where = None) -> Aggregate:
    """Collect all non-null values into a list, in no particular order. The list is empty if there are no such values.

    ```python
    stream.key_by("shop").aggregate(customers=hg.collect_list("customer"))
    ```
    """
    return Aggregate("collect_list", column, where)


def aggregate_fields(aggregates: tuple[tuple[str, Aggregate], ...], schema: pa.Schema) -> list[pa.Field]:
    """Return the result fields of named aggregates. Raises PlanError for no aggregates, or for an object of another
    class."""
    if not aggregates:
        raise PlanError("aggregate() needs at least one aggregate, for example rows=hg.count()")
    for name, aggregate in aggregates:
        if not isinstance(aggregate, Aggregate):
            raise PlanError(f"{name}={aggregate!r} is not an aggregate; use hg.count(), hg.sum('column') and the like")
    return [aggregate.output_field(name, schema) for name, aggregate in aggregates]


def decimal_sums(aggregates: tuple[tuple[str, Aggregate], ...], schema: pa.Schema) -> tuple[str, ...]:
    """Return the names of the aggregates that are sums or means of decimals. Earlier versions returned these as
    float64."""
    fields = zip(aggregates, aggregate_fields(aggregates, schema), strict=True)
    return tuple(name for (name, spec), field in fields if spec.kind in _SUMS and pa.types.is_decimal(field.type))


def key_fields(keys: tuple[str, ...], schema: pa.Schema) -> list[pa.Field]:
    """Return the fields of the key columns in the result. A dictionary column gets the type of its values.

    Raises PlanError for a missing column, or for a column that cannot be a key.
    """
    for key in keys:
        if schema.get_field_index(key) < 0:
            raise PlanError(f"there must be one key column {key!r}; the columns are: {', '.join(schema.names)}")
        try:
            check_keyable(schema.field(key).type)
        except PlanError as error:
            raise PlanError(f"key column {key!r}: {error.message}") from None
    return [schema.field(key).with_type(value_type(schema.field(key).type)) for key in keys]


def unique_names(fields: list[pa.Field]) -> pa.Schema:
    """Return the schema of these fields. Raises PlanError if two of them have the same name."""
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PlanError(
            f"two columns of the result would be called {twice[0]!r}; give the aggregate another name, or "
            "rename the key with select(...) before"
        )
    return pa.schema(fields)
