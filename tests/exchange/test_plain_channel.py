"""Alignment without credit: what comes behind a barrier goes to disk, and comes back in order."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import ExchangeError, SpillError
from headgate.exchange.gate import InputGate
from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.decoders import NO_MEMORY_YET
from headgate.protocol.messages import BufferResponse, OfChannel, ResumeConsumption
from headgate.records.events import CheckpointBarrier, EndOfPartition, Event, encode_event
from headgate.runtime.task.exchange_parts import GateChannels
from tests.exchange.link import input_parts, output_parts, write_bytes
from tests.exchange.test_gathering import file_size_limit
from tests.memory.conftest import CheckedLocks

SIZE = 8


def taken(polled: tuple[int, list[Buffer] | Event] | None) -> bytes | Event | None:
    """What a gate gave: an event, or the bytes of a buffer, which goes back."""
    if polled is None:
        return None
    _, given = polled
    if not isinstance(given, list):
        return given
    (buffer,) = given
    data = b"".join(buffer.views)
    buffer.recycle()
    return data


class Fed:
    """One channel of a gate with three buffers, fed by hand."""

    def __init__(self, folder: str | None = None) -> None:
        self.memory = NetworkBufferPool(3, SIZE, CheckedLocks())
        self.gate = InputGate(lambda: None)
        self.messages: list[OfChannel] = []
        parts = input_parts(self.memory, exclusive=2, floating=1, flow_control="tcp", spill_dir=folder)
        made = GateChannels(parts, self.gate, "gate", remote=1)
        [self.pool] = made.pools
        self.channel = made.add_remote((0, 0, 0), self)
        self.channel.request(7)
        self.sequence = 0

    def credit_available(self, receiver: int) -> None: ...

    def send(self, message: OfChannel) -> None:
        self.messages.append(message)

    def cancel(self, receiver: int) -> None: ...

    def data(self, data: bytes) -> None:
        """A buffer, of several segments if it does not fit into one."""
        count = -(-len(data) // SIZE)
        segments = self.channel.take_segments(count)
        assert segments is not None
        assert segments is not NO_MEMORY_YET
        assert len(segments) == count, "no buffer is recycled"
        for number, segment in enumerate(segments):
            part = data[number * SIZE : (number + 1) * SIZE]
            segment.view[: len(part)] = part
        self.channel.on_data(BufferResponse(7, self.sequence, 0, False, len(data)), segments)
        self.sequence += count
        self.channel.on_read(0)

    def event(self, event: Event) -> None:
        body = encode_event(event)
        self.channel.on_event(BufferResponse(7, self._next(), 0, True, len(body)), body)

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence - 1

    def poll(self) -> bytes | Event | None:
        return taken(self.gate.poll())

    def close(self) -> None:
        self.gate.release()
        self.pool.destroy()
        self.memory.validate()
        assert self.memory.holders() == {}
        self.memory.close()


@pytest.fixture
def fed() -> Iterator[Fed]:
    made = Fed()
    yield made
    made.close()


def test_a_blocked_channel_holds_no_buffer_and_its_data_come_back_in_order(fed: Fed) -> None:
    first, second = CheckpointBarrier(1, 0), CheckpointBarrier(2, 0)
    fed.data(b"before")
    fed.event(first)
    assert fed.messages == [ResumeConsumption(7)], "the producer resumes at once"
    assert fed.poll() == b"before"
    assert fed.poll() == first
    for number in range(10):
        fed.data(bytes([number]) * SIZE)
        assert fed.poll() is None
        assert fed.pool.in_use == 0
    fed.event(second)
    fed.data(b"behind")
    assert fed.poll() is None
    assert fed.channel.bytes_spilled == 10 * SIZE + 6
    fed.channel.resume()
    assert [fed.poll() for _ in range(10)] == [bytes([number]) * SIZE for number in range(10)]
    assert fed.poll() == second, "and the next barrier blocks as well"
    fed.data(b"new")
    assert fed.poll() is None
    assert fed.pool.in_use == 0
    fed.channel.resume()
    fed.event(EndOfPartition())
    assert [fed.poll() for _ in range(4)] == [b"behind", b"new", EndOfPartition(), None]
    assert fed.messages == [ResumeConsumption(7)] * 2


def test_what_stood_behind_the_barrier_when_it_came_is_spilled_too(fed: Fed) -> None:
    run = bytes(range(2 * SIZE - 3))
    fed.event(CheckpointBarrier(1, 0))
    fed.data(b"a")
    fed.data(run)
    assert isinstance(fed.poll(), CheckpointBarrier)
    assert fed.poll() is None
    assert fed.pool.in_use == 0
    assert fed.channel.bytes_spilled == 1 + len(run)
    fed.channel.resume()
    polled = [fed.poll() for _ in range(3)]
    assert polled == [b"a", run, None]


def test_a_channel_that_has_resumed_spills_when_it_is_blocked_again(fed: Fed) -> None:
    fed.event(CheckpointBarrier(1, 0))
    fed.data(b"a")
    assert isinstance(fed.poll(), CheckpointBarrier)
    fed.channel.resume()
    assert fed.poll() == b"a"
    fed.data(b"b")
    fed.channel.block()
    assert fed.poll() is None
    assert fed.pool.in_use == 0
    fed.channel.unblock()
    fed.data(b"c")
    assert fed.poll() == b"b"
    fed.channel.block()
    assert fed.poll() is None
    fed.channel.unblock()
    assert fed.poll() == b"c"
    assert fed.messages == [ResumeConsumption(7)]


def test_a_lost_connection_is_reported_while_the_channel_is_blocked(fed: Fed) -> None:
    fed.event(CheckpointBarrier(1, 0))
    assert isinstance(fed.poll(), CheckpointBarrier)
    fed.channel.on_error(ExchangeError("gone"))
    with pytest.raises(ExchangeError, match="gone"):
        fed.poll()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    fed = Fed(str(tmp_path / "missing"))
    fed.event(CheckpointBarrier(1, 0))
    fed.poll()
    fed.data(b"x")
    with pytest.raises(SpillError, match="a file in .*missing cannot be used: .*spill_dir"):
        fed.poll()
    fed.close()


def test_a_released_channel_leaves_no_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    fed = Fed(str(tmp_path))
    fed.event(CheckpointBarrier(1, 0))
    fed.poll()
    fed.data(b"x")
    fed.poll()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert list(tmp_path.iterdir()) == []
    assert [each for each in open_files() if each.startswith(f"{tmp_path}/#")], "it never had a name"
    fed.close()
    assert len(os.listdir("/proc/self/fd")) == before


def open_files() -> list[str]:
    """What this process holds open, by name."""
    links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if os.path.lexists(link)]


def test_a_full_disk_is_reported_and_all_memory_is_recycled(tmp_path: Path) -> None:
    fed = Fed(str(tmp_path))
    fed.event(CheckpointBarrier(1, 0))
    fed.poll()
    fed.data(bytes(2 * SIZE))
    with file_size_limit(SIZE), pytest.raises(SpillError, match=f"a file in {tmp_path} cannot be used: .*spill_dir"):
        fed.poll()
    fed.close()


class Local:
    """A producer of four segments and its consumer, which is in the same TaskManager."""

    def __init__(self, folder: str | None = None) -> None:
        self.memory = NetworkBufferPool(4, SIZE, CheckedLocks())
        parts = output_parts(self.memory, extra=2, cap=4, flow_control="tcp", spill_dir=folder)
        self.partition = parts.partition("out", 1, lambda: None)
        self.pool = self.partition.pool
        self.gate = InputGate(lambda: None)
        self.channel = GateChannels(parts, self.gate, "gate", remote=0).add_local(self.partition.subpartition(0))
        self.channel.start()

    def data(self, data: bytes) -> None:
        assert write_bytes(self.partition, 0, data) == len(data), "the consumer holds back its producer"
        self.partition.flush(0)

    def event(self, event: Event) -> None:
        self.partition.write_event(0, event)

    def poll(self) -> bytes | Event | None:
        return taken(self.gate.poll())

    def read(self) -> list[bytes | Event]:
        """All there is."""
        return list(iter(self.poll, None))

    def close(self) -> None:
        self.gate.validate()
        self.gate.release()
        self.partition.release()
        self.pool.destroy()
        self.memory.validate()
        assert self.memory.holders() == {}
        self.memory.close()


def test_a_local_producer_resumes_behind_its_barrier_and_its_data_come_back_in_order() -> None:
    local = Local()
    first, second = CheckpointBarrier(1, 0), CheckpointBarrier(2, 0)
    local.data(b"before")
    local.event(first)
    assert local.read() == [b"before", first]
    for number in range(10):
        local.data(bytes([number]) * SIZE)
        assert local.poll() is None
        assert local.pool.in_use == 0
    local.event(second)
    local.data(b"last ")
    assert local.poll() is None
    assert local.pool.in_use == 1, "the one that is being filled"
    assert local.channel.bytes_spilled == 10 * SIZE + 5
    assert local.channel.bytes_polled == 6
    local.channel.resume()
    assert local.read() == [*(bytes([number]) * SIZE for number in range(10)), second], "the next barrier blocks too"
    assert local.channel.bytes_polled == 6 + 10 * SIZE
    local.data(b"new")
    local.event(EndOfPartition())
    local.channel.resume()
    assert joined(local.read()) == [b"last new", EndOfPartition()]
    local.close()


def test_any_course_of_a_local_channel_keeps_the_order_and_never_blocks_the_producer(tmp_path: Path) -> None:
    for seed in range(8):
        chance, local = random.Random(seed), Local(str(tmp_path))
        written: list[bytes | Event] = []
        read: list[bytes | Event] = []
        checkpoint, is_blocked = 0, False
        for _ in range(200):
            choice = chance.random()
            if choice < 0.5:
                data = chance.randbytes(chance.randint(1, SIZE))
                written.append(data)
                local.data(data)
            elif choice < 0.6:
                checkpoint += 1
                barrier = CheckpointBarrier(checkpoint, 0)
                written.append(barrier)
                local.event(barrier)
            elif choice < 0.7 and is_blocked:
                is_blocked = False
                local.channel.unblock()
            elif choice > 0.95:
                is_blocked = True
                local.channel.block()
            seen = local.read()
            assert not (is_blocked and seen), "read while blocked"
            read += seen
            is_blocked = is_blocked or (bool(seen) and isinstance(seen[-1], CheckpointBarrier))
            assert local.pool.in_use <= 1, "but for the one that is being filled"
        local.event(EndOfPartition())
        written.append(EndOfPartition())
        while read[-1:] != [EndOfPartition()]:
            local.channel.resume()
            read += local.read()
        assert joined(read) == joined(written)
        local.close()


def joined(items: list[bytes | Event]) -> list[bytes | Event]:
    """The same with bytes in one piece: a segment may be read in several."""
    whole: list[bytes | Event] = []
    for item in items:
        if isinstance(item, bytes) and whole and isinstance(whole[-1], bytes):
            whole[-1] += item
        else:
            whole.append(item)
    return whole


def test_a_failed_spill_of_a_local_channel_is_reported_and_all_memory_is_recycled(tmp_path: Path) -> None:
    local = Local(str(tmp_path / "missing"))
    local.event(CheckpointBarrier(1, 0))
    assert isinstance(local.poll(), CheckpointBarrier)
    local.data(b"x")
    with pytest.raises(SpillError, match="a file in .*missing cannot be used: .*spill_dir"):
        local.poll()
    local.close()


def test_a_spill_file_is_a_queue(tmp_path: Path) -> None:
    chance, queue, waiting, number = random.Random(3), SpillFile(str(tmp_path)), [], 0
    for _ in range(2000):
        if chance.random() < 0.5:
            data = chance.randbytes(chance.randint(1, 50))
            item = EndOfPartition() if chance.random() < 0.1 else Buffer.of_bytes(data)
            queue.append(item)
            waiting.append(data if isinstance(item, Buffer) else item)
        elif waiting:
            number += 1
            got = queue.popleft()
            assert (bytes(got.view) if isinstance(got, Buffer) else got) == waiting.pop(0)
        assert len(queue) == len(waiting)
    assert number > 500
    queue.close()
    queue.close()
