"""A stage of a batch job on one thread: a task's output in a file, and the consumers that come when it is finished.

Some consumers are in the task's TaskManager and read the file in place, others get it over a wire. All parts are real
but the sockets.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headgate.config import FlowControl
from headgate.errors import ExchangeError
from headgate.exchange.channels import InputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.partition import ResultPartition
from headgate.exchange.partition_file import FileBuffer, PartitionFile
from headgate.memory.buffer import Buffer
from headgate.memory.network_pool import NetworkBufferPool
from headgate.records.events import EndOfPartition, Event
from headgate.runtime.task.exchange_parts import GateChannels
from tests.exchange.link import OneAtATime, input_parts, write_bytes
from tests.exchange.test_blocking import open_files
from tests.exchange.whole import ALL, SEGMENT, Wire
from tests.memory.conftest import CheckedLocks


@dataclass(frozen=True, kw_only=True)
class StageShape:
    """`is_local` of each consumer, and how much of everything there is, in segments or bytes."""

    mode: FlowControl
    is_local: tuple[bool, ...]
    compress: bool
    extra: int
    cap: int
    exclusive: int
    floating: int
    capacity: int


def _unfinished(before: int, size: int) -> int:
    """How many bytes of an unfinished segment there are when an element of `size` has come behind `before` of them."""
    behind = size - (SEGMENT - before if before else 0)
    if behind <= 0:
        return (before + size) % SEGMENT
    unused = -behind % SEGMENT
    return 0 if 2 * unused <= SEGMENT and 3 * unused <= size else behind % SEGMENT


class Stage:
    """Close it: all memory must then be back, and the file closed."""

    def __init__(self, shape: StageShape) -> None:
        self.shape = shape
        self.channels = len(shape.is_local)
        self.folder = tempfile.TemporaryDirectory()
        self.memory = NetworkBufferPool(self.channels + 1 + shape.extra, SEGMENT, CheckedLocks())
        self.pool = self.memory.create_local_pool(
            "output",
            required=self.channels + 1,
            maximum=self.channels + 1 + shape.extra,
            subpartitions=self.channels,
            max_per_subpartition=shape.cap,
        )
        self.file = PartitionFile(self.folder.name, OneAtATime())
        self.partition = ResultPartition(
            "output",
            self.channels,
            pool=self.pool,
            max_buffers_per_subpartition=shape.cap,
            lock_factory=OneAtATime(),
            wake=lambda: None,
            on_settled=lambda: None,
            file=self.file,
            compress=shape.compress,
        )
        # The consumers' end.
        own = self.channels * max(1, shape.exclusive)
        self.read_memory = NetworkBufferPool(own + shape.floating, SEGMENT, CheckedLocks())
        self.wire = Wire(shape.mode, shape.capacity, [self.partition])
        self.gate = InputGate(lambda: None)
        parts = input_parts(self.read_memory, shape.exclusive, shape.floating, flow_control=shape.mode)
        self.made = GateChannels(parts, self.gate, "input", shape.is_local.count(False))
        self.is_finished = self.is_closed = False
        self.unstarted: set[int] = set()
        self.left: set[int] = set()
        # The books: how many bytes, and per channel bytes and events, and the bytes that do not fill a segment yet.
        self.size = 0
        self.written: list[list[int | Event]] = [[] for _ in shape.is_local]
        self.unfinished = [0] * self.channels
        self.read: list[list[int | Event]] = [[] for _ in shape.is_local]
        self.held: list[tuple[Buffer, bytes]] = []

    # ---- the task

    def write(self, channel: int, data: bytes) -> None:
        """A task never waits: each call makes room, if only in the file."""
        self.size += len(data)
        self.written[channel] += data
        while data:
            count = write_bytes(self.partition, channel, data)
            assert count, "a blocking partition holds its task back"
            self.unfinished[channel] = 0 if count < len(data) else _unfinished(self.unfinished[channel], len(data))
            data = data[count:]

    def write_event(self, channel: int, event: Event) -> None:
        self.partition.write_event(channel, event)
        self.written[channel].append(event)
        self.unfinished[channel] = 0

    def refuses_reader(self, channel: int) -> bool:
        try:
            self.partition.subpartition(channel).attach(lambda: None)
        except ExchangeError:
            return True
        return False

    def finish(self) -> None:
        """The task ends and gives back its memory; consumers come."""
        for channel in range(self.channels):
            self.write_event(channel, EndOfPartition())
        self.is_finished = True
        assert self.pool.in_use == 0, "segments of a task that has ended are in use"
        self.pool.destroy()
        for channel, is_local in enumerate(self.shape.is_local):
            if channel in self.left:
                self.made.channels.append(InputChannel())
            elif is_local:
                self.unstarted.add(channel)
                self.made.add_local(self.partition.subpartition(channel))
            else:
                self.wire.add_channel((0, 0, channel), self.made)

    # ---- the consumers

    def start(self, channel: int) -> None:
        """A local consumer begins; there is no second one."""
        if channel in self.unstarted:
            self.unstarted.discard(channel)
            self.gate.channels[channel].start()
            assert self.refuses_reader(channel), "a channel has two readers"

    def consume(self, limit: int) -> bool:
        """Take some buffers, which stay held, or an event. Returns False when there is nothing."""
        polled = self.gate.poll(limit)
        if polled is None:
            return False
        channel, taken = polled
        got = self.read[channel]
        if isinstance(taken, list):
            contents = [b"".join(buffer.views) for buffer in taken]
            self.held += zip(taken, contents, strict=True)
            got += b"".join(contents)
        else:
            got.append(taken)
        assert got == self.written[channel][: len(got)], "lost, doubled or reordered"
        if isinstance(taken, EndOfPartition):
            self.leave(channel)
        return True

    def recycle(self, which: int) -> None:
        """Finish a buffer; it was there all the time."""
        self._check_file()
        buffer, content = self.held.pop(which % len(self.held))
        assert b"".join(buffer.views) == content, "a buffer has changed while it was held"
        buffer.recycle()

    def leave(self, channel: int) -> None:
        """A consumer goes, in the midst of things or before it came."""
        self.left.add(channel)
        self.unstarted.discard(channel)
        if self.is_finished:
            self.gate.channels[channel].release()
        else:
            self.partition.subpartition(channel).release()

    # ---- moving

    @property
    def _steps(self) -> list[Callable[[int], bool]]:
        wire = self.wire
        return [wire.deliver, wire.ask, wire.hear, wire.frame, wire.write, wire.read]

    def move(self, order: random.Random) -> None:
        """The wire, in the order of a seed."""
        for _ in range(10):
            order.choice(self._steps)(order.choice([1, 40, ALL]))

    def settle(self) -> None:
        """Until nothing moves."""
        for _ in range(1000):
            moved = [step(ALL) for step in self._steps]
            if not any(moved) and not self.wire.has_posts:
                return
        raise AssertionError("the wire never comes to rest")

    def check(self) -> None:
        """What holds after every step."""
        self.memory.validate()
        self.read_memory.validate()
        self.partition.validate()
        if not self.is_finished:
            assert self.pool.in_use == sum(map(bool, self.unfinished)), "full segments are not given back at once"
        if not self.left:
            full = self.size - sum(self.unfinished)
            assert self.file.size <= full if self.shape.compress else self.file.size == full, "not what is full"
        self._check_file()

    def _check_file(self) -> None:
        """The file is open while a reader may read it, and no longer."""
        is_open = open_files(Path(self.folder.name)) > 0
        if not self.is_closed or any(isinstance(buffer, FileBuffer) for buffer, _ in self.held):
            assert is_open == (self.file.size > 0), "the file was closed while it is in use"
        elif not self.wire.outgoing.unwritten:
            assert not is_open, "the file is open although no reader remains"

    # ---- the end

    def run_to_the_end(self) -> None:
        """Consumers that go on reading come to the end, and have all that was written."""
        if not self.is_finished:
            self.finish()
        for channel in range(self.channels):
            self.start(channel)
        while len(self.left) < self.channels:
            while self.held:
                self.recycle(0)
            self.settle()
            assert self.consume(4), "stuck: a consumer waits for the end"
            while self.consume(4):
                pass
        while self.held:
            self.recycle(0)
        self.settle()
        assert self.partition.is_consumed, "a consumer's leave did not arrive"
        self.partition.release()
        self.is_closed = True
        self._check_file()

    def close(self, order: random.Random) -> None:
        """Let go of everything in any order."""
        steps: list[Callable[[], Any]] = [
            *[partial(self.recycle, 0) for _ in self.held],
            *(channel.release for channel in self.gate.channels),
            self.partition.release,
            self.wire.sender.release,
            self.wire.outgoing.release,
            self.wire.receiver.fail,
            self.pool.destroy,
            *(pool.destroy for pool in self.made.pools),
        ]
        order.shuffle(steps)
        for step in steps:
            step()
        self.is_closed = True
        self._check_file()
        for memory in (self.memory, self.read_memory):
            memory.validate()
            assert memory.holders() == {}, f"not returned: {memory.holders()}"
            memory.close()
        self.folder.cleanup()
