"""Checks of the user's arguments, made in the call that gets them. Each check raises a PlanError with advice.

The first argument of a check is the name of the user's call, for the error message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.records.arrow import plain_schema

#: The most subtasks of one operator. As in Flink, it is the largest number of key groups.
MAX_PARALLELISM = 32768


def check_columns(call: str, columns: Iterable[object], schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns as a tuple. Raises PlanError if a column is not in `schema` or is named twice."""
    names = []
    for column in columns:
        if not isinstance(column, str):
            hint = (
                "; give each column as an argument of its own: ('a', 'b')" if isinstance(column, list | tuple) else ""
            )
            raise PlanError(f"{call}: columns are named by strings, not by {column!r}{hint}")
        if column not in schema.names:
            raise PlanError(f"{call}: there is no column {column!r}; the columns are {listed(schema.names)}")
        if column in names:
            raise PlanError(f"{call}: column {column!r} is named twice; name it once")
        names.append(column)
    return tuple(names)


def check_named(call: str, unnamed: Sequence[object], example: str) -> None:
    """Raise PlanError for a result without a name. Users name a result when they pass it as a keyword argument."""
    if unnamed:
        raise PlanError(f"{call}: {unnamed[0]!s} has no name; give each result a name: {example}")


def check_by_name(call: str, unnamed: Sequence[object], example: str) -> None:
    """Raise PlanError for an argument that must be given by its name."""
    if unnamed:
        raise PlanError(f"{call}: give {unnamed[0]!r} by name: {example}")


def check_schema(call: str, schema: object, rows: str = "the output rows") -> pa.Schema:
    """Return the schema. Raises PlanError if it is not an Arrow schema, has no columns, or has a repeated or a reserved
    name. `rows` says in the error which rows have it.

    Columns of dictionaries, runs and views become plain columns, because tasks exchange rows in this form.
    """
    if not isinstance(schema, pa.Schema):
        raise PlanError(
            f"{call}: schema= must be a pyarrow.Schema of {rows}, for example pa.schema({{'x': pa.int64()}}), not "
            f"{schema!r}"
        )
    if len(schema) == 0:
        raise PlanError(f"{call}: the schema has no columns; rows need at least one")
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        raise PlanError(f"{call}: the schema has two columns named {twice[0]!r}; rename one")
    check_names(call, schema.names)
    plain = plain_schema(schema)
    for field in plain:
        if "run_end_encoded<" in str(field.type) or "dictionary<" in str(field.type):
            raise PlanError(f"{call}: column {field.name!r} is {field.type}; decode it to plain values")
    return schema if plain.types == schema.types else plain


def as_columns(argument: str, names: object) -> list[Any]:
    """Return column names as a list. The user may give one name or several."""
    if isinstance(names, str):
        return [names]
    if not isinstance(names, Iterable):
        raise PlanError(f"{argument}={names!r} must be the name of a column, or a list of names")
    return list(names)


def check_sides(call: str, side_outputs: object) -> dict[str, pa.Schema]:
    """Return the schemas of side outputs by tag."""
    if side_outputs is None:
        return {}
    if not isinstance(side_outputs, Mapping):
        raise PlanError(f"{call}: side_outputs must map tags to schemas, not {side_outputs!r}")
    return {
        check_label(f"{call}: a tag", tag): check_schema(f"{call}: side output {tag!r}", schema)
        for tag, schema in side_outputs.items()
    }


def check_names(call: str, names: Iterable[str]) -> None:
    """Check that the user may give these names to columns."""
    if HIDDEN_COLUMN in names:
        raise PlanError(f"{call}: the column name {HIDDEN_COLUMN!r} is reserved; rename the column")


def check_expressions(call: str, expressions: Mapping[str, object]) -> None:
    """Check that the values are SQL strings, and that no name is reserved."""
    check_names(call, expressions)
    for name, text in expressions.items():
        if not isinstance(text, str):
            raise PlanError(f"{call}: {name}={text!r} must be a SQL string, for example {name}='delay + 1'")


def check_parallelism(call: str, parallelism: object, most: int | None) -> int:
    """Return the parallelism. Raises PlanError if it is not from 1 to `most`, the option `max_parallelism` (None:
    32768)."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise PlanError(f"{call}: parallelism must be a whole number of at least 1, not {parallelism!r}")
    if parallelism > (most or MAX_PARALLELISM):
        raise PlanError(
            f"{call}: parallelism {parallelism} is above the maximum, {most or MAX_PARALLELISM}; "
            "lower the parallelism, or raise the option max_parallelism"
        )
    return parallelism


def check_label(subject: str, label: object) -> str:
    """Check a name that the user gives to an operator, a job or a side output, and return it.

    `subject` says in the error what is named. Raises PlanError for an empty name, for a value that is no string, and
    for a name with a surrogate, which names of files may have: no recording and no page could contain it.
    """
    if not isinstance(label, str) or not label.strip():
        raise PlanError(f"{subject} must be a string that is not empty, not {label!r}")
    try:
        label.encode()
    except UnicodeEncodeError:
        hint = label.encode(errors="replace").decode()
        raise PlanError(f"{subject} {label!r} has a character that UTF-8 cannot encode; use {hint!r}") from None
    return label


def listed(names: Iterable[str]) -> str:
    """Return the names of the user's columns as text, or "none"."""
    return ", ".join(repr(name) for name in names if name != HIDDEN_COLUMN) or "none"
