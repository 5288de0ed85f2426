"""Replacements for functions that the oldest supported PySpark lacks (see `headgate.compat` for pyarrow)."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

#: PySpark 3.5 lacks this parameter: its timestamps are always in UTC.
_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_schema).parameters else {}
)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types of Spark's columns, with timestamps in UTC.

    Raises errors of PySpark, whose classes differ by version.
    """
    return types.to_arrow_schema(schema, **_UTC)
