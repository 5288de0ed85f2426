"""Side outputs: extra outputs of a user's function, each with a tag. The user declares a schema for each tag."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.errors import UserFunctionError
from headgate.operators.operator import function_name


@dataclass(frozen=True, slots=True)
class SideOutput:
    """Rows that a function returns for a side output. `stream.side_output(tag)` has these rows; the stream does not.

    `rows` is a RecordBatch in `map_batches` (with `frame=`, a frame), and one row as a dict in `map` and `flat_map`. In
    a function of `process`, it is either. `side_outputs={tag: schema}` declares the schema of `rows`.

    >>> import headgate as hg
    >>> hg.SideOutput("refused", {"order": 7})
    SideOutput(tag='refused', rows={'order': 7})
    """

    tag: str
    rows: Any


def side_schema(function: Callable[..., Any], part: SideOutput, declared: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the declared schema of the tag of `part`. Raises UserFunctionError for an undeclared tag."""
    if part.tag not in declared:
        known = f"; declared are {', '.join(map(repr, declared))}" if declared else ""
        raise UserFunctionError(
            f"{function_name(function)} returned a SideOutput({part.tag!r}, ...), which side_outputs={{tag: schema}} "
            f"does not declare{known}"
        )
    return declared[part.tag]
