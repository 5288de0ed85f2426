"""Compress single buffers of blocking partitions with LZ4. A compressed buffer is `raw size u32 | block`."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer, recycle_all

_RAW_SIZE: Final = struct.Struct(">I")
#: The largest segment, in bytes. A block with a larger raw size is damaged.
_MAX_RAW_SIZE: Final = 1 << 20
_CODEC: Final = pa.Codec("lz4_raw")


def compressed(data: memoryview) -> bytes | None:
    """Return `data` compressed, or None when the result is not smaller."""
    block: bytes = _CODEC.compress(data, asbytes=True)
    return _RAW_SIZE.pack(len(data)) + block if _RAW_SIZE.size + len(block) < len(data) else None


def decompressed(buffer: Buffer) -> Buffer:
    """Decompress a buffer into new memory and recycle it. Raises ExchangeError for damaged data."""
    try:
        view = buffer.view
        raw_size = _RAW_SIZE.unpack_from(view)[0] if len(view) >= _RAW_SIZE.size else 0
        if not 0 < raw_size <= _MAX_RAW_SIZE:
            raise ExchangeError(
                f"stream corrupted: a compressed buffer of {raw_size} bytes, where 1 to {_MAX_RAW_SIZE} are possible"
            )
        return Buffer.of_bytes(_CODEC.decompress(view[_RAW_SIZE.size :], raw_size, asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise ExchangeError(f"stream corrupted: a compressed buffer cannot be read: {error}") from error
    finally:
        buffer.recycle()


def all_decompressed(buffers: list[Buffer]) -> list[Buffer]:
    """Decompress the compressed buffers of a list in place, and return the list.

    Raises ExchangeError for damaged data, and then recycles all buffers.
    """
    for at, buffer in enumerate(buffers):
        if buffer.is_compressed:
            try:
                buffers[at] = decompressed(buffer)
            except ExchangeError:
                recycle_all(buffers[:at] + buffers[at + 1 :])
                raise
    return buffers
