"""The form in which error messages show a schema."""

from __future__ import annotations

import pyarrow as pa


def shown(schema: pa.Schema) -> str:
    """Return the columns as one line, such as `carrier string, delay double`."""
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
