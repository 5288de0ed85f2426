"""Arrow types for tests, with substitutes for versions of pyarrow that lack them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def decimal32(precision: int, scale: int) -> pa.DataType:
    """Return the type, which pyarrow has since 19; before, return 128 bits of the same precision."""
    return getattr(pa, "decimal32", pa.decimal128)(precision, scale)


def decimal64(precision: int, scale: int) -> pa.DataType:
    """Return the type, which pyarrow has since 19; before, return 128 bits of the same precision."""
    return getattr(pa, "decimal64", pa.decimal128)(precision, scale)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return `pa.array(values, kind)`; older versions need help: float16 before pyarrow 21, dictionaries in 16."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).cast(kind)
    if kind == pa.float16():
        values = [None if value is None else np.float16(value) for value in values]
    return pa.array(values, kind)


def runs(ends: Sequence[int], values: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    """Values in runs that end before these rows; their ends have 32 bits unless `kind` is another type. pyarrow 16
    takes no array of them."""
    return pa.RunEndEncodedArray.from_arrays(ends, values, pa.run_end_encoded(kind or pa.int32(), values.type))


def extension(name: str, storage: pa.Array) -> dict[str, pa.Array]:
    """A column of one of pyarrow's extension types, by the type's name; nothing where it has no such type: `uuid` and
    `bool8` are new in pyarrow 18, `json_` in 19."""
    return {name: pa.ExtensionArray.from_storage(getattr(pa, name)(), storage)} if hasattr(pa, name) else {}
