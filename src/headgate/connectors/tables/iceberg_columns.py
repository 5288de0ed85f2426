"""Finds the columns of an Iceberg table in its data files: by numbers, which stay when columns get other names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A data file: its URI, and the values of its partition by the numbers of the columns that they come from.

    A column of such a value may be missing in the file, as in tables that Spark has taken over from Hive.
    """

    uri: str
    values: Mapping[int, Any]

    @staticmethod
    def of(table: Any, file: Any) -> IcebergFile:
        """Describe a file of the library."""
        fields = table.specs()[file.spec_id].fields
        values = zip(fields, file.partition, strict=True)
        return IcebergFile(str(file.file_path), {
            field.source_id: value for field, value in values if str(field.transform) == "identity"
        })  # fmt: skip


class FileColumns:
    """The columns of one data file. `names` are the wanted ones: by the name in the table, the name in the file.

    `wanted` has the numbers of columns by their names in the table. A file that another program wrote may have no
    numbers. Then the table's name mapping has them (`mapping`, or None), and others are those of the table.
    """

    def __init__(self, columns: pa.Schema, mapping: Any, wanted: Mapping[str, int]) -> None:
        self._mapped = {} if mapping is None or any(map(_number, columns)) else dict(_mapped(mapping, ()))
        self.names = {name: in_file for in_file, name in self._names(columns, wanted, ()).items()}

    def named(self, column: pa.Array, in_file: str, wanted: pa.DataType) -> pa.Array:
        """Return the column `in_file`. Fields within it get the names that they have in the type `wanted`, so that a
        cast to this type finds them.
        """
        type_ = self._named(column.type, wanted, (in_file,))
        return column if type_ == column.type else column.view(type_)

    def _named(self, found: pa.DataType, wanted: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
        is_ = pa.types
        if is_.is_struct(found) and is_.is_struct(wanted):
            names = self._names(found, {field.name: _number(field) for field in wanted}, path)
            return pa.struct([self._named_field(field, names.get(field.name), wanted, path) for field in found])
        if is_.is_map(found) and is_.is_map(wanted):
            key = self._named(found.key_type, wanted.key_type, (*path, "key"))
            value = self._named(found.item_type, wanted.item_type, (*path, "value"))
            return pa.map_(found.key_field.with_type(key), found.item_field.with_type(value))
        if _is_list(found) and _is_list(wanted):
            element = self._named(found.value_type, wanted.value_type, (*path, "element"))
            make = pa.list_ if is_.is_list(found) else pa.large_list
            return make(found.value_field.with_type(element))
        return found

    def _named_field(self, field: pa.Field, name: str | None, wanted: pa.DataType, path: tuple[str, ...]) -> pa.Field:
        if name is None:  # the table has no such field any more, but maybe another one with its name
            return field.with_name(f"\0{field.name}")
        return field.with_name(name).with_type(self._named(field.type, wanted.field(name).type, (*path, field.name)))

    def _names(self, found: Iterable[pa.Field], wanted: Mapping[str, int], path: tuple[str, ...]) -> dict[str, str]:
        """Return the fields that are wanted: by the name in the file, the name in the table."""
        by_number = {number: name for name, number in wanted.items()}
        names = {}
        for field in found:
            number = _number(field) or self._mapped.get((*path, field.name)) or wanted.get(field.name)
            if number in by_number:
                names[field.name] = by_number[number]
        return names


def _mapped(fields: Iterable[Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the paths in files that a name mapping knows, with the numbers of their fields."""
    for field in fields:
        for name in field.names:
            if field.field_id is not None:
                yield (*path, name), field.field_id
            yield from _mapped(field.fields, (*path, name))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _number(field: pa.Field) -> int:
    """Return the number of a field, or 0. Iceberg's numbers are above 0."""
    return int((field.metadata or {}).get(_FIELD_ID, 0))
