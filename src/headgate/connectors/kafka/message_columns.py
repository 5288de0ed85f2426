"""Columns that say where a message comes from, and the side output of messages that cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.connectors.kafka.message_encoders import HEADERS
from headgate.errors import ConfigError

#: The tag of the side output for messages that cannot be decoded.
BAD: Final = "bad"
#: The columns of this side output.
BAD_MESSAGES: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("error", pa.string(), nullable=False),
    ]
)


def _time(message: Any) -> int | None:
    kind, time = message.timestamp()
    return time if kind else None  # 0: the message has no timestamp


def _headers(message: Any) -> list[dict[str, Any]] | None:
    headers = message.headers()
    return None if headers is None else [{"name": name, "value": value} for name, value in headers]


#: By the kind of metadata: the column's type, and a function that gets the value from a message.
_KINDS: Final[dict[str, tuple[pa.DataType, Callable[[Any], Any]]]] = {
    "key": (pa.binary(), lambda message: message.key()),
    "timestamp": (pa.timestamp("ms", "UTC"), _time),
    "headers": (HEADERS, _headers),
    "topic": (pa.string(), lambda message: message.topic()),
    "partition": (pa.int32(), lambda message: message.partition()),
    "offset": (pa.int64(), lambda message: message.offset()),
}


class MessageColumns:
    """The columns besides the value that a user asked for: the name of a column for each kind."""

    def __init__(self, wanted: Sequence[str] | Mapping[str, str]) -> None:
        names = dict(wanted) if isinstance(wanted, Mapping) else {kind: kind for kind in wanted}
        if isinstance(wanted, str) or (unknown := [kind for kind in names if kind not in _KINDS]):
            shown = wanted if isinstance(wanted, str) else unknown[0]
            raise ConfigError(f"kafka: metadata={shown!r} is not a list of some of {', '.join(_KINDS)}")
        self._names = names

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema with these columns at its end. Raises ConfigError for a name that is there already."""
        for kind, name in self._names.items():
            if name in schema.names:
                raise ConfigError(f"kafka: there are two columns {name!r}; give metadata={{{kind!r}: 'another name'}}")
            schema = schema.append(pa.field(name, _KINDS[kind][0]))
        return schema

    def add(self, rows: pa.RecordBatch, messages: Sequence[Any], counts: np.ndarray | None, schema: pa.Schema) -> Any:
        """Return the rows with the columns. `counts` has the number of rows of each message; None means one each."""
        if not self._names:
            return rows
        columns = list(rows.columns)
        for kind in self._names:
            type_, read = _KINDS[kind]
            column = pa.array([read(message) for message in messages], type_)
            if counts is not None:
                column = column.take(pa.array(np.repeat(np.arange(len(messages)), counts)))
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def as_bad(messages: Sequence[Any], bad: Sequence[tuple[int, str]]) -> pa.RecordBatch:
    """Return the messages with these numbers as rows of `BAD_MESSAGES`, with the reasons."""
    found = [messages[number] for number, _ in bad]
    columns = [
        [message.topic() for message in found],
        [message.partition() for message in found],
        [message.offset() for message in found],
        [message.key() for message in found],
        [message.value() for message in found],
        [reason for _, reason in bad],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BAD_MESSAGES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BAD_MESSAGES)
