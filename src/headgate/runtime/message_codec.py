"""Encodes the messages of the control link as JSON, and decodes them. `control_messages` has the messages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, get_args

import msgspec

from headgate.observe.metrics_snapshot import as_json
from headgate.state.checkpoint_metadata import WrittenFile
from headgate.state.shapes import is_deeper
from headgate.transport.control_link import Codec

#: The deepest nesting of lists and objects.
MAX_NESTING: Final = 100
#: The most characters of an unknown type's name in an error.
_LONGEST_NAME: Final = 80


def encode(message: object) -> bytes:
    """Encode a message, a dataclass, as a JSON object of its fields, with the class's name as `type`.

    Raises TypeError if a source or sink keeps a value that JSON cannot represent.
    """
    fields = {"type": type(message).__name__, **_fields(message)}
    if getattr(message, "has_only_metrics", False):
        with suppress(UnicodeEncodeError):  # msgspec refuses surrogates, which a file's name may contain
            return as_json(fields)
    return json.dumps(fields, default=_of_file).encode()


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def _of_file(value: object) -> dict[str, Any]:
    if isinstance(value, WrittenFile):
        return _fields(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def decode(kinds: Mapping[str, type], text: bytes) -> Any:
    """Decode a message. `kinds` holds the possible classes, by name.

    If the bytes are not a valid message, raises ValueError, which says where the fault is.
    """
    fields = _parsed(text)
    name = fields.pop("type", None) if isinstance(fields, dict) else None
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"of the type {str(name)[:_LONGEST_NAME]!r}, which does not exist")
    try:
        return msgspec.convert(fields, kinds[name])
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def _parsed(text: bytes) -> Any:
    """Parse JSON. Raises ValueError for deep nesting, with which a walk of the value could overflow the stack.

    msgspec is faster, but does not take all that `json.dumps` writes: it refuses NaN, infinite numbers, and surrogates.
    """
    try:
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError:
            value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    opened = text.count(b"[") + text.count(b"{")  # in short messages too few for deep nesting
    if opened > MAX_NESTING and is_deeper(value, MAX_NESTING):
        raise ValueError("nested too deep")
    return value


def codec_of(union: Any) -> Codec:
    """Return the codec of an end of a link. The union has the messages that this end decodes."""
    return Codec(encode, partial(decode, {kind.__name__: kind for kind in get_args(union)}))
