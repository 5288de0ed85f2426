"""Encode record batches as Arrow IPC messages in the bodies of RECORDS elements, and decode them.

A body is the xxh3 checksum of the message (8 bytes, big-endian) and the message. The codec compares the checksum before
it decodes. Arrow trusts the offsets in a message, and corrupt offsets would crash the process instead of failing the
job.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash

from headgate.compat import cast
from headgate.errors import ExchangeError

CHECKSUM_BYTES = 8
#: The offsets of texts in Arrow's columns.
_INT32: Final = Struct("=i")
_INT64: Final = Struct("=q")


class BatchCodec:
    """The encoder and decoder for the batches of one exchange. The schema comes from the plan and is never sent.

    Dictionary and run-end encoded columns are sent as their values. `schema` is the schema of the decoded batches. With
    `paranoid` every decoded batch is fully validated.
    """

    __slots__ = ("_paranoid", "_row_bytes", "_texts", "schema")

    def __init__(self, schema: pa.Schema, *, paranoid: bool = False) -> None:
        self.schema = plain_schema(schema)
        self._paranoid = paranoid
        self._texts = [
            (index, read) for index, kind in enumerate(self.schema.types) if (read := _offset_reader(kind)) is not None
        ]
        self._row_bytes = _fixed_row_bytes(self.schema)

    def checking(self) -> BatchCodec:
        """Return a codec of the same schema that fully validates every decoded batch."""
        return BatchCodec(self.schema, paranoid=True)

    def batch_bytes(self, batch: pa.RecordBatch) -> int:
        """Return the number of bytes of a batch's rows, without validity bits.

        `nbytes` costs as much as encoding. If all columns have a fixed width or hold texts or bytes, the method uses
        the row width and the offsets of the texts instead.
        """
        if self._row_bytes is None or (self._texts and not batch.schema.equals(self.schema)):
            return int(batch.nbytes)
        size = int(batch.num_rows * self._row_bytes)
        for index, read in self._texts:
            size += _text_bytes(batch.column(index), read)
        return size

    def encode(self, batch: pa.RecordBatch) -> tuple[bytes, pa.Buffer]:
        """Return (checksum, message) of a batch. Raises ExchangeError for a batch of another schema."""
        if batch.schema is not self.schema and not batch.schema.equals(self.schema):
            plain = plain_schema(batch.schema)
            if not plain.equals(self.schema):
                raise ExchangeError(
                    f"a batch with another schema was written: {describe_difference(self.schema, plain)}"
                )
            batch = plain_batch(batch, self.schema)
        message = batch.serialize()
        return xxhash.xxh3_64_digest(message), message

    def decode(self, checksum: bytes, message: pa.Buffer) -> pa.RecordBatch:
        """Return the batch in `message`, without a copy. Raises ExchangeError for a damaged message."""
        if xxhash.xxh3_64_digest(message) != checksum:
            raise ExchangeError(
                f"checksum mismatch: a record batch of {message.size} bytes was damaged between writer and reader"
            )
        try:
            batch = pa.ipc.read_record_batch(message, self.schema)
            if self._paranoid:
                batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ExchangeError(
                f"stream corrupted: a message of {message.size} bytes is not a record batch: {error}"
            ) from error
        return batch


def _fixed_row_bytes(schema: pa.Schema) -> float | None:
    """Return the bytes of one row without the texts, if every column has a fixed width or holds texts; else None."""
    readers = ((kind, _offset_reader(kind)) for kind in schema.types)
    try:
        bits: int = sum(kind.bit_width if read is None else 8 * read.size for kind, read in readers)
        return bits / 8
    except ValueError:  # pyarrow's answer for types without a fixed width
        return None


def _offset_reader(kind: pa.DataType) -> Struct | None:
    """Return how to read an offset of a column of texts or bytes. None for other types."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _INT32
    return _INT64 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else None


