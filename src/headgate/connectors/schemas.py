"""Schemas in error messages."""

from __future__ import annotations

import pyarrow as pa


def shown(schema: pa.Schema) -> str:
    """On one line: `carrier string, delay double`."""
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
