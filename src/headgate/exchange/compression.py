"""LZ4 for single buffers of blocking partitions: `raw size u32 | block`."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer, recycle_all

_RAW_SIZE: Final = struct.Struct(">I")
#: The largest segment there is; a block that claims to be more is damaged.
_MAX_RAW_SIZE: Final = 1 << 20
_CODEC: Final = pa.Codec("lz4_raw")


def compressed(data: memoryview) -> bytes | None:
    """The bytes that stand for `data`; None when they are not fewer."""
    block: bytes = _CODEC.compress(data, asbytes=True)
    return _RAW_SIZE.pack(len(data)) + block if _RAW_SIZE.size + len(block) < len(data) else None


def decompressed(buffer: Buffer) -> Buffer:
    """The data of a compressed buffer, in memory of its own; gives up the reference. Raises ExchangeError when they are
    damaged."""
    try:
        view = buffer.view
        raw_size = _RAW_SIZE.unpack_from(view)[0] if len(view) >= _RAW_SIZE.size else 0
        if not 0 < raw_size <= _MAX_RAW_SIZE:
            raise ExchangeError(f"stream corrupted: a compressed buffer of {raw_size} bytes")
        return Buffer.of_bytes(_CODEC.decompress(view[_RAW_SIZE.size :], raw_size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ExchangeError(f"stream corrupted: a compressed buffer cannot be read: {error}") from error
    finally:
        buffer.recycle()


def all_decompressed(buffers: list[Buffer]) -> list[Buffer]:
    """The buffers, with their data in place of compressed ones. Raises ExchangeError; then all are given up."""
    for at, buffer in enumerate(buffers):
        if buffer.is_compressed:
            try:
                buffers[at] = decompressed(buffer)
            except ExchangeError:
                recycle_all(buffers[:at] + buffers[at + 1 :])
                raise
    return buffers