def _text_bytes(column: pa.Array, offset: Struct) -> int:
    """Return the bytes of a column's texts, without their offsets."""
    if not len(column):
        return 0  # an empty column may have no offsets
    offsets, width = column.buffers()[1], offset.size
    [begin] = offset.unpack_from(offsets, column.offset * width)
    [end] = offset.unpack_from(offsets, (column.offset + len(column)) * width)
    return int(end - begin)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the batches that are sent.

    Encoded columns have the type of their values. String and binary views become large strings and large binaries. The
    schema has no metadata.
    """
    return pa.schema([_plain_column(field) for field in schema])


def is_text(type_: pa.DataType) -> bool:
    """Return whether the values of a type are texts, or bytes."""
    return any(test(type_) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def has_dictionaries(batch: pa.RecordBatch) -> bool:
    return any(map(pa.types.is_dictionary, batch.schema.types))


def plain_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch converted to `schema`, its plain schema."""
    columns = map(plain_array, batch.columns, schema.types)
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def plain_array(column: pa.Array, plain: pa.DataType) -> pa.Array:
    """Return the column converted to `plain`, the type that `plain_schema` gives it."""
    if pa.types.is_run_end_encoded(column.type):
        runs = np.searchsorted(column.run_ends, column.offset + np.arange(len(column)), side="right")
        return plain_array(column.values, plain).take(pa.array(runs))
    if pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type):
        return _list_of_view(column, plain)
    return column if column.type.equals(plain) else cast(column, plain)


def _list_of_view(column: pa.Array, plain: pa.DataType) -> pa.Array:
    """Return a list-view column converted to a list column.

    Arrow's cast makes lists with too few offsets, so this function makes the offsets. It counts a null as empty,
    because the view may give a null any size.
    """
    nulls = column.is_null()
    offsets = np.zeros(len(column) + 1, np.int64)
    np.cumsum(np.where(nulls, 0, column.sizes), out=offsets[1:])
    kind, width = (pa.LargeListArray, pa.int64()) if pa.types.is_large_list(plain) else (pa.ListArray, pa.int32())
    values = plain_array(column.flatten(), plain.value_type)
    return kind.from_arrays(pa.array(offsets, width), values, type=plain, mask=nulls)


def _plain_column(field: pa.Field) -> pa.Field:
    """Return the field of a column in the plain schema.

    A run-end encoding or a list view is decoded only if it is the whole column: Arrow cannot cast nested ones.
    """
    data_type = field.type
    if pa.types.is_run_end_encoded(data_type):
        data_type = data_type.value_type
    elif pa.types.is_list_view(data_type):
        data_type = pa.list_(data_type.value_field)
    elif pa.types.is_large_list_view(data_type):
        data_type = pa.large_list(data_type.value_field)
    return pa.field(field.name, plain_type(data_type), field.nullable)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type)).remove_metadata()


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type without dictionary encoding and views, at any depth of lists, maps and structs."""
    if pa.types.is_string_view(data_type):  # Arrow's `take` does not support views
        return pa.large_string()
    if pa.types.is_binary_view(data_type):
        return pa.large_binary()
    if pa.types.is_dictionary(data_type):
        return plain_type(data_type.value_type)
    if isinstance(data_type, pa.BaseExtensionType):
        storage = plain_type(data_type.storage_type)
        return data_type if storage.equals(data_type.storage_type) else storage
    if pa.types.is_struct(data_type):
        return pa.struct([_plain_field(child) for child in data_type])
    if pa.types.is_large_list(data_type):
        return pa.large_list(_plain_field(data_type.value_field))
    if pa.types.is_list(data_type):
        return pa.list_(_plain_field(data_type.value_field))
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_plain_field(data_type.value_field), data_type.list_size)
    if pa.types.is_map(data_type):
        return pa.map_(_plain_field(data_type.key_field), _plain_field(data_type.item_field), data_type.keys_sorted)
    return data_type


def describe_difference(expected: pa.Schema, got: pa.Schema) -> str:
    """Describe the differences of two schemas, column by column: 'column x: expected int64, got string'."""
    lines = []
    for name in dict.fromkeys([*expected.names, *got.names]):
        have = [_described(schema.field(name)) if name in schema.names else "none" for schema in (expected, got)]
        if have[0] != have[1]:
            lines.append(f"column {name}: expected {have[0]}, got {have[1]}")
    return "; ".join(lines) or f"columns in another order: expected {expected.names}, got {got.names}"


def _described(field: pa.Field) -> str:
    return f"{field.type}" if field.nullable else f"{field.type} not null"
