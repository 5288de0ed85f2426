"""Decoders: from the values of many messages to one batch, and the messages that cannot be decoded."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.compat import concat_batches
from headgate.connectors.file_sources.json_source import JsonParser, check_json_schema
from headgate.connectors.schemas import shown

#: The column of the format "raw".
RAW: Final = pa.schema({"value": pa.binary()})
_OPEN: Final = ord("{")
_LINE_END: Final = ord("\n")
_SPACES: Final = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of some messages.

    `counts` is the number of rows of each message, or None if each has one. `bad` has the numbers of the messages
    that cannot be decoded, with the reasons; these messages have no rows.
    """

    rows: pa.RecordBatch
    counts: np.ndarray | None = None
    bad: Sequence[tuple[int, str]] = ()


class MessageDecoder(ABC):
    """A decoder of one format. `schema` is that of the rows."""

    schema: pa.Schema

    @abstractmethod
    def decode(self, values: list[bytes | None]) -> Decoded:
        """Return the rows of messages with these values."""


class RawDecoder(MessageDecoder):
    """Returns the values as they are, in a column `value`."""

    schema = RAW

    def decode(self, values: list[bytes | None]) -> Decoded:
        return Decoded(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=RAW))


class JsonDecoder(MessageDecoder):
    """Decodes messages that are one JSON object each. All objects of a batch are parsed in one call."""

    def __init__(self, schema: pa.Schema) -> None:
        check_json_schema(schema)
        self.schema = schema
        self._parser = JsonParser(schema)

    def decode(self, values: list[bytes | None]) -> Decoded:
        try:
            lines: list[Any] = [*values, b""]
            text = b"\n".join(lines)  # a message without a value: TypeError
            if _are_objects(text, len(values)):
                return Decoded(self._parser.read_objects(text, len(values)))
        except (TypeError, pa.ArrowInvalid):
            pass
        return self._decode_one_by_one(values)

    def _decode_one_by_one(self, values: list[bytes | None]) -> Decoded:
        """Find the bad messages. The others become lines, and the parser finds those that do not fit the schema."""
        bad: list[tuple[int, str]] = []
        numbers, lines = [], []
        for number, value in enumerate(values):
            line, reason = _as_line(value)
            if reason:
                bad.append((number, reason))
            else:
                numbers.append(number)
                lines.append(line)
        starts = np.fromiter(accumulate(map(len, lines), initial=0), np.int64)[:-1]
        batches = []
        for batch, refused in self._parser.parse_good(b"".join(lines)):
            batches.append(batch)
            bad += [(numbers[int(np.searchsorted(starts, line.position))], line.reason) for line in refused]
        rows = concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self.schema)
        return Decoded(rows, all_but(len(values), bad), sorted(bad))


class ArrowDecoder(MessageDecoder):
    """Decodes messages that are Arrow IPC streams of any number of rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def decode(self, values: list[bytes | None]) -> Decoded:
        batches: list[pa.RecordBatch] = []
        bad: list[tuple[int, str]] = []
        counts = np.zeros(len(values), np.int64)
        for number, value in enumerate(values):
            try:
                found = self._batches(value)
            except (pa.ArrowException, OSError, ValueError) as error:
                bad.append((number, str(error)))
                continue
            counts[number] = sum(batch.num_rows for batch in found)
            batches += found
        rows = concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self.schema)
        return Decoded(rows, counts, bad)

    def _batches(self, value: bytes | None) -> list[pa.RecordBatch]:
        if value is None:
            raise ValueError("the message has no value")
        with pa.ipc.open_stream(value) as reader:
            if not reader.schema.equals(self.schema):
                raise ValueError(f"the message has ({shown(reader.schema)}), not ({shown(self.schema)})")
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
        return [pa.RecordBatch.from_arrays(batch.columns, schema=self.schema) for batch in batches]


def _are_objects(text: bytes, count: int) -> bool:
    """Return whether a text is `count` lines of UTF-8, each of which begins with an object."""
    characters = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(characters == _LINE_END)
    if not count or len(ends) != count or text[0] != _OPEN or (characters[ends[:-1] + 1] != _OPEN).any():
        return False
    return text.isascii() or _is_utf8(text)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_line(value: bytes | None) -> tuple[bytes, str]:
    """Return a message's value as a line for the parser, and the reason why it is bad, or "" if it is good."""
    if value is None:
        return b"", "the message has no value"
    if b"\n" not in value and b"\r" not in value:
        return (value + b"\n", "") if value.lstrip(_SPACES).startswith(b"{") else (b"", "it is not a JSON object")
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError) as error:
        return b"", f"JSON parse error: {error}"
    if not isinstance(parsed, dict):
        return b"", "it is not a JSON object"
    return value.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n", ""  # outside of strings: JSON has none within


def all_but(count: int, bad: Sequence[tuple[int, str]]) -> np.ndarray | None:
    """Return the number of rows of each message: 1, or 0 for a bad one. Return None if no message is bad."""
    if not bad:
        return None
    counts = np.ones(count, np.int64)
    counts[[number for number, _ in bad]] = 0
    return counts
