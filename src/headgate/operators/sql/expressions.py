"""`compile_expression` checks a SQL string against a schema. The driver calls it once, and sends the `Expression` to
tasks.

An expression means the same as in Spark SQL. `/` returns a float64, or a decimal for decimals; a division by zero
returns null. Integers are int64, and an overflow is an error. Decimals are exact. All other arithmetic is float64.
`and`, `or`, `not` are three-valued. A timestamp without a zone is UTC. All types are known when the string is compiled.
A comparison of a string with a number is a PlanError, because neither is converted to the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headgate.errors import DataError
from headgate.operators.sql.sql_eval import Column, SqlNode, as_column, columns_read

#: The name of a hidden column with each row's event time. A stream has this column if the user dropped the event-time
#: column. The user never sees it.
HIDDEN_COLUMN = "__event_time__"


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled SQL string, immutable and picklable. `text` is the string, for errors."""

    text: str
    root: SqlNode

    @property
    def type(self) -> pa.DataType:
        return self.root.type

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the expression reads."""
        return columns_read(self.root)

    @property
    def column(self) -> str | None:
        """The column whose values the expression returns unchanged, or None if it computes something."""
        return self.root.name if isinstance(self.root, Column) else None

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the expression's value for each row of `batch`. Raises DataError if an integer, a decimal or
        a time overflows."""
        try:
            value = self.root.evaluate(batch)
        except pa.ArrowInvalid as error:
            is_time = pa.types.is_temporal(self.type)
            limits = "its type" if is_time or pa.types.is_decimal(self.type) else "64 bits"
            problem = f"a value of {self.text!r} leaves the range of {limits} ({error})"
            advice = "filter such rows out" if is_time else "to calculate in float64, write 1.0D * column"
            raise DataError(f"{problem}; {advice}") from None
        return as_column(value, batch.num_rows)


def compile_expression(text: str, schema: pa.Schema) -> Expression:
    """Compile a SQL string for rows of this schema. Raises PlanError for a mistake, and shows its position."""
    # Only a driver whose job has SQL strings needs the compiler.
    from headgate.operators.sql.sql_compiler import Compiler
    from headgate.operators.sql.sql_parser import parse

    columns = [name for name in schema.names if name != HIDDEN_COLUMN]
    return Expression(text, Compiler(text, schema).node(parse(text, columns)))


def column_expression(name: str, schema: pa.Schema) -> Expression:
    """Return the expression whose value is a column of `schema`, unchanged."""
    return Expression(name, Column(name, schema.field(name).type))
