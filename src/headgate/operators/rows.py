"""Operators without state: filter, select, with_columns, and users' functions on batches or on rows.

Functions on rows are far slower than functions on batches. A batch may have a hidden column with the event time of each
row; users' functions never see this column. This file also has functions that the driver calls to prepare a plan: they
compile predicates and columns, and compute the result's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import pyarrow as pa
import pyarrow.compute as pc

from headgate.compat import filter_batch
from headgate.errors import DataError, PlanError, UserFunctionError
from headgate.operators.conversion import shown
from headgate.operators.operator import (
    Operator,
    UserCode,
    call_user,
    call_user_for_each,
    check_function,
    function_name,
)
from headgate.operators.python_values import python_rows
from headgate.operators.rows_checks import (
    BATCHES,
    ONE_ROW,
    ROWS,
    Row,
    batch_of_rows,
    checked_batch,
    checked_mask,
    hinting,
    row_mask,
)
from headgate.operators.side_output import SideOutput, side_schema
from headgate.operators.sql.expressions import HIDDEN_COLUMN, Expression, column_expression, compile_expression
from headgate.operators.sql.sql_tokens import unknown_column
from headgate.records.arrow import has_dictionaries, plain_batch

if TYPE_CHECKING:
    from headgate.operators.sql.dictionaries import TextExpressions

#: About how many rows FlatMapRows collects before it emits them as a batch.
ROWS_PER_BATCH = 8192
#: A compiled SQL string, an Arrow expression, or a function from a batch to a boolean array.
Predicate: TypeAlias = Union[Expression, pc.Expression, Callable[[pa.RecordBatch], Any]]  # noqa: UP007 - untyped pc
#: The columns of a result: the name of each column, and the expression that computes it.
Columns = tuple[tuple[str, Expression], ...]


def visible(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch as users see it, without the hidden column."""
    index = batch.schema.get_field_index(HIDDEN_COLUMN)
    return batch if index < 0 else batch.remove_column(index)


def filter_predicate(condition: object, schema: pa.Schema, rows: bool = False) -> Predicate:
    """Check the condition that a user passed to `filter`, and return it as a predicate. A SQL string is compiled.

    If `rows` is true, the condition must be a function of a row. The driver calls this function. Raises PlanError for a
    wrong condition.
    """
    if rows and not callable(condition):
        raise PlanError(f"filter: rows=True is for a function of a row, not for {condition!r}; leave it out")
    if isinstance(condition, str):
        expression = _compiled("filter", condition, schema)
        if not (pa.types.is_boolean(expression.type) or pa.types.is_null(expression.type)):
            raise PlanError(f"filter: {condition!r} is {expression.type}, not a condition; compare it with something")
        return expression
    if isinstance(condition, pc.Expression):
        try:
            schema.empty_table().filter(condition)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            names = [name for name in schema.names if name != HIDDEN_COLUMN]
            raise PlanError(f"filter: {condition} does not fit the columns {', '.join(names)}: {error}") from None
        return condition
    if not callable(condition):
        of_spark = type(condition).__module__.startswith("pyspark.")
        sql = '; instead of a Column of Spark write SQL, for example filter("x > 1")' if of_spark else ""
        what = f"not {type(condition).__name__}{sql}"
        raise PlanError(
            "filter takes a SQL string, a pyarrow Expression, or a function of a row (with rows=True) or of a batch, "
            f"{what}"
        )
    check_function("filter", condition)
    return condition


def select_expressions(schema: pa.Schema, /, *columns: str, **named: str) -> Columns:
    """Return the result columns of `select("a", b="expr")`. Raises PlanError for unknown and repeated names."""
    if not columns and not named:
        raise PlanError("select needs at least one column")
    chosen: dict[str, Expression] = {}
    for name in columns:
        if not isinstance(name, str):
            raise PlanError(f"select: columns are named by strings, not by {name!r}")
        if name in chosen:
            raise PlanError(f"select: column {name!r} occurs twice")
        if name not in schema.names:
            if name == "*":
                raise PlanError('select: "*" is not a column; with_columns(total="a + b") keeps all of them')
            shown = unknown_column(name, [column for column in schema.names if column != HIDDEN_COLUMN])
            raise PlanError(f'select: {shown}; an expression needs a name: select(total="a + b")')
        chosen[name] = column_expression(name, schema)
    for name, text in named.items():
        if name in chosen:
            raise PlanError(f"select: column {name!r} occurs twice")
        chosen[name] = _compiled(f"select: {name}", text, schema)
    return tuple(chosen.items())


def with_columns_expressions(schema: pa.Schema, /, **named: str) -> Columns:
    """Return the result columns of `with_columns`: the columns of `schema`, then the new columns.

    A new column with the name of an input column replaces this column at the same position. Every expression reads the
    input's columns, not their replacements. Raises PlanError for a wrong expression.
    """
    chosen = {name: column_expression(name, schema) for name in schema.names}
    new = {name: _compiled(f"with_columns: {name}", text, schema) for name, text in named.items()}
    return tuple((chosen | new).items())


def _compiled(call: str, text: str, schema: pa.Schema) -> Expression:
    try:
        return compile_expression(text, schema)
    except PlanError as error:
        raise PlanError(f"{call}: {error.message}") from None


def result_schema(columns: Columns) -> pa.Schema:
    """Return the schema of a `Project` of these columns."""
    return pa.schema([(name, expression.type) for name, expression in columns])


def _expressions(expressions: Sequence[Expression]) -> TextExpressions:
    from headgate.operators.sql.dictionaries import TextExpressions  # few jobs need it at their first row

    return TextExpressions(expressions)


