"""Alignment without credit: what comes behind a barrier goes to disk, and comes back in order."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.errors import ExchangeError
from headgate.exchange.gate import InputGate
from headgate.exchange.plain_channel import PlainInputChannel
from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.messages import BufferResponse, OfChannel, ResumeConsumption
from headgate.protocol.plain_tcp import SharedBuffers
from headgate.records.events import CheckpointBarrier, EndOfPartition, Event, encode_event
from tests.exchange.link import OneAtATime
from tests.memory.conftest import CheckedLocks

SIZE = 8


class Fed:
    """One channel of a gate with three buffers, fed by hand."""

    def __init__(self, folder: str | None = None) -> None:
        self.memory = NetworkBufferPool(3, SIZE, CheckedLocks())
        self.pool = self.memory.create_local_pool("gate", 3, 3)
        self.gate = InputGate(lambda: None)
        self.told: list[OfChannel] = []
        one = OneAtATime()
        self.channel = PlainInputChannel(
            0,
            (0, 0, 0),
            lambda on_buffer: SharedBuffers(self.pool, on_buffer, one),
            self.gate.notify,
            self.gate.notify_priority,
            self,
            folder,
        )
        self.gate.channels = [self.channel]
        self.channel.request(7)
        self.sequence = 0

    def credit_available(self, receiver: int) -> None: ...

    def tell(self, message: OfChannel) -> None:
        self.told.append(message)

    def cancel(self, receiver: int) -> None: ...

    def data(self, data: bytes) -> None:
        segment = self.pool.request()
        assert segment is not None, "nobody gives a buffer back"
        segment.view[: len(data)] = data
        self.channel.on_segment(self._next(), segment, len(data))
        self.channel.on_read(0)

    def event(self, event: Event) -> None:
        body = encode_event(event)
        self.channel.on_event(BufferResponse(7, self._next(), 0, True, len(body)), body)

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence - 1

    def poll(self) -> bytes | Event | None:
        polled = self.gate.poll()
        if polled is None or not isinstance(polled[1], list):
            return None if polled is None else polled[1]
        (buffer,) = polled[1]
        data = bytes(buffer.view)
        buffer.recycle()
        return data

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
    assert fed.told == [ResumeConsumption(7)], "the producer goes on at once"
    assert fed.poll() == b"before" and fed.poll() == first
    for number in range(10):
        fed.data(bytes([number]) * SIZE)
        assert fed.poll() is None and fed.pool.in_use == 0
    fed.event(second)
    fed.data(b"behind")
    assert fed.poll() is None and fed.channel.bytes_spilled == 10 * SIZE + 6
    fed.channel.resume()
    assert [fed.poll() for _ in range(10)] == [bytes([number]) * SIZE for number in range(10)]
    assert fed.poll() == second, "and the next barrier blocks as well"
    fed.data(b"new")
    assert fed.poll() is None and fed.pool.in_use == 0
    fed.channel.resume()
    fed.event(EndOfPartition())
    assert [fed.poll() for _ in range(4)] == [b"behind", b"new", EndOfPartition(), None]
    assert fed.told == [ResumeConsumption(7)] * 2


def test_what_stood_behind_the_barrier_when_it_came_is_spilled_too(fed: Fed) -> None:
    fed.event(CheckpointBarrier(1, 0))
    fed.data(b"a")
    fed.data(b"b")
    assert isinstance(fed.poll(), CheckpointBarrier)
    assert fed.poll() is None and fed.pool.in_use == 0
    fed.channel.resume()
    assert [fed.poll(), fed.poll(), fed.poll()] == [b"a", b"b", None]


def test_a_lost_connection_is_told_while_the_channel_is_blocked(fed: Fed) -> None:
    fed.event(CheckpointBarrier(1, 0))
    assert isinstance(fed.poll(), CheckpointBarrier)
    fed.channel.on_error(ExchangeError("gone"))
    with pytest.raises(ExchangeError, match="gone"):
        fed.poll()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    fed = Fed(str(tmp_path / "missing"))
    fed.event(CheckpointBarrier(1, 0))
    fed.poll()
    fed.data(b"x")
    with pytest.raises(ExchangeError, match="cannot be written to disk: .*missing.*spill_dir"):
        fed.poll()
    fed.close()


def test_a_released_channel_leaves_no_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    fed = Fed(str(tmp_path))
    fed.event(CheckpointBarrier(1, 0))
    fed.poll()
    fed.data(b"x")
    fed.poll()
    assert len(os.listdir("/proc/self/fd")) == before + 1 and list(tmp_path.iterdir()) == []
    fed.close()
    assert len(os.listdir("/proc/self/fd")) == before


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
