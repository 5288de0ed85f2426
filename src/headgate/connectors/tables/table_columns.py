"""How the columns of rows become those of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        elif misfit := next(_misfits(column.name, given.field(column.name).type, column.type), None):
            raise PlanError(f"{what}: {misfit}")
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


def _misfits(path: str, given: pa.DataType, wanted: pa.DataType, *, is_within: bool = False) -> Iterator[str]:
    """Yield why values of type `given` do not fit into the column `path` of type `wanted`, and what to do. With
    `is_within`, the values are within a column.

    Arrow would convert structs with other fields too: it leaves out values, and fills in nulls.
    """
    (kind, fields), (wanted_kind, wanted_fields) = _inside(given), _inside(wanted)
    if not kind or kind != wanted_kind:
        if not _fits(given, wanted) and not (is_within and _becomes(given, wanted)):
            yield f"column {path!r} is {given}, and {wanted} in the table; convert it with select"
        return
    for name, field in fields.items():
        if name in wanted_fields:
            yield from _misfits(f"{path}.{name}", field.type, wanted_fields[name].type, is_within=True)
        else:
            yield (
                f"the table has no field {f'{path}.{name}'!r}. Leave it out with select; new_columns= is not for "
                "fields within columns"
            )
    for name, field in wanted_fields.items():
        if name not in fields and not field.nullable:
            yield f"the rows have no field {f'{path}.{name}'!r}, which the table needs; add it with select"


def _inside(type_: pa.DataType) -> tuple[str, Mapping[str, pa.Field]]:
    """Return the kind of a nested type, and the fields within it by name. The kind is "" for other types."""
    if pa.types.is_struct(type_):
        return "struct", {field.name: field for field in type_}
    if pa.types.is_map(type_):
        return "map", {"key": type_.key_field, "value": type_.item_field}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return "list", {"element": type_.value_field}
    return "", {}  # also for views of lists: Arrow's cast of them loses values


def paths_of(path: str, type_: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the paths and types of the values in a column, at any depth.

    >>> dict(paths_of("stop", pa.struct({"tags": pa.list_(pa.string())})))
    {'stop.tags.element': DataType(string)}
    """
    kind, fields = _inside(type_)
    if not kind:
        yield path, type_
    for name, field in fields.items():
        yield from paths_of(f"{path}.{name}", field.type)


def _becomes(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast makes values of type `given` into type `wanted`, or fails, but loses nothing in silence.

    `select` cannot convert what is within a column, so more types fit there.
    """
    given, wanted = _plain(given), _plain(wanted)
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_floating(given) or pa.types.is_decimal(given))
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_integer(given))  # not of a decimal or a wider float, which Arrow rounds
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(given) or pa.types.is_date(given))
    return bool(pa.types.is_time(wanted) and pa.types.is_time(given))


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of type `given` fit into type `wanted`. Whole numbers always fit: the sink checks each
    value when it writes it."""
    given, wanted = _plain(given), _plain(wanted)
    if given == wanted or pa.types.is_null(given):
        return True
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(given))
    if pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(given) and given.bit_width <= wanted.bit_width)
    if pa.types.is_decimal(wanted):
        return bool(pa.types.is_integer(given) or pa.types.is_decimal(given))
    return False