class Filter(Operator):
    """The operator that keeps the rows for which a predicate is true. Null counts as false."""

    def __init__(self, predicate: Predicate, schema: pa.Schema) -> None:
        super().__init__()
        self._predicate = predicate
        self._condition = _expressions([predicate] if isinstance(predicate, Expression) else [])
        self._schema = schema

    def process(self, batch: pa.RecordBatch) -> None:
        if isinstance(self._predicate, pc.Expression):
            try:
                self.emit(filter_batch(batch, self._predicate))
            except pa.ArrowInvalid as error:
                raise DataError(f"filter {self._predicate}: {error}") from None
            return
        mask = self._mask(batch)
        count = mask.true_count
        if count:
            kept = batch if count == batch.num_rows else batch.filter(mask)
            self.emit(plain_batch(kept, self._schema) if has_dictionaries(kept) else kept)

    def _mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        if isinstance(self._predicate, Expression):
            (mask,) = self._condition.evaluate(batch)
            return mask.cast(pa.bool_())
        with hinting(ONE_ROW, "pyarrow.lib."):
            result = call_user(self._predicate, visible(batch))
        return checked_mask(self._predicate, result, batch.num_rows)


class FilterRows(Filter):
    """A filter whose predicate takes one row as a dict and returns True, False or None.

    The filter makes one Python call per row, so it is far slower than a filter on batches.
    """

    def _mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        function = self._predicate
        assert callable(function)
        return row_mask(function, call_user_for_each(function, python_rows(visible(batch))))


class Project(Operator):
    """The operator that computes each column of its result with an expression."""

    def __init__(self, columns: Columns, schema: pa.Schema) -> None:
        super().__init__()
        self._expressions = _expressions([expression for _, expression in columns])
        self._schema = schema

    def process(self, batch: pa.RecordBatch) -> None:
        self.emit(pa.RecordBatch.from_arrays(self._expressions.evaluate(batch), schema=self._schema))


class FunctionOperator(Operator):
    """The base class of operators that call a user's function.

    The function may return SideOutputs with declared tags, alone or among its other results.
    """

    def __init__(
        self, function: Callable[..., Any], schema: pa.Schema, sides: Mapping[str, pa.Schema] | None = None
    ) -> None:
        super().__init__()
        self._function = function
        self._schema = schema
        self._sides = sides or {}


class MapBatches(FunctionOperator):
    """The operator of a function that takes a RecordBatch, and returns a RecordBatch, a list of RecordBatches, or
    None."""

    def process(self, batch: pa.RecordBatch) -> None:
        result = self._call(batch)
        if result is None:
            return
        for part in result if isinstance(result, list) else [result]:
            if isinstance(part, SideOutput):
                schema = side_schema(self._function, part, self._sides)
                self.emit_side(part.tag, self._checked(part.rows, schema))
            else:
                self.emit(self._checked(part, self._schema))

    def _call(self, batch: pa.RecordBatch) -> Any:
        """Return the function's result for a batch."""
        with hinting(BATCHES, "pyarrow.lib."):
            return call_user(self._function, visible(batch))

    def _checked(self, part: object, schema: pa.Schema) -> pa.RecordBatch:
        """Return a part of the function's result as a batch of the declared schema. Raises UserFunctionError."""
        return checked_batch(self._function, part, schema)


class MapRows(FunctionOperator):
    """The operator of a function that takes one row as a dict, and returns one row as a dict.

    It makes one Python call per row: use MapBatches where speed counts.
    """

    def process(self, batch: pa.RecordBatch) -> None:
        with hinting(ROWS, "'dict' object"):
            rows = call_user_for_each(self._function, python_rows(visible(batch)))
        self._emit_rows(rows)

    def _emit_rows(self, rows: list[object]) -> None:
        """Emit rows as batches: one for the main output, and one for each side output."""
        aside: dict[str, list[object]] = {}
        has_sides = any(issubclass(kind, SideOutput) for kind in set(map(type, rows)))
        for part in rows if has_sides else ():
            if isinstance(part, SideOutput):
                side_schema(self._function, part, self._sides)
                aside.setdefault(part.tag, []).append(part.rows)
        if aside:
            rows = [row for row in rows if not isinstance(row, SideOutput)]
        self.emit(batch_of_rows(self._function, rows, self._schema))
        for tag, side_rows in aside.items():
            self.emit_side(tag, batch_of_rows(self._function, side_rows, self._sides[tag]))


class FlatMapRows(MapRows):
    """The operator of a function that takes one row as a dict, and returns an iterable of rows.

    It makes one Python call per row, as MapRows does.
    """

    def process(self, batch: pa.RecordBatch) -> None:
        for rows in self._expanded(batch):
            self._emit_rows(rows)

    def _expanded(self, batch: pa.RecordBatch) -> Iterator[list[object]]:
        """Return the function's rows, in lists of about ROWS_PER_BATCH."""
        rest = iter(python_rows(visible(batch)))
        with hinting(ROWS, "'dict' object"):
            while rows := self._expand(rest):
                yield rows

    def _expand(self, rest: Iterator[Row]) -> list[object]:
        """Return what the function makes of the next rows: about ROWS_PER_BATCH rows, fewer or none at the end."""
        rows: list[object] = []
        with UserCode(self._function) as code:
            for row in rest:
                result: object = self._function(row)
                # For a list, the most common result, `isinstance` with Iterable takes a tenth of the time of a row.
                if type(result) is not list and (not isinstance(result, Iterable) or isinstance(result, dict | str)):
                    must = "must return an iterable of dicts (a list, or yield them)"
                    raise UserFunctionError(f"{function_name(self._function)} {must}, and returned {shown(result)}")
                rows.extend(result)  # the code of a generator runs here
                code.end_child()
                if len(rows) >= ROWS_PER_BATCH:
                    break
        return rows
