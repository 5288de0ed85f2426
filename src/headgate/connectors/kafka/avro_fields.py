"""Compares the fields within columns with those of an Avro schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

_NAMED: Final = ("record", "enum", "fixed", "error")


def misfits(avro: Any, schema: pa.Schema) -> Iterator[str]:
    """Yield what is wrong with the fields within the columns of rows that become Avro records.

    fastavro drops fields that a record does not have. It writes null for missing ones that may be null.
    """
    named = dict(_names(avro))
    for field in avro["fields"]:
        if field["name"] in schema.names:
            yield from _misfits(field["name"], schema.field(field["name"]).type, field["type"], named)


def _misfits(path: str, given: pa.DataType, avro: Any, named: Mapping[str, Any]) -> Iterator[str]:
    kinds = list(_branches(avro, named))
    if pa.types.is_dictionary(given):
        yield from _misfits(path, given.value_type, avro, named)
    elif pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given):
        items = [kind["items"] for kind in kinds if kind["type"] == "array"]
        if items:
            yield from _misfits(path, given.value_type, items, named)
    elif pa.types.is_struct(given) and not any(kind["type"] == "map" for kind in kinds):
        records = [kind["fields"] for kind in kinds if kind["type"] in ("record", "error")]
        if records:
            yield from _fields(path, given, records, named)


def _fields(path: str, given: pa.StructType, records: Sequence[Any], named: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the fields of a struct that becomes one of several records.

    A struct has the fields of all of them. Each row fits one of them.
    """
    for each in given:
        if types := [field["type"] for fields in records for field in fields if field["name"] == each.name]:
            yield from _misfits(f"{path}.{each.name}", each.type, types, named)
        else:
            yield f"a field {f'{path}.{each.name}'!r} that is none"
    names = {each.name for each in given}
    missing = [[field["name"] for field in fields if _is_needed(field, names, named)] for fields in records]
    if all(missing):
        yield f"no field {f'{path}.{missing[0][0]}'!r}"


def _is_needed(field: Any, names: set[str], named: Mapping[str, Any]) -> bool:
    """Return whether rows that have only the fields `names` lack one that is needed."""
    if field["name"] in names or "default" in field:
        return False
    return all(kind["type"] != "null" for kind in _branches(field["type"], named))


def _branches(avro: Any, named: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the types that values may have: those of a union, and those that names stand for."""
    if isinstance(avro, list):
        for each in avro:
            yield from _branches(each, named)
    elif isinstance(avro, str):
        yield named.get(avro, {"type": avro})
    elif isinstance(avro["type"], str):
        yield avro
    else:
        yield from _branches(avro["type"], named)


def _names(avro: Any) -> Iterator[tuple[str, Any]]:
    """Yield the types that a schema defines, by name."""
    if isinstance(avro, list):
        for each in avro:
            yield from _names(each)
    elif isinstance(avro, dict):
        if avro["type"] in _NAMED:
            yield avro["name"], avro
        for inner in (avro["type"], avro.get("items"), avro.get("values")):
            yield from _names(inner)
        for field in avro.get("fields", ()):
            yield from _names(field["type"])
