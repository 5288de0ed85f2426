"""Checkpoints that somebody has changed who knows all checksums."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

from tests.records.mutations import mutated
from tests.state.checkpoints import sealed

_STATE, _LENGTH = struct.Struct("<4sII"), struct.Struct("<Q")
_FLYING = struct.Struct("<4sIQ")
_ELEMENT = struct.Struct(">IB")
_CHECKSUM = 8
#: What nobody expects in place of a value.
NASTY = [
    None, True, -1, 0, 1, 1.5, 1 << 31, 1 << 53, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 70, -(1 << 70), 10**300,
    1e308, "", "..", "../../etc/passwd", "/etc/passwd", "\0", "\ud800", "x" * 10_000, "[red]", [], {}, [[]], [None],
    {"": None}, [[0, 0, 0, 0]] * 300,
]  # fmt: skip

Change = Callable[[bytes], bytes]


def forge(checkpoint: Path, suffix: str, change: Change, which: int = 0) -> None:
    """Change the largest files of a kind, and all checksums of theirs; `which` of them."""
    files = sorted(checkpoint.glob(f"*.{suffix}"), key=lambda path: (-path.stat().st_size, path.name))
    file = files[which % len(files)]
    file.write_bytes(change(file.read_bytes()))
    reseal(checkpoint)


def reseal(checkpoint: Path, change: Callable[[Any], None] = lambda body: None) -> None:
    """Metadata that fit the files."""
    body = json.loads((checkpoint / "_metadata").read_bytes())["checkpoint"]
    for vertex in body["vertices"]:
        for task in vertex["tasks"]:
            for file in (task, task.get("in_flight")):
                if file and "file" in file:
                    content = (checkpoint / file["file"]).read_bytes()
                    file["size"], file["checksum"] = len(content), xxhash.xxh3_64_hexdigest(content)
    change(body)
    (checkpoint / "_metadata").write_bytes(sealed(body))


def state_of(content: bytes) -> tuple[Any, bytes]:
    """The index of a state file, and what is behind it."""
    begin = _STATE.size + _LENGTH.size
    end = begin + _LENGTH.unpack_from(content, _STATE.size)[0]
    return json.loads(content[begin:end]), content[end:]


def state_file(index: Any, streams: bytes) -> bytes:
    text = index if isinstance(index, bytes) else json.dumps(index).encode()
    rest = _LENGTH.pack(len(text)) + text + streams
    return _STATE.pack(b"HGSS", 1, zlib.crc32(rest)) + rest


def flying_of(content: bytes) -> tuple[Any, bytes]:
    """The index of an in-flight file, and what is behind it."""
    begin = _FLYING.size
    end = begin + _FLYING.unpack_from(content)[2]
    return json.loads(content[begin:end]), content[end:]


def flying_file(index: Any, data: bytes | bytearray) -> bytes:
    text = json.dumps(index).encode()
    return _FLYING.pack(b"HGIF", 1, len(text)) + text + data


def put_nasty(value: Any, chance: random.Random) -> Any:
    """A JSON value with something nasty somewhere in it."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        return {**value, key: put_nasty(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], put_nasty(value[at], chance), *value[at + 1 :]]
    alike = [nasty for nasty in NASTY if type(nasty) is type(value)]
    return chance.choice(alike if alike and chance.random() < 0.7 else NASTY)


def random_words(data: bytes, chance: random.Random) -> bytes:
    """Some 32- or 64-bit words replaced: by what offsets, lengths and counts should never be, or any."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        size = chance.choice([4, 8])
        at = size * chance.randrange(max(1, len(changed) // size))
        if chance.random() < 0.6:  # in the tables' bodies, which are behind their schemas
            at = size * int(len(changed) // size * chance.uniform(0.5, 0.99))
        word = chance.choice(
            [b"\xff" * 8, b"\x7f" * 8, b"\0" * 7 + b"\x80", b"\xff\xff\xff\x7f" * 2, chance.randbytes(8)]
        )
        changed[at : at + size] = word[:size]
    return bytes(changed)


def in_state(chance: random.Random) -> Change:
    """A state file with a change of the index or of the tables."""

    def change(content: bytes) -> bytes:
        index, streams = state_of(content)
        kind = chance.randrange(3)
        if kind == 0 or not streams:
            return state_file(put_nasty(index, chance), streams)
        return state_file(index, mutated(streams, chance) if kind == 1 else random_words(streams, chance))

    return change


def in_flight(chance: random.Random) -> Change:
    """An in-flight file with a change of the index, or of a message, which has its checksum then."""

    def change(content: bytes) -> bytes:
        index, flying = flying_of(content)
        data = bytearray(flying)
        if chance.random() < 0.4 or not messages_in(data):
            index = put_nasty(index, chance)
        else:
            _forge_message(data, chance)
        return flying_file(index, data)

    return change


def messages_in(data: bytes | bytearray) -> list[tuple[int, int]]:
    """Where the messages of an in-flight file begin and end."""
    found, at = [], 0
    while at + _ELEMENT.size <= len(data):
        length, tag = _ELEMENT.unpack_from(data, at)
        if tag == 1:
            found.append((at + _ELEMENT.size + _CHECKSUM, at + _ELEMENT.size - 1 + length))
        at += _ELEMENT.size - 1 + length
    return found


def _forge_message(data: bytearray, chance: random.Random) -> None:
    begin, end = chance.choice(messages_in(data))
    end = min(end, len(data))
    message = random_words(bytes(data[begin:end]), chance)[: end - begin]
    data[begin:end] = message
    data[begin - _CHECKSUM : begin] = xxhash.xxh3_64_digest(message)


def _one(body: dict[str, Any], chance: random.Random) -> tuple[str, Any]:
    key = chance.choice(list(body))
    return key, body[key]


def forged(original: Path, target: Path, seed: int) -> Path:
    """A copy of a checkpoint with a change by chance."""
    chance = random.Random(seed)
    target.mkdir()
    for file in original.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    kind = chance.choice(["state", "state", "state", "in-flight", "metadata"])
    if kind == "metadata":
        reseal(target, lambda body: body.update({key: put_nasty(value, chance) for key, value in [_one(body, chance)]}))
    else:
        there = len(list(target.glob(f"*.{kind}")))
        forge(target, kind, in_state(chance) if kind == "state" else in_flight(chance), chance.randrange(there))
    return target
