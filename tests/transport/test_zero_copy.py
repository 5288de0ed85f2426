"""Where bytes are not copied: buffers off the heap, gathered writes, reads in place, slices that are views.

What the kernel sends from files is in `test_data_link.py` and `tests/exchange/test_blocking.py`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from headgate.memory.buffer import Buffer, Piece
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.messages import DATA_BUFFER, PartitionRequest, encode, encode_buffer_response
from headgate.protocol.outgoing import Outgoing
from headgate.protocol.receiver import Receiver
from headgate.protocol.sender import Sender
from headgate.records.arrow import BatchCodec
from headgate.records.spanning import SpanningDeserializer, SpanningSerializer, serialize
from tests.exchange.link import output_parts, write_bytes
from tests.protocol.test_receiver import SIZE, Channel

SEGMENT = 4096


def address_of(piece: Piece) -> int:
    assert isinstance(piece, bytes | memoryview)
    return int(np.frombuffer(piece, np.uint8).ctypes.data)


@pytest.fixture
def memory() -> Iterator[NetworkBufferPool]:
    pool = NetworkBufferPool(8, SEGMENT, threading.Lock)
    yield pool
    pool.close()


def test_network_memory_is_an_anonymous_private_mapping_outside_the_heap(memory: NetworkBufferPool) -> None:
    segments = memory.request_exclusive(8, "test")
    address = min(address_of(segment.view) for segment in segments)
    with open("/proc/self/maps") as maps:
        found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)$", maps.read(), re.MULTILINE)
    [(rights, inode, name)] = [row[2:] for row in found if int(row[0], 16) <= address < int(row[1], 16)]
    assert rights == "rw-p"
    assert inode == "0"
    assert name == "", "no file, and not [heap]"
    memory.recycle_exclusive(segments, "test")


def test_a_gathered_write_takes_buffers_from_where_they_are(memory: NetworkBufferPool) -> None:
    """All data pieces that go to `sendmsg` are views of the segments that the task has filled."""
    partition = output_parts(memory, extra=6, cap=8).partition("out", 1, lambda: None)

    def open_view(_request: PartitionRequest, _listener: object) -> object:
        partition.subpartition(0).attach(lambda: None)
        return partition.subpartition(0)

    sender = Sender(open_view, lambda receiver: None)  # type: ignore[arg-type]
    write_bytes(partition, 0, bytes(3 * SEGMENT))
    write_bytes(partition, 0, bytes(10))
    partition.flush(0)
    run, _ = partition.subpartition(0)._queue
    assert isinstance(run, Buffer)
    assert len(run.segments) == 3
    places = [address_of(segment.view) for segment in run.segments]
    sender.receive(encode(PartitionRequest(0, 0, 0, 5, 10)))
    pieces, buffers = sender.next_frames(16)
    outgoing = Outgoing()
    outgoing.add(pieces, buffers)
    write = outgoing.next_write
    assert len(buffers) == 2
    assert len(write) == 5, "one header for all"
    assert [address_of(piece) for piece in write[1:4]] == places
    taken = len(write[0]) + SEGMENT + 100
    outgoing.written(taken)
    assert [address_of(piece) for piece in outgoing.next_write[:2]] == [places[1] + 100, places[2]], (
        "the rest is a view"
    )
    outgoing.written(outgoing.unwritten)
    partition.release()
    partition.pool.destroy()


def test_a_read_goes_straight_into_the_segment_of_its_channel() -> None:
    """Behind a header the next place to read into is memory of the channel, as large as what is still to come."""
    channel, receiver = Channel(), Receiver(SIZE)
    number = receiver.request(channel)
    header = encode_buffer_response(number, 0, 0, DATA_BUFFER, SIZE)
    [staging] = receiver.buffers()
    staging[: len(header)] = header
    receiver.received(len(header))
    receiver.notify_channels()
    place = receiver.buffers()[0]
    assert len(place) == SIZE
    assert address_of(place) in {address_of(segment.view) for segment in channel.all}


def test_channels_of_a_broadcast_share_the_bytes_of_a_message() -> None:
    batch = pa.record_batch({"n": np.arange(1000)})
    pieces = serialize(batch, BatchCodec(batch.schema))
    one, other = SpanningSerializer(pieces), SpanningSerializer(pieces)
    assert one._pieces[1].obj is other._pieces[1].obj is pieces[1].obj
    half = memoryview(bytearray(3 * SEGMENT // 4))
    one._pieces.popleft()
    assert one.fill([half]) == len(half)
    assert address_of(one._pieces[0]) == address_of(pieces[1]) + len(half), "what is left is a view, too"


def test_a_batch_is_decoded_where_its_message_was_gathered() -> None:
    batch = pa.record_batch({"n": np.arange(10_000)})
    gathered: list[pa.Buffer] = []

    class Memory:
        def allocate(self, size: int) -> pa.Buffer:
            gathered.append(pa.allocate_buffer(size))
            return gathered[-1]

        def complete(self, message: pa.Buffer) -> None: ...

    stream = b"".join(map(bytes, serialize(batch, BatchCodec(batch.schema))))
    [decoded] = SpanningDeserializer(BatchCodec(batch.schema), Memory()).feed([memoryview(stream)])
    assert isinstance(decoded, pa.RecordBatch)
    values, [message] = decoded.column(0).buffers()[1], gathered
    assert message.address <= values.address
    assert values.address + values.size <= message.address + message.size
    assert decoded.slice(5, 10).column(0).buffers()[1].address == values.address, "a slice is a view"
