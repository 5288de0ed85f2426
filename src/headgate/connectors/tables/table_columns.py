"""How the columns of rows become those of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import pyarrow as pa

from headgate.errors import PlanError, SourceError

NewColumns = Literal["refuse", "add"]
#: What a source does with columns that the table gets while the job follows it.
ReadNewColumns = Literal["ignore", "refuse"]
_SIGNED: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


def table_columns(schema: pa.Schema) -> pa.Schema:
    """Return columns with types that tables have: signed numbers, microseconds, UTC, plain texts."""
    return pa.schema([pa.field(column.name, _plain(column.type), column.nullable) for column in schema])


def chosen_columns(what: str, table: pa.Schema, names: Sequence[str] | None) -> pa.Schema:
    """Return the columns of a source: all of the table, or those that the user names. Raises PlanError."""
    columns = table_columns(table)
    for name in names or ():
        if name not in columns.names:
            raise PlanError(f"{what}: columns= has {name!r}, but the table has: {', '.join(columns.names)}")
    return columns if names is None else pa.schema([columns.field(name) for name in names])


def new_columns_error(what: str, version: str, names: Sequence[str]) -> SourceError:
    """Return the error of a source that refuses new columns."""
    columns = f"column {names[0]!r}" if len(names) == 1 else f"columns {', '.join(map(repr, names))}"
    return SourceError(
        f"{what}: {version} has the new {columns}, which the job does not read. To leave them out, set "
        'new_columns="ignore", and columns= to those of the job, and resume. To read them, start without resume'
    )


def check_columns(what: str, schema: pa.Schema, table: pa.Schema, new_columns: NewColumns) -> pa.Schema:
    """Check that rows fit into a table. Returns the columns to add to the table. Raises PlanError."""
    given = table_columns(schema)
    added = [column for column in given if column.name not in table.names]
    if added and new_columns == "refuse":
        raise PlanError(
            f"{what}: the table has no column {added[0].name!r}; it has: {', '.join(table.names)}. Leave it out with "
            'select, or add new columns to the table with new_columns="add"'
        )
    for column in table:
        if column.name not in given.names:
            if not column.nullable:
                raise PlanError(f"{what}: the rows have no column {column.name!r}, which the table needs")
        elif not _fits(given.field(column.name).type, column.type):
            raise PlanError(
                f"{what}: column {column.name!r} is {given.field(column.name).type}, and {column.type} in the table; "
                "convert it with select"
            )
    return pa.schema([column.with_nullable(True) for column in added])


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    if pa.types.is_date64(type_):
        return pa.date32()
    if pa.types.is_large_string(type_) or type_ == pa.string_view():
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_) or type_ == pa.binary_view():
        return pa.binary()
    return _SIGNED.get(type_, type_)


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of type `given` fit into type `wanted`. Whole numbers always fit: the sink checks each
    value when it writes it."""
    wanted = _plain(wanted)
    if given == wanted or pa.types.is_null(given):
        return True
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(given))
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(given) and given.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(wanted):
        return bool(pa.types.is_integer(given) or pa.types.is_decimal(given))
    return bool(pa.types.is_nested(wanted) and pa.types.is_nested(given))
