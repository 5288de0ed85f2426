"""Side outputs: rows that a user's function sends another way than its result, under a tag declared with a schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.errors import UserFunctionError
from headgate.operators.operator import function_name


@dataclass(frozen=True, slots=True)
class SideOutput:
    """Among what a function returns: rows for `stream.side_output(tag)` instead of the stream itself.

    `rows` is a RecordBatch in `map_batches`, one row as a dict in `map` and `flat_map`; they have the schema that
    `side_outputs={tag: schema}` declares.
    """

    tag: str
    rows: Any


def side_schema(function: Callable[..., Any], part: SideOutput, declared: Mapping[str, pa.Schema]) -> pa.Schema:
    """The schema of what goes to the side. Raises UserFunctionError for a tag that is not declared."""
    if part.tag not in declared:
        known = f"; declared are {', '.join(map(repr, declared))}" if declared else ""
        raise UserFunctionError(
            f"{function_name(function)} returned a SideOutput({part.tag!r}, ...), which side_outputs={{tag: schema}} "
            f"does not declare{known}"
        )
    return declared[part.tag]
