"""What the oldest supported PySpark lacks, in terms of what it has; `headgate.compat` is the same for pyarrow."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

#: PySpark 3.5 has no such parameter: its timestamps are always in UTC.
_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_schema).parameters else {}
)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types of Spark's columns, timestamps in UTC. Raises errors of PySpark's, which differ by version."""
    return types.to_arrow_schema(schema, **_UTC)
