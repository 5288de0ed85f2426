"""Checks of what the user writes, at the call that writes it; each failure is a PlanError that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.records.arrow import plain_schema

#: As in Flink, the most subtasks one operator can have: there are never more key groups.
MAX_PARALLELISM = 32768


def check_columns(where: str, columns: Iterable[object], schema: pa.Schema) -> tuple[str, ...]:
    """The columns, once all of them are known to be in `schema` and different from each other."""
    names = []
    for column in columns:
        if not isinstance(column, str):
            how = "; name them one by one: ('a', 'b')" if isinstance(column, list | tuple) else ""
            raise PlanError(f"{where}: columns are named by strings, not by {column!r}{how}")
        if column not in schema.names:
            raise PlanError(f"{where}: there is no column {column!r}; the columns are {listed(schema.names)}")
        if column in names:
            raise PlanError(f"{where}: column {column!r} is named twice")
        names.append(column)
    return tuple(names)


def check_named(where: str, unnamed: Sequence[object], example: str) -> None:
    """Results are given as keywords, which name them."""
    if unnamed:
        raise PlanError(f"{where}: {unnamed[0]!s} has no name; each result is given by its name: {example}")


def check_schema(where: str, schema: object) -> pa.Schema:
    """A schema that rows can have: an Arrow schema with columns of different names, none of them ours.

    Columns with dictionaries, runs and views come as plain ones, for so their rows travel.
    """
    if not isinstance(schema, pa.Schema):
        raise PlanError(f"{where}: schema= must be a pyarrow.Schema of the rows that come out, not {schema!r}")
    if len(schema) == 0:
        raise PlanError(f"{where}: the schema has no columns")
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise PlanError(f"{where}: the schema has two columns named {name!r}; rename one")
    check_names(where, schema.names)
    plain = plain_schema(schema)
    for field in plain:
        if "run_end_encoded<" in str(field.type) or "dictionary<" in str(field.type):
            raise PlanError(f"{where}: column {field.name!r} is {field.type}; decode what is inside it to values")
    return schema if plain.types == schema.types else plain


def as_columns(what: str, names: object) -> list[Any]:
    """Columns that are given as one name or as a list."""
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise PlanError(f"{what}={names!r} must be the name of a column, or a list of names")
    return list(names)


def check_sides(where: str, side_outputs: object) -> dict[str, pa.Schema]:
    """Schemas of side outputs by their tags."""
    if side_outputs is None:
        return {}
    if not isinstance(side_outputs, Mapping):
        raise PlanError(f"{where}: side_outputs must map tags to schemas, not {side_outputs!r}")
    return {
        check_label(f"{where}: a tag", tag): check_schema(f"{where}: side output {tag!r}", schema)
        for tag, schema in side_outputs.items()
    }


def check_names(where: str, names: Iterable[str]) -> None:
    """Names the user may give to columns."""
    if HIDDEN_COLUMN in names:
        raise PlanError(f"{where}: the column name {HIDDEN_COLUMN!r} is reserved; rename the column")


def check_expressions(where: str, expressions: Mapping[str, object]) -> None:
    """SQL strings under names that the user may give."""
    check_names(where, expressions)
    for name, text in expressions.items():
        if not isinstance(text, str):
            raise PlanError(f"{where}: {name}={text!r} must be a SQL string, for example {name}='delay + 1'")


def check_parallelism(where: str, parallelism: object, most: int | None) -> int:
    """A number of subtasks from 1 to `most` (the option `max_parallelism`)."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise PlanError(f"{where}: parallelism must be a whole number of at least 1, not {parallelism!r}")
    if parallelism > (most or MAX_PARALLELISM):
        raise PlanError(
            f"{where}: parallelism {parallelism} is above the largest, {most or MAX_PARALLELISM}; "
            "lower it, or raise the option max_parallelism"
        )
    return parallelism


def check_label(what: str, label: object) -> str:
    """A name the user gives to an operator or a job."""
    if not isinstance(label, str) or not label.strip():
        raise PlanError(f"{what} must be a string that is not empty, not {label!r}")
    return label


def listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names if name != HIDDEN_COLUMN) or "none"
