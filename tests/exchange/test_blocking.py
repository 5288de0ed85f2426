"""Blocking partitions: all in one nameless file, read only after the end, nothing left behind."""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import ExchangeError, SpillError
from headgate.exchange.channels import LocalInputChannel
from headgate.exchange.compression import compressed, decompressed
from headgate.exchange.partition import ResultPartition
from headgate.exchange.partition_file import FileBuffer, PartitionFile
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.network_pool import NetworkBufferPool
from headgate.records.events import EndOfData, EndOfPartition, Event
from tests.exchange.link import OneAtATime, write_bytes
from tests.exchange.test_gathering import file_size_limit
from tests.memory.conftest import CheckedLocks

SIZE = 64


def open_files(folder: Path) -> int:
    """Files in a folder that this process holds open, whether or not they have a name."""
    return sum(_target(number).startswith(str(folder)) for number in os.listdir("/proc/self/fd"))


def _target(number: str) -> str:
    """Return what a descriptor leads to; empty if another thread has closed it meanwhile."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return ""


class Output:
    """A blocking partition over as few segments as it can do with."""

    def __init__(self, folder: Path, channels: int, compress: bool) -> None:
        self.folder = folder
        self.network = NetworkBufferPool(channels + 1, SIZE, CheckedLocks())
        self.pool = self.network.create_local_pool(
            "out", required=channels + 1, maximum=channels + 1, subpartitions=channels
        )
        self.file = PartitionFile(str(folder), OneAtATime())
        self.partition = ResultPartition(
            "out",
            channels,
            pool=self.pool,
            max_buffers_per_subpartition=1,
            lock_factory=OneAtATime(),
            wake=lambda: None,
            on_settled=lambda: None,
            file=self.file,
            compress=compress,
        )
        self.written = [b""] * channels

    def write(self, channel: int, data: bytes) -> None:
        left = data
        while left:  # the disk is never full for long: each call frees the segment it has filled
            count = write_bytes(self.partition, channel, left)
            assert count, "a blocking partition does not hold the task back"
            left = left[count:]
        self.written[channel] += data

    def finish(self) -> None:
        for channel in range(len(self.written)):
            self.partition.write_event(channel, EndOfData())
            self.partition.write_event(channel, EndOfPartition())
        assert self.pool.in_use == 0

    def read(self, channel: int) -> tuple[bytes, list[Event]]:
        reader = LocalInputChannel(0, self.partition.subpartition(channel), lambda _: None, lambda _: None)
        reader.start()
        content, events, more = b"", [], True
        while more:
            item, more = reader.poll()
            if isinstance(item, list):
                assert not events
                content += b"".join(bytes(buffer.view) for buffer in item)
                recycle_all(item)
            elif item is not None:
                events.append(item)
            self.partition.subpartition(channel).validate()
        return content, events

    def close(self) -> None:
        self.partition.release()
        self.pool.destroy()
        self.network.validate()
        assert self.network.holders() == {}
        self.network.close()
        assert open_files(self.folder) == 0
        assert os.listdir(self.folder) == []


@pytest.fixture
def outputs() -> Iterator[list[Output]]:
    made: list[Output] = []
    yield made
    for output in made:
        output.close()


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_everything_comes_back_in_order(outputs: list[Output], tmp_path: Path, channels: int, compress: bool) -> None:
    outputs.append(output := Output(tmp_path, channels, compress))
    chance = random.Random(channels)
    for _ in range(100):
        part = chance.randbytes(chance.randint(1, 40)) if chance.random() < 0.5 else bytes(chance.randint(1, 300))
        output.write(chance.randrange(channels), part)
    output.finish()
    for channel in range(channels):
        assert output.read(channel) == (output.written[channel], [EndOfData(), EndOfPartition()])
    assert open_files(tmp_path) > 0
    for channel in range(channels):
        output.partition.subpartition(channel).release()
    assert output.partition.is_consumed


def test_nothing_is_read_before_the_end_and_then_once(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 1, False))
    subpartition = output.partition.subpartition(0)
    output.write(0, bytes(1000))
    with pytest.raises(ExchangeError, match="is still being written"):
        subpartition.attach(lambda: None)
    assert subpartition.is_settled, "the task waits for no reader"
    output.finish()
    notified: list[int] = []
    subpartition.attach(lambda: notified.append(1))
    assert notified == [1]
    with pytest.raises(ExchangeError, match="is being read already"):
        subpartition.attach(lambda: None)


def test_only_full_buffers_and_the_end_are_written_and_no_flush_is(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 1, False))
    output.write(0, bytes(10))
    output.partition.flush(0)
    assert output.file.size == 0
    assert output.pool.in_use == 1
    output.write(0, bytes(SIZE))
    assert output.file.size == SIZE
    assert output.pool.in_use == 1, "a segment that is in the file is free again"
    output.finish()
    assert output.file.size == 10 + SIZE


def test_an_event_needs_no_credit_and_data_do(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 1, False))
    output.write(0, bytes(3 * SIZE))
    output.finish()
    subpartition = output.partition.subpartition(0)
    subpartition.attach(lambda: None)
    assert subpartition.reported_backlog == 3
    assert subpartition.is_available(True)
    assert not subpartition.is_available(False)
    polled = subpartition.poll(10)
    assert [(each.backlog, each.is_event, each.next_is_event) for each in polled] == [
        (2, False, False), (1, False, False), (0, False, True),
    ]  # fmt: skip
    assert subpartition.is_available(False)
    for each in polled:
        each.buffer.recycle()


def test_data_are_not_copied_out_of_the_file(outputs: list[Output], tmp_path: Path) -> None:
    """For the socket a buffer is a place in the file; for a local reader a view of one mapping of it."""
    outputs.append(output := Output(tmp_path, 2, False))
    for channel in (0, 1):
        output.write(channel, bytes([65 + channel]) * 100)
    output.finish()
    mappings = set()
    for channel in (0, 1):
        output.partition.subpartition(channel).attach(lambda: None)
        for polled in output.partition.subpartition(channel).poll(2):
            buffer = polled.buffer
            assert isinstance(buffer, FileBuffer)
            assert isinstance(buffer.view.obj, mmap.mmap)
            mappings.add(id(buffer.view.obj))
            [region] = buffer.pieces
            sent = os.pread(region.descriptor, region.size, region.offset)
            assert sent == bytes(buffer.view) == bytes([65 + channel]) * buffer.size
            buffer.recycle()
    assert len(mappings) == 1


def test_a_buffer_under_way_keeps_the_file_open(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 1, False))
    output.write(0, b"abc")
    output.finish()
    subpartition = output.partition.subpartition(0)
    subpartition.attach(lambda: None)
    [polled] = subpartition.poll()
    output.partition.release()
    [region] = polled.buffer.pieces
    assert isinstance(polled.buffer, FileBuffer)
    assert os.pread(region.descriptor, 3, region.offset) == b"abc"
    polled.buffer.recycle()
    assert open_files(tmp_path) == 0
    assert subpartition.poll() == []


def test_a_release_halfway_leaves_nothing(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 2, True))
    output.write(0, bytes(1000))
    output.write(1, b"a few bytes")
    output.partition.release()
    assert open_files(tmp_path) == 0
    output.partition.write_event(0, EndOfPartition())


def test_a_full_disk_is_an_error_that_says_what_to_do(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 1, False))
    with file_size_limit(4096), pytest.raises(SpillError, match=f"a file in {tmp_path} cannot be used: .*spill_dir"):
        output.write(0, bytes(10_000))


def test_a_partition_without_a_byte_needs_no_file(outputs: list[Output], tmp_path: Path) -> None:
    outputs.append(output := Output(tmp_path, 1, True))
    output.finish()
    assert open_files(tmp_path) == 0
    assert output.read(0) == (b"", [EndOfData(), EndOfPartition()])


def test_compression_is_kept_only_where_it_makes_a_buffer_smaller() -> None:
    assert compressed(memoryview(random.Random(1).randbytes(1000))) is None
    small = compressed(memoryview(bytes(1000)))
    assert small is not None
    assert len(small) < 50
    recycled: list[int] = []
    buffer = Buffer.of_bytes(small)
    buffer._recycler = lambda *segments: recycled.extend(segment.index for segment in segments)
    assert bytes(decompressed(buffer).view) == bytes(1000)
    assert recycled == [-1]


@pytest.mark.parametrize(
    "damaged", [b"", b"\0\0\0", b"\0\0\0\0abc", b"\xff\xff\xff\xffabc", b"\0\0\0\x10abc", b"\0\0\0\x10" + b"\xff" * 30]
)
def test_damage_in_a_compressed_buffer_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ExchangeError, match="stream corrupted: a compressed buffer"):
        decompressed(Buffer.of_bytes(damaged))


def test_a_file_takes_more_pieces_than_the_kernel_does_at_once(tmp_path: Path) -> None:
    file = PartitionFile(str(tmp_path), OneAtATime())
    pieces = [number.to_bytes(2, "big") for number in range(2500)]
    assert file.append(pieces) == 0
    assert file.size == 5000
    buffer = file.buffer(0, 5000, False)
    assert bytes(buffer.view) == b"".join(pieces)
    buffer.recycle()
    file.release()
