"""Encoders: from a batch of rows to a batch of messages, with the columns value, key, headers and timestamp."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.json_text import check_json_types, json_texts
from headgate.connectors.schemas import shown
from headgate.errors import ConfigError, PlanError, SinkError

#: The most bytes of a message of several rows in the format "arrow". A broker takes at most 1 MiB by default.
_MOST_ARROW_BYTES: Final = 900_000
#: How full such messages are at first. Streams have more bytes than their rows, and rows are larger than the average.
_ARROW_SHARE: Final = 5 / 9
_VALUE: Final = "value"
#: The type of a column of headers, as the source has it.
HEADERS: Final = pa.list_(pa.struct({"name": pa.string(), "value": pa.binary()}))


class MessageEncoder(ABC):
    """An encoder of one format."""

    @abstractmethod
    def check(self, schema: pa.Schema) -> None:
        """Raise PlanError for rows that the format cannot hold."""

    @abstractmethod
    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values of the messages of a batch, as text or binary."""

    def limit(self, largest: int) -> None:
        """Make values of at most so many bytes, if the format can divide rows among messages."""


class JsonEncoder(MessageEncoder):
    """Makes a JSON object of each row."""

    def check(self, schema: pa.Schema) -> None:
        check_json_types(schema)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        return json_texts(batch)


class RawEncoder(MessageEncoder):
    """Takes the column `value`. A null is a message without a value: a tombstone in a compacted topic."""

    def check(self, schema: pa.Schema) -> None:
        if schema.names != [_VALUE] or not _is_bytes(schema.field(_VALUE).type):
            raise PlanError(
                f"kafka: format='raw' takes a column {_VALUE!r} of text or binary, and those of key=, headers= and "
                f"timestamp=; besides these, the rows have ({shown(schema)})"
            )

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        return batch.column(0)


class ArrowEncoder(MessageEncoder):
    """Makes an Arrow IPC stream of the rows of a batch, or several streams if it is large."""

    def __init__(self) -> None:
        self._most = _MOST_ARROW_BYTES

    def check(self, schema: pa.Schema) -> None: ...

    def limit(self, largest: int) -> None:
        self._most = min(_MOST_ARROW_BYTES, largest)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        rows = max(1, int(batch.num_rows * self._most * _ARROW_SHARE / max(1, batch.nbytes)))
        slices = (batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows))
        return pa.array([stream for each in slices for stream in _streams(each, self._most)], pa.binary())


class Messages:
    """Makes messages of the rows of a batch: values, and keys, headers and timestamps from columns that the user names.

    The key's column is also in the value, except in the format "raw". The columns of headers and timestamp never are: a
    Kafka message has places of its own for them.
    """

    def __init__(self, encoder: MessageEncoder, key: str | None, headers: str | None, timestamp: str | None) -> None:
        if isinstance(encoder, ArrowEncoder) and (key or headers or timestamp):
            raise ConfigError(
                "kafka: a message of format='arrow' has many rows, so it has no key=, headers=, timestamp="
            )
        self._encoder = encoder
        self.key, self._headers, self._timestamp = key, headers, timestamp
        self._left_out = {headers, timestamp} | ({key} if isinstance(encoder, RawEncoder) else set())

    def check(self, schema: pa.Schema) -> None:
        """Raise PlanError for rows that cannot become messages."""
        for name, argument, fits in (
            (self.key, "key", _is_key),
            (self._headers, "headers", _is_headers),
            (self._timestamp, "timestamp", pa.types.is_timestamp),
        ):
            if name is None:
                continue
            if name not in schema.names:
                raise PlanError(f"kafka: {argument}={name!r} is no column; the rows have ({shown(schema)})")
            type_ = schema.field(name).type
            if not fits(type_):
                raise PlanError(f"kafka: {argument}={name!r} is {type_}; {_NEEDED[argument]}")
        self._encoder.check(pa.schema([field for field in schema if field.name not in self._left_out]))

    def limit(self, largest: int) -> None:
        """Make messages whose values have at most so many bytes, if the format can do so."""
        self._encoder.limit(largest)

    @property
    def schema(self) -> pa.Schema:
        """The columns of encoded messages. Their names are those of the arguments of `Producer.produce`."""
        columns = {"value": pa.binary()}
        if self.key is not None:
            columns["key"] = pa.binary()
        if self._timestamp is not None:
            columns["timestamp"] = pa.int64()
        if self._headers is not None:
            columns["headers"] = HEADERS
        return pa.schema(columns)

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of a batch of rows. A timestamp is in milliseconds; 0 is the time of producing."""
        kept = [name for name in batch.schema.names if name not in self._left_out]
        columns = [pc.cast(self._encoder.values(batch.select(kept)), pa.binary())]
        if self.key is not None:
            columns.append(_as_bytes(batch.column(self.key)))
        if self._timestamp is not None:
            times = batch.column(self._timestamp).cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
            columns.append(times.fill_null(0))
        if self._headers is not None:
            columns.append(_checked_headers(batch.column(self._headers)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


_NEEDED: Final = {
    "key": "it must be text, binary or a whole number",
    "headers": "it must be a list of structs of name (text) and value (binary)",
    "timestamp": "it must be a timestamp",
}


def _checked_headers(headers: pa.Array) -> pa.Array:
    """Return the headers. Raises SinkError for a header that is null, or whose name is."""
    names, _ = headers.flatten().flatten()
    if names.null_count:
        raise SinkError("kafka: a header is null, or its name is: give each header a name, or none to the message")
    return headers


def _as_bytes(column: pa.Array) -> pa.Array:
    """Return keys as Kafka gets them: texts and whole numbers as UTF-8."""
    texts = pc.cast(column, pa.string()) if pa.types.is_integer(column.type) else column
    return pc.cast(texts, pa.binary())


def _is_bytes(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(kind(type_) for kind in kinds)


def _is_key(type_: pa.DataType) -> bool:
    return _is_bytes(type_) or bool(pa.types.is_integer(type_))


def _is_headers(type_: pa.DataType) -> bool:
    return bool(type_.equals(HEADERS))


def _streams(batch: pa.RecordBatch, most: int) -> Iterator[bytes]:
    """Yield the rows as one stream, or as several of at most `most` bytes. A single row may have more."""
    stream, half = _stream(batch), batch.num_rows // 2
    halves = batch.slice(0, half), batch.slice(half)
    # A dictionary is in each stream, so halves of a batch with a large one would not be smaller.
    if len(stream) <= most or not half or sum(each.nbytes for each in halves) > 1.5 * batch.nbytes:
        yield stream
        return
    for each in halves:
        yield from _streams(each, most)


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
