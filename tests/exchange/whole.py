"""A whole exchange on one thread: writers, partitions, channels within a TaskManager and across, gates and inputs.

All parts are real but the sockets: bytes cross in cuts of any size over a wire that holds a limited number of them, and
what threads tell each other waits until it is delivered. A task has a turn only when it was woken, so a lost word is a
task that stands still for ever.

Rows and latency markers are numbered over all writers, and a row's number is its event time. A writer's watermark is
the last number so far: whatever comes behind it is later.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from headgate.config import FlowControl
from headgate.exchange.blocking import Subpartition
from headgate.exchange.gate import InputGate
from headgate.exchange.gathering import Gathering
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget
from headgate.exchange.selectors import Broadcast, ChannelSelector, KeyGroups, Rebalance
from headgate.exchange.writer import RecordWriter
from headgate.memory.buffer import Buffer
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.data_plane import new_receiver, new_sender
from headgate.protocol.messages import MAX_RUN, OfChannel, PartitionRequest
from headgate.protocol.outgoing import Outgoing
from headgate.records.arrow import BatchCodec
from headgate.records.elements import MAX_TIME, MIN_TIME, LatencyMarker, Tag, WatermarkElement, WatermarkStatus
from headgate.records.events import Alignment, CheckpointBarrier, EndOfPartition, Event
from headgate.records.spanning import SpanningDeserializer
from headgate.runtime.control_messages import Part
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.exchange_parts import GateChannels
from headgate.runtime.task.in_flight import InFlight, Pieces
from headgate.runtime.task.input import TaskInput
from tests.exchange.link import input_parts, output_parts
from tests.memory.conftest import CheckedLocks

SEGMENT = 128
ALL = 1 << 20
INTERVAL = 0.2
#: A time at which no barrier's timeout has passed; they are all so early that at any other time it has.
NEVER = float("-inf")
CODEC = BatchCodec(pa.schema({"writer": pa.int32(), "n": pa.int64()}))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where the tasks are (TaskManager 0 or 1), and how much of everything there is. Sizes are bytes or segments."""

    mode: FlowControl
    writers: tuple[int, ...]
    readers: tuple[int, ...]
    selector: Literal["key groups", "rebalance", "broadcast"]
    buffer_timeout: float | Literal["adaptive"]
    message_size: int = 200
    exclusive: int = 1
    floating: int = 2
    extra: int = 4
    cap: int = 100
    overdraft: int = 1
    limit: int = 1 << 20
    capacity: int = ALL
    unions: int = 1
    segment: int = SEGMENT
    branches: int = 1  # so many writers, one behind the other in the same place, are the outputs of one task

    @property
    def inputs(self) -> list[range]:
        """The writers of each gate of a reader, which has at most as many as `unions` says."""
        count = min(self.unions, len(self.writers))
        edges = [len(self.writers) * number // count for number in range(count + 1)]
        return [range(*each) for each in pairwise(edges)]


class Host:
    """A TaskManager's memory."""

    def __init__(self, shape: Shape) -> None:
        each = len(shape.writers) * (len(shape.readers) + 1 + shape.extra + shape.overdraft)
        own = max(1, shape.exclusive)  # without credit an input has at least one buffer for each channel
        gates = len(shape.readers) * (len(shape.writers) * own + len(shape.inputs) * shape.floating)
        self.memory = NetworkBufferPool(each + gates, shape.segment, CheckedLocks())
        self.budget = PendingBudget(shape.limit)


class Keeper:
    """Keeps a task's part of each checkpoint: what `state` was when it was taken, and what was in flight. Of those that
    were dropped there is nothing."""

    def __init__(self, state: Callable[[], Any], changed: Callable[[int], None]) -> None:
        self._state = state
        self._changed = changed
        self.captured: dict[int, Any] = {}
        self.stored: dict[int, InFlight] = {}

    def capture(self, checkpoint: int) -> None:
        self.captured[checkpoint] = self._state()

    def store(self, checkpoint: int, in_flight: InFlight) -> None:
        assert checkpoint in self.captured
        assert checkpoint not in self.stored
        self.stored[checkpoint] = in_flight
        self._changed(checkpoint)

    def drop(self, checkpoint: int, reason: str) -> None:
        assert checkpoint not in self.stored
        del self.captured[checkpoint]


class Wire:
    """A connection from the writers of one TaskManager to the readers of another."""

    def __init__(
        self, mode: FlowControl, capacity: int, partitions: list[ResultPartition], segment: int = SEGMENT
    ) -> None:
        self.mode = mode
        self.capacity = capacity
        self.partitions = partitions
        self.sender = new_sender(mode, self._open_view, lambda receiver: self.data_posts.append(receiver))
        self.receiver = new_receiver(mode, segment)
        self.outgoing = Outgoing()
        self.to_consumer, self.to_producer = bytearray(), bytearray()
        self.data_posts: deque[int] = deque()
        self.credit_posts: deque[int] = deque()
        self.message_posts: deque[OfChannel] = deque()
        self.cancel_posts: deque[int] = deque()

    def _open_view(self, request: PartitionRequest, notify: Callable[[], None]) -> Subpartition:
        subpartition = self.partitions[request.producer].subpartition(request.subpartition)
        subpartition.attach(notify, sends_empty=request.credit == 0)
        return subpartition

    def add_channel(self, address: tuple[int, int, int], made: GateChannels) -> None:
        """One more of a gate, which asks for what is at an address."""
        self.receiver.request(made.add_remote(address, self))

    # ---- what channels say, from their task's thread

    def credit_available(self, receiver: int) -> None:
        self.credit_posts.append(receiver)

    def send(self, message: OfChannel) -> None:
        self.message_posts.append(message)

    def cancel(self, receiver: int) -> None:
        self.cancel_posts.append(receiver)

    # ---- steps; each returns whether anything moved

    @property
    def has_posts(self) -> bool:
        return bool(self.data_posts or self.credit_posts or self.message_posts or self.cancel_posts)

    def deliver(self, count: int) -> bool:
        """The posts that are there, to both ends."""
        there = self.has_posts
        while self.data_posts:
            self.sender.data_available(self.data_posts.popleft())
        while self.credit_posts:
            self.receiver.credit_available(self.credit_posts.popleft())
        while self.message_posts:
            self.receiver.send(self.message_posts.popleft())
        while self.cancel_posts:
            self.receiver.cancel(self.cancel_posts.popleft())
        return there

    def ask(self, count: int) -> bool:
        self.to_producer += self.receiver.data_to_send()
        return bool(self.to_producer)

    def hear(self, count: int) -> bool:
        chunk = bytes(self.to_producer[:count])
        del self.to_producer[:count]
        self.sender.receive(chunk)
        return bool(chunk)

    def frame(self, count: int) -> bool:
        before = self.outgoing.unwritten
        if self.outgoing.is_writable:
            self.outgoing.add(*self.sender.next_frames(min(count, MAX_RUN)))
        return self.outgoing.unwritten > before

    def write(self, count: int) -> bool:
        room = max(0, min(count, self.capacity - len(self.to_consumer)))
        data, region = b"".join(self.outgoing.next_write)[:room], self.outgoing.next_region
        if region is not None:
            data = os.pread(region.descriptor, min(region.size, room), region.offset)
        self.to_consumer += data
        self.outgoing.written(len(data))
        return bool(data)

    def read(self, count: int) -> bool:
        """As one call of the socket would, unless reading is stopped."""
        chunk, done = bytes(self.to_consumer[:count]), 0
        places = self.receiver.buffers()
        for place in places:
            part = chunk[done : done + len(place)]
            place[: len(part)] = part
            done += len(part)
        del self.to_consumer[:done]
        if done:
            self.receiver.received(done)
            self.receiver.notify_channels()
        return done > 0


class Producer:
    """A source task, or one output of it: emits numbered rows while its writer is available."""

    def __init__(self, number: int, shape: Shape, host: Host, world: Exchange) -> None:
        channels = len(shape.readers)
        self.number = number
        self.host = host
        self.woken = True
        self.is_busy = number % 2 > 0  # with more than its input, so that it never waits
        parts = output_parts(
            host.memory,
            shape.extra,
            shape.cap,
            lambda: world.now,
            max_overdraft_buffers_per_gate=shape.overdraft,
            message_size=shape.message_size,
            buffer_timeout=shape.buffer_timeout,
            watermark_interval=INTERVAL,
        )
        self.partition = parts.partition(f"writer {number}", channels, self._wake)
        selectors: dict[str, Callable[[], ChannelSelector]] = {
            "key groups": lambda: KeyGroups(["n"], channels, 16),
            "rebalance": lambda: Rebalance(channels, number),
            "broadcast": lambda: Broadcast(channels),
        }
        selector = selectors[shape.selector]()
        self.writer = parts.writer(self.partition, selector, CODEC, host.budget, world.wait_within_record)
        self.task = [self]
        self.rows: list[int] = []
        self.cuts: dict[int, int] = {}  # the last number before each barrier
        self.markers: dict[int, int] = {}  # and the last that may come before each marker
        self.watermark = MIN_TIME
        self.active = True
        self.is_back = False  # from idleness, and perhaps still behind the others: then it does not hold them back
        self.ended = False

    def start(self, task: list[Producer], changed: Callable[[int], None]) -> None:
        """Be an output of a task that has these."""
        self.task = task
        if self is task[0]:
            self.barriers = TaskBarriers(f"task {self.number}", [], [each.writer for each in task], lambda part: None)
            self.capturer = self.barriers.capturer = Keeper(lambda: [len(each.rows) for each in task], changed)
        else:
            self.barriers, self.capturer = task[0].barriers, task[0].capturer
        self.partition.watch_barriers(self._on_barrier_left)

    def in_flight(self, checkpoint: int) -> list[Pieces]:
        """By reader, what its part of a checkpoint has of this output; none if the barrier went in order."""
        outputs = self.capturer.stored[checkpoint].outputs if checkpoint in self.cuts else []
        by_reader = outputs[self.task.index(self)] if outputs else [[] for _ in self.partition.subpartitions]
        assert len(by_reader) == len(self.partition.subpartitions), "a channel of an output is not mentioned"
        return by_reader

    def rows_before(self, checkpoint: int) -> list[int]:
        """Return the rows that had been emitted when the state was taken; all rows if it never was."""
        kept = self.capturer.captured.get(checkpoint)
        return self.rows if kept is None else self.rows[: kept[self.task.index(self)]]

    def _wake(self) -> None:
        self.woken = True

    def _on_barrier_left(self) -> None:
        self.barriers.on_barrier_left()
        self.woken = True

    @property
    def may_emit(self) -> bool:
        return not self.writer.is_finished and self.writer.is_available

    def has_left(self, last: int) -> None:
        """All up to number `last` has left the writer: what comes now is behind it."""
        self.markers = {number: min(before, last) for number, before in self.markers.items()}

    def finish(self) -> None:
        """There are no more rows in any output of its task."""
        for each in self.task:
            each.writer.finish()
            each.woken = True
        self.barriers.end()

    def turn(self, now: float, timeouts: float | None) -> bool:
        """What a task does when it was woken or its time has come; returns whether anything moved."""
        if timeouts is not None:
            self.barriers.on_time(timeouts)
        before = self.writer.pending_bytes, len(self.writer._due.channels), self.ended
        if self.writer.deadline is not None and now >= self.writer.deadline:
            self.writer.on_time(now)
        if self.woken:
            self.woken = False
            if self.writer.drain() and self.writer.is_finished and not self.ended and self.partition.is_settled:
                self.writer.write_event(EndOfPartition())
                self.ended = True
        if self.writer.is_available and not self.is_busy:
            self.writer.before_wait()
        return before != (self.writer.pending_bytes, len(self.writer._due.channels), self.ended)

    def close(self, order: random.Random) -> None:
        """Cancel the task: what it holds is given back in any order."""
        steps = [self.writer.close, self.partition.release, self.partition.pool.destroy]
        order.shuffle(steps)
        for step in steps:
            step()


class FairGate(InputGate):
    """A gate of a union: it is looked at again before another has had two turns."""

    def __init__(self, on_data: Callable[[], None]) -> None:
        super().__init__(on_data)
        self.others: list[FairGate] = []
        self.passed_over = 0

    def poll(self, limit: int = 1) -> tuple[int, list[Buffer] | Event] | None:
        for other in self.others:
            other.passed_over += other.has_data
            assert other.passed_over <= len(self.others), "a gate with data waits for another to have two turns"
        self.passed_over = 0
        return super().poll(limit)


class Reader:
    """A task that only looks, and keeps the books of what it sees."""

    def __init__(self, number: int, shape: Shape, host: Host, world: Exchange) -> None:
        self.number = number
        self.host = host
        self.world = world
        self.gates = [FairGate(self._wake) for _ in shape.inputs]
        for gate in self.gates:
            gate.others = [each for each in self.gates if each is not gate]
        self.woken = True
        self.left = False
        self.seen: list[list[int]] = [[] for _ in shape.writers]
        self.after: list[int] = [0 for _ in shape.writers]  # of the last checkpoint or marker; all else must be later
        self.watermark = MIN_TIME
        self.active = True
        place = shape.readers[number]
        remote = [sum(shape.writers[writer] != place for writer in writers) for writers in shape.inputs]
        parts = input_parts(host.memory, shape.exclusive, shape.floating, flow_control=shape.mode)
        self.made = [
            GateChannels(parts, gate, f"gate {at} of {number}", remote[at]) for at, gate in enumerate(self.gates)
        ]

    def start(self, shape: Shape) -> None:
        for at, writers in enumerate(shape.inputs):
            for writer in writers:
                self.world.add_channel(self.world.producers[writer], self, at)
        self.barriers = TaskBarriers(f"reader {self.number}", self.gates, [], self._checkpoint)
        self.capturer = self.barriers.capturer = Keeper(
            lambda: [list(seen) for seen in self.seen], self.world.check_parts
        )
        self.gathering = Gathering(self.host.budget, None)
        codecs = [CODEC for _ in self.gates]
        self.input = TaskInput(self.gates, codecs, shape.message_size, self.barriers, self.gathering)
        for gate in self.gates:
            for channel in gate.channels:
                channel.start()

    def validate_gathering(self) -> None:
        self.gathering.validate()
        under_way = [each for each in self.input._deserializers if each._message is not None]
        size = sum(each._message.size for each in under_way if each._tag == Tag.RECORDS)
        assert self.gathering.memory_bytes + self.gathering.file_bytes == size, "miscounts what is being gathered"

    def _wake(self) -> None:
        self.woken = not self.left

    def turn(self, now: float, timeouts: float | None) -> bool:
        """One element, or what follows from the events that came; returns whether there was anything. Without
        `timeouts` what is urgent comes a moment too late to be seen."""
        if self.left:
            return False
        if timeouts is not None:
            self.barriers.on_time(timeouts)
        if not self.woken:
            return False
        element = self.input.next()
        if isinstance(element, pa.RecordBatch):
            self._on_rows(element)
        elif isinstance(element, WatermarkElement):
            assert element.time > self.watermark, "event time goes back"
            self.watermark = element.time
        elif isinstance(element, WatermarkStatus):
            assert element.active != self.active, "a status that says nothing new"
            self.active = element.active
        elif isinstance(element, LatencyMarker):
            self._on_marker(element.subtask, element.time)
        elif not self.input.catch_up():
            self.woken = False
            if self.input.is_finished:
                assert self.watermark == MAX_TIME, "the end without the end of time"
                self.leave()
            return self.left
        return True

    def _on_rows(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows, "an empty batch"
        for writer, n in zip(batch["writer"].to_pylist(), batch["n"].to_pylist(), strict=True):
            seen = self.seen[writer]
            is_back = self.world.producers[writer].is_back
            assert is_back or n > self.watermark, f"row {n} behind watermark {self.watermark}"
            assert not seen or n > seen[-1], "reordered or doubled"
            assert n > self.after[writer], "a row came behind a checkpoint or marker that was sent behind it"
            seen.append(n)

    def _on_marker(self, writer: int, number: int) -> None:
        assert number not in self.world.arrived, "a marker came twice"
        assert number > self.after[writer], "a marker came behind a checkpoint or marker that was sent behind it"
        seen, before = self.seen[writer], self.world.producers[writer].markers[number]
        assert not seen or seen[-1] <= before, "a row came before a marker that had left before it"
        self.after[writer] = number
        self.world.arrived.add(number)

    def _checkpoint(self, part: Part) -> None:
        if part["unaligned"] or part["aborted"]:
            return
        for producer in self.world.producers:
            cut = producer.cuts.get(part["checkpoint"])
            if cut is not None:
                last = max([self.after[producer.number], *self.seen[producer.number][-1:]])
                assert last <= cut, "a row or marker from behind the barrier came before the checkpoint"
                self.after[producer.number] = cut

    def leave(self) -> None:
        """The task takes leave of all its channels, whatever is still to come."""
        self.left, self.woken = True, False
        for gate in self.gates:
            gate.release()

    def close(self, order: random.Random) -> None:
        pools = [pool for made in self.made for pool in made.pools]
        steps = [*(gate.release for gate in self.gates), *(pool.destroy for pool in pools)]
        order.shuffle(steps)
        for step in steps:
            step()


class Exchange:
    """Tasks on two TaskManagers, an edge for each gate of the readers, and the connections between the TaskManagers."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.now = 100.0
        self.timeouts_pass = False
        self.numbers = 0
        self.arrived: set[int] = set()  # the numbers of markers
        self.barrier = CheckpointBarrier(1, 0)
        self.whole_parts = 0
        self.hosts = [Host(shape), Host(shape)]
        self.producers = [Producer(at, shape, self.hosts[host], self) for at, host in enumerate(shape.writers)]
        for producer in self.producers:
            first = producer.number - producer.number % shape.branches
            producer.start(self.producers[first : first + shape.branches], self.check_parts)
        self.partitions = [producer.partition for producer in self.producers]
        edges = 1 if shape.mode is FlowControl.CREDIT else len(shape.inputs)
        self.wires = {
            (edge, *pair): Wire(shape.mode, shape.capacity, self.partitions, shape.segment)
            for edge in range(edges)
            for pair in ((0, 1), (1, 0))
        }
        self.readers = [Reader(at, shape, self.hosts[host], self) for at, host in enumerate(shape.readers)]
        for reader in self.readers:
            reader.start(shape)

    def add_channel(self, producer: Producer, reader: Reader, edge: int) -> None:
        """One more of a reader's gate `edge`."""
        source, place = self.shape.writers[producer.number], self.shape.readers[reader.number]
        if source == place:
            reader.made[edge].add_local(producer.partition.subpartition(reader.number))
        else:
            wire = self.wires[0 if self.shape.mode is FlowControl.CREDIT else edge, source, place]
            wire.add_channel((edge, producer.number, reader.number), reader.made[edge])

    # ---- what the producers' tasks do

    def emit(self, writer: int, rows: int) -> None:
        """A batch of so many rows; the caller has looked whether the writer may take it."""
        producer = self.producers[writer]
        if not producer.active:
            self.status(writer, True)
        numbers = range(self.numbers + 1, self.numbers + rows + 1)
        self.numbers += rows
        producer.rows += numbers
        columns = [pa.array([writer] * rows, pa.int32()), pa.array(numbers, pa.int64())]
        producer.writer.emit(pa.record_batch(columns, schema=CODEC.schema))
        gathers = producer.writer._unpartitioned or any(pending.rows for pending in producer.writer._pending)
        is_too_much = producer.host.budget.is_exceeded_by(producer.writer._count)
        assert not (gathers and is_too_much), "a writer gathers rows beyond the budget"

    def watermark(self, writer: int) -> None:
        producer = self.producers[writer]
        if producer.active and self.numbers > producer.watermark:
            producer.watermark = self.numbers
            producer.writer.emit_watermark(self.numbers)

    def marker(self, writer: int) -> None:
        """A latency marker, whose number stands where it has its time."""
        producer = self.producers[writer]
        self.numbers += 1
        producer.markers[self.numbers] = MAX_TIME
        producer.writer.emit_marker(LatencyMarker(self.numbers, 0, writer))
        if self.shape.buffer_timeout == 0:
            producer.has_left(self.numbers)

    def flush(self, writer: int) -> None:
        producer = self.producers[writer]
        producer.writer.flush()
        producer.has_left(self.numbers)

    def status(self, writer: int, active: bool) -> None:
        producer = self.producers[writer]
        if producer.active != active:
            producer.active = active
            producer.is_back |= active
            producer.writer.emit_status(active)
            producer.has_left(self.numbers)

    def inject(self, writer: int, alignment: Alignment) -> None:
        """The barrier of the checkpoint under way; a new checkpoint begins when all writers have had the last."""
        behind = [each for each in self.producers if self.barrier.id not in each.cuts and not each.writer.is_finished]
        if not behind:
            self.barrier = CheckpointBarrier(self.barrier.id + 1, 0, alignment)
        producer = self.producers[writer]
        if self.barrier.id not in producer.cuts and not producer.writer.is_finished:
            for output in producer.task:
                output.cuts[self.barrier.id] = self.numbers
            producer.barriers.inject(self.barrier)
            producer.barriers.on_time(NEVER)
            for output in producer.task:
                output.has_left(self.numbers)

    def inject_everywhere(self) -> None:
        """Let the checkpoint under way come to an end."""
        if any(self.barrier.id in producer.cuts for producer in self.producers):
            for producer in self.producers:
                if self.barrier.id not in producer.cuts:
                    self.inject(producer.number, self.barrier.alignment)

    def wait_within_record(self, writer: RecordWriter) -> None:
        """One input made more output than the budget holds: that task waits, and all others go on."""
        for producer in self.producers:
            is_of_it = any(output.writer is writer for output in producer.task)
            if not is_of_it and self.barrier.id not in producer.cuts:
                self.inject(producer.number, self.barrier.alignment)
        for _ in range(1000):
            self.settle(lambda producer: producer.writer is not writer)
            if writer.drain():
                return
        raise AssertionError("stuck: readers that go on reading make no room")

    # ---- moving

    def move(self, order: random.Random, steps: int) -> None:
        """The network threads and tasks, in the order of a seed."""
        wires = list(self.wires.values())
        for _ in range(steps):
            count = order.choice([1, 7, 40, ALL])
            wire = order.choice(wires)
            step: Callable[[int], Any] = order.choice(
                [wire.deliver, wire.ask, wire.hear, wire.frame, wire.write, wire.read, self._any_turn(order)]
            )
            step(count)

    @property
    def _tasks(self) -> list[Producer | Reader]:
        return [*self.producers, *self.readers]

    def _any_turn(self, order: random.Random) -> Callable[[int], bool]:
        task = order.choice(self._tasks)
        timeouts = order.choice([self.now if self.timeouts_pass else NEVER, None])
        return lambda count: task.turn(self.now, timeouts)

    def settle(self, has_turns: Callable[[Producer], bool] = lambda producer: True) -> None:
        """Move all that moves until nothing does."""
        for _ in range(5000):
            moved = False
            for wire in self.wires.values():
                for step in (wire.deliver, wire.ask, wire.hear, wire.frame, wire.write, wire.read):
                    moved |= step(ALL)
            readers = [reader for reader in self.readers if not reader.left]
            tasks: list[Producer | Reader] = [*filter(has_turns, self.producers), *readers]
            for task in tasks:
                moved |= task.turn(self.now, self.now)
            # Half an element is nothing to a reader, but it has given back the buffers.
            posted = any(wire.has_posts for wire in self.wires.values())
            if not moved and not posted and not any(task.woken for task in tasks):
                return
        raise AssertionError("the exchange never comes to rest")

    # ---- laws

    def check_parts(self, checkpoint: int) -> None:
        """A task has stored its part. When all have, a row from before the barrier is either in the state of a reader
        or in flight, once and in order, and no other row is."""
        readers = [reader.capturer for reader in self.readers]
        with_part = [producer for producer in self.producers if checkpoint in producer.cuts]
        missing = [
            capturer
            for capturer in [*readers, *(each.capturer for each in with_part)]
            if checkpoint not in capturer.stored
        ]
        if missing or any(reader.left for reader in self.readers) or not self._has_come(checkpoint):
            return
        for producer in self.producers:
            before, in_flight = producer.rows_before(checkpoint), producer.in_flight(checkpoint)
            rows = []
            for reader in self.readers:
                inputs = reader.capturer.stored[checkpoint].inputs
                pieces = [*(inputs[producer.number] if inputs else []), *in_flight[reader.number]]
                rows.append([*reader.capturer.captured[checkpoint][producer.number], *_rows(pieces)])
                assert rows[-1] == sorted(set(rows[-1])), "rows in state and in flight are doubled, or in another order"
            if self.shape.selector != "broadcast":
                rows = [sorted(n for each in rows for n in each)]
            assert all(each == before for each in rows), f"of {len(before)} rows others are in the checkpoint"
            self.whole_parts += 1

    def _has_come(self, checkpoint: int) -> bool:
        """All writers have had its barrier, or have come to their end before."""
        return all(checkpoint in each.cuts or each.writer.is_finished for each in self.producers)

    def check(self) -> None:
        """What holds after every step."""
        for host in self.hosts:
            host.memory.validate()
        for wire in self.wires.values():
            for channel in wire.receiver._channels.values():
                channel._buffers.validate()  # type: ignore[attr-defined]
        for reader in self.readers:
            reader.validate_gathering()
        for producer in self.producers:
            producer.writer.validate()
        for reader in self.readers:
            for gate in reader.gates:
                gate.validate()

    def rest(self) -> None:
        """With everything flushed and all barriers in, readers come to see all that was written."""
        self.inject_everywhere()
        for producer in self.producers:
            if not producer.writer.is_finished:
                if producer.is_back:
                    self.watermark(producer.number)
                self.flush(producer.number)
        self.settle()
        self.now += INTERVAL
        self.settle()
        self.now += INTERVAL
        self.settle()
        self.check()
        if any(producer.writer.is_finished and not producer.ended for producer in self.producers):
            assert self._has_gone, "stuck: a writer waits for its readers' word"
            return  # nor does a barrier of the others come to an end, until all are cancelled
        for producer in self.producers:
            producer.is_back = False
            assert not producer.writer._due.channels, "stuck: a writer has due items although no reader is behind"
            self._check_arrived(producer)
        counting = [producer for producer in self.producers if producer.active and not producer.ended]
        for reader in self.readers:
            if counting and not reader.left:
                assert reader.watermark >= min(producer.watermark for producer in counting), "a watermark is lost"
                assert reader.active, "idle, though a channel is not"

    @property
    def _has_gone(self) -> bool:
        """Whether a reader has left before its end."""
        return any(reader.left and not reader.input.is_finished for reader in self.readers)

    def _check_arrived(self, producer: Producer) -> None:
        seen = [reader.seen[producer.number] for reader in self.readers]
        gone = [reader.left and not reader.input.is_finished for reader in self.readers]
        assert any(gone) or producer.markers.keys() <= self.arrived, "a marker is lost"
        if self.shape.selector == "broadcast":
            for each, has_gone in zip(seen, gone, strict=True):
                assert has_gone or each == producer.rows, f"of {len(producer.rows)} rows {len(each)} were seen"
            return
        together = sorted(n for each in seen for n in each)
        assert len(set(together)) == len(together), "doubled"
        assert any(gone) or together == producer.rows, f"of {len(producer.rows)} rows {len(together)} were seen"

    # ---- the end

    def run_to_the_end(self) -> None:
        """Every writer finishes; readers must come to the end, and all rows with them. If a reader has left before, its
        writers wait for its word until they are cancelled."""
        self.inject_everywhere()
        for producer in self.producers:
            if not producer.writer.is_finished:
                producer.finish()
        self.settle()
        for producer in self.producers:
            assert producer.partition.is_settled or not producer.ended, "a writer ended without its readers' word"
        if self._has_gone and not all(producer.ended for producer in self.producers):
            return
        assert all(producer.ended for producer in self.producers), "stuck: a writer waits for its readers' word"
        assert all(reader.left for reader in self.readers), "stuck: a reader waits for the end"
        for producer in self.producers:
            self._check_arrived(producer)
            assert producer.partition.is_consumed
            assert not producer.writer.pending_bytes
        self.settle()
        for wire in self.wires.values():
            assert not wire.to_consumer
            assert not wire.to_producer
            assert not wire.outgoing.unwritten
            assert not wire.sender.has_output
        for reader in self.readers:
            gathered = reader.gathering.memory_bytes, reader.gathering.file_bytes
            assert not reader.input.is_finished or gathered == (0, 0), "counts messages that are complete"

    def close(self, order: random.Random) -> None:
        """Cancel whatever runs, its parts in any order. All memory must be back."""
        steps: list[Callable[[], Any]] = [partial(task.close, order) for task in self._tasks]
        for wire in self.wires.values():
            steps += [wire.sender.release, wire.outgoing.release, partial(self._cut, wire)]
        order.shuffle(steps)
        for step in steps:
            step()
        for producer in self.producers:
            assert not producer.writer.pending_bytes
        for host in self.hosts:
            host.memory.validate()
            assert host.memory.holders() == {}, f"not returned: {host.memory.holders()}"
            host.memory.close()

    @staticmethod
    def _cut(wire: Wire) -> None:
        wire.receiver.fail()


def _rows(pieces: list[memoryview]) -> list[int]:
    """Return the rows in the bytes of a channel. The last element must be whole."""
    deserializer = SpanningDeserializer(CODEC)
    batches = [each for each in deserializer.feed(pieces) if isinstance(each, pa.RecordBatch)]
    assert not deserializer.partial, "half an element is in flight"
    return [n for batch in batches for n in batch["n"].to_pylist()]
