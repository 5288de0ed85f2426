"""Main module of a process that decodes damaged messages: whatever it is given, it must raise, and never crash."""

from __future__ import annotations

import random
import sys

import pyarrow as pa
import xxhash

from headgate.errors import ExchangeError
from headgate.records.arrow import BatchCodec
from headgate.records.spanning import SpanningDeserializer, serialize

BATCH = pa.record_batch(
    {
        "n": pa.array([1, None, 3] * 5),
        "s": pa.array(["a", None, "longer than others"] * 5),
        "l": pa.array([[1, 2], None, []] * 5),
        "m": pa.array([[("k", {"x": 1.5})], None, []] * 5, pa.map_(pa.string(), pa.struct({"x": pa.float64()}))),
    }
)
CODEC, PARANOID = BatchCodec(BATCH.schema), BatchCodec(BATCH.schema, paranoid=True)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut off, doubled or put elsewhere."""
    body = bytearray(data)
    at = chance.randrange(len(body))
    match chance.randrange(4):
        case 0:
            for _ in range(chance.randint(1, 8)):
                body[chance.randrange(len(body))] ^= chance.randint(1, 255)
        case 1:
            del body[at:]
        case 2:
            body[at:at] = body[: chance.randint(1, 64)]
        case 3:
            body[at : at + 8] = chance.randbytes(8)
    return bytes(body)


def main() -> None:
    chance = random.Random(int(sys.argv[1]))
    checksum, message = CODEC.encode(BATCH)
    stream = b"".join(map(bytes, serialize(BATCH, CODEC)))
    refused = 0
    for _ in range(int(sys.argv[2])):
        damaged = mutated(bytes(message), chance)
        if damaged == bytes(message):
            continue
        try:  # the checksum tells
            CODEC.decode(checksum, pa.py_buffer(damaged))
            sys.exit("damage was not found")
        except ExchangeError:
            refused += 1
        try:  # a checksum that fits: what is decoded must be whole
            PARANOID.decode(xxhash.xxh3_64_digest(damaged), pa.py_buffer(damaged)).to_pylist()
        except ExchangeError:
            refused += 1
        except (UnicodeDecodeError, OverflowError):  # values that Python cannot show
            pass
        try:  # lengths and tags
            SpanningDeserializer(CODEC).feed([memoryview(mutated(stream, chance))])
        except ExchangeError:
            refused += 1
    print(refused)


if __name__ == "__main__":
    main()
