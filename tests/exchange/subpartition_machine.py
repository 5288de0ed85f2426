"""A rule machine over one subpartition: a writer, a reader and a keeper of overtaken data, in the order of a seed.

The reader polls only when notified, or when its last poll said that more follows. So a missing notification is a
reader that stands still, and a word too many is one that knew already. The machine keeps the queue as plain bytes and
events, and compares after every step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headgate.errors import ExchangeError
from headgate.exchange.subpartition import EventConsumer, PipelinedSubpartition
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.buffer_builder import BufferBuilder
from headgate.memory.segment import MemorySegment
from headgate.protocol.sender import PolledBuffer
from headgate.records.events import (
    Alignment,
    CancelMarker,
    CheckpointBarrier,
    EndOfPartition,
    Event,
    blocks,
    decode_event,
)
from tests.exchange.link import OneAtATime

SIZE = 4


@dataclass
class Item:
    """What is in one place of the queue: bytes in so many segments, or an event."""

    data: bytes = b""
    event: Event | None = None
    segments: int = 1
    finished: bool = True

    @property
    def has_something(self) -> bool:
        """For the reader to see now, without a flush."""
        return self.event is not None or (self.finished and bool(self.data))


class SubpartitionMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(sends_empty=st.booleans(), first_number=st.sampled_from([0, (1 << 32) - 3]), attached=st.booleans())
    def begin(self, sends_empty: bool, first_number: int, attached: bool) -> None:
        self.settled = self.starved = self.notified = self.priority_notifications = 0
        self.subpartition = PipelinedSubpartition(0, OneAtATime(), self._on_settled)
        self.subpartition.on_starved = self._on_starved
        self.subpartition._sequence = self.sequence = first_number
        self.sends_empty = sends_empty
        self.items: list[Item] = []
        self.flushed = 0  # bytes of the last item that a flush has promised
        self.builder: BufferBuilder | None = None
        self.segments = self.made = 0
        self.byte = 0
        self.checkpoint = 0
        self.attached = self.blocked = self.released = self.finished = self.acknowledged = False
        self.has_credit = True
        self.knows = False  # the reader was notified, or knows that more follows
        self.waits = False  # the writer, for the reader to be starved
        self.held: list[Buffer] = []
        self.kept: list[tuple[list[Buffer], bytes]] = []
        self.kept_runs = False  # the parts of such a run come back together
        if attached:
            self.attach()

    @rule(seed=st.integers(0, 1 << 16))
    def go_on(self, seed: int) -> None:
        """Some steps, each of which the seed chooses."""
        order = random.Random(seed)
        for _ in range(20):
            order.choices([step for step, _ in STEPS], [weight for _, weight in STEPS])[0](self, order)
            self.books_agree()

    # ---- what the subpartition tells

    def _on_data(self) -> None:
        assert not self.knows, "notified of data that it knows of"
        assert self.subpartition.is_available(True), "notified without data"
        self.knows = True

    def _on_priority(self) -> None:
        assert not self.blocked, "notified of a barrier that cannot be polled"
        self.priority_notifications += 1

    def _on_settled(self) -> None:
        self.settled += 1
        assert self.subpartition.is_settled or self.subpartition.is_released

    def _on_starved(self) -> None:
        assert self.waits, "notified of a starved reader without a request"
        assert self.is_starved, "notified of a reader that is not starved"
        self.waits = False

    def _back(self, *segments: MemorySegment) -> None:
        self.segments -= len(segments)
        assert self.segments >= 0, "a segment came back twice"

    # ---- the writer

    @property
    def takes(self) -> bool:
        return not self.released and not self.finished

    def _queue(self, item: Item) -> None:
        if self.takes:
            self.items.append(item)
            self.flushed = 0

    def _bytes(self, count: int) -> bytes:
        data = bytes((self.byte + at) % 251 for at in range(count))
        self.byte += count
        return data

    def _segment(self) -> MemorySegment:
        self.segments += 1
        self.made += 1
        return MemorySegment(self.made, memoryview(bytearray(SIZE)))

    def _finish_builder(self) -> None:
        if self.builder is not None:
            self.builder.finish()
            self.builder = None
            if self.takes and self.items and not self.items[-1].finished:
                self.items[-1].finished = True

    def fill(self, sizes: list[int], close: bool) -> None:
        """A task writes bit by bit: a buffer is queued empty, and filled in place."""
        for size in sizes:
            if self.builder is None:
                self.builder = BufferBuilder(self._segment(), self._back)
                self.subpartition.add(self.builder.create_consumer())
                self._queue(Item(finished=False))
                size = max(1, size)  # an element has some bytes; later there may be none left to see
            data = self._bytes(min(size, SIZE - self.builder.size))
            self.builder.append(memoryview(data))
            if self.takes and self.items and not self.items[-1].finished:
                self.items[-1].data += data
            if self.builder.is_full or close:
                self._finish_builder()
        self.subpartition.announce()

    def fill_run(self, segments: int, last: int) -> None:
        """Many segments in one step."""
        self._finish_builder()
        data = self._bytes((segments - 1) * SIZE + last)
        run = [self._segment() for _ in range(segments)]
        for at, segment in enumerate(run):
            part = data[at * SIZE :][:SIZE]
            segment.view[: len(part)] = part
        self.subpartition.add_filled(Buffer(run, 0, len(data), self._back))
        self._queue(Item(data, segments=segments))
        self.subpartition.announce()

    def event(self, kind: str | Alignment) -> None:
        self.checkpoint += 1
        marker = CancelMarker(self.checkpoint)
        event = CheckpointBarrier(self.checkpoint, 0, kind) if isinstance(kind, Alignment) else marker
        self._finish_builder()
        self.subpartition.add(EventConsumer(event))
        self._queue(Item(event=event, segments=0))
        self.subpartition.announce()

    def _keep(self, overtaken: list[Buffer], items: list[Item]) -> None:
        expected = b"".join(item.data for item in items)
        assert b"".join(view for buffer in overtaken for view in buffer.views) == expected, "not what is overtaken"
        assert all(buffer.size for buffer in overtaken), "an empty buffer is kept"
        self.kept.append((overtaken, expected))
        self.kept_runs |= any(item.segments > 1 for item in items)

    def _insert(self, barrier: CheckpointBarrier) -> None:
        at = 0
        while at < len(self.items) and (event := self.items[at].event) is not None and not _waits_in_order(event):
            at += 1
        self.items.insert(at, Item(event=barrier, segments=0))

    def overtake(self) -> None:
        self.checkpoint += 1
        barrier = CheckpointBarrier(self.checkpoint, 0, Alignment.UNALIGNED)
        notified = self.priority_notifications
        overtaken = self.subpartition.overtake(barrier)
        if self.takes:
            self._keep(overtaken, self.items)
            self._insert(barrier)
            if self.attached and not self.blocked:
                assert self.priority_notifications == notified + 1, "the reader was not notified of a priority barrier"
        else:
            assert overtaken == []

    def prioritise(self, back: int) -> None:
        """The timeout of a checkpoint has passed."""
        checkpoint = max(1, self.checkpoint - back)
        overtaken = self.subpartition.prioritise(checkpoint)
        at = next((at for at, item in enumerate(self.items) if _is_timed(item.event, checkpoint)), None)
        if at is None:
            assert overtaken is None, "a barrier overtakes that is not there"
            return
        assert overtaken is not None, "a barrier does not hear that its time has passed"
        event = self.items.pop(at).event
        assert isinstance(event, CheckpointBarrier)
        self._keep(overtaken, self.items[:at])
        self._insert(event.as_priority())

    def flush(self) -> None:
        knew = self.knows
        self.subpartition.flush()
        shows_nothing = len(self.items) == 1 and not (self.items[0].finished or self.items[0].data)
        assert not shows_nothing or self.knows == knew, "notified of a flush that shows nothing"
        if self.items:
            self.flushed = len(self.items[-1].data)

    def finish(self) -> None:
        self._finish_builder()
        self.subpartition.finish()
        if self.takes:
            self._queue(Item(event=EndOfPartition(), segments=0))
            self.finished = True

    def ask(self, notify: bool) -> None:
        """Whether the reader is starved."""
        starved = self.subpartition.watch_for_starvation(notify=notify)
        assert starved == self.is_starved
        self.waits = notify and not starved

    @property
    def is_starved(self) -> bool:
        reads = self.attached and self.has_credit and not self.blocked and not self.released
        return reads and not self.subpartition.is_available(True)

    # ---- the reader

    def attach(self) -> None:
        """There is one reader; another, and one that comes too late, is refused."""
        refused = self.attached or self.released
        try:
            self.attached = True
            self.subpartition.attach(self._on_data, self._on_priority, sends_empty=self.sends_empty)
        except ExchangeError:
            assert refused
            return
        finally:
            self.attached = self.attached and not self.released
        assert not refused, "two readers"

    def read_all(self, has_credit: bool) -> None:
        """Go on behind whatever blocks; then the credit changes."""
        for _ in range(3):
            if self.blocked:
                self.resume()
            self.read([5] * 20)
        self.has_credit = has_credit
        self.subpartition.credit_changed(has_credit)

    def read(self, limits: list[int]) -> None:
        for limit in limits:
            if self.attached and self.knows and not self.released:
                self.knows = False  # a notification during the poll is new
                polled = self.subpartition.poll(limit)
                assert sum(len(each.buffer.segments) for each in polled) <= limit, "more than was asked for"
                assert len(polled) == 1 or not any(each.is_event for each in polled), "an event in company"
                for each in polled:
                    self._check_polled(each)
                self._drop_passed()
                self.knows = bool(polled) and polled[-1].next_is_event is not None
                if not self.knows:
                    self._check_seen()

    def _check_polled(self, polled: PolledBuffer) -> None:
        assert not self.blocked, "something came from behind a barrier that blocks"
        assert polled.sequence == self.sequence, "numbers are not dense"
        self.sequence = (self.sequence + len(polled.buffer.segments)) & 0xFFFFFFFF
        content = b"".join(polled.buffer.views)
        if polled.is_event:
            self._skip_empty()
            item = self.items.pop(0)
            assert decode_event(content) == item.event, "another event"
            self.blocked = item.event is not None and blocks(item.event)
            polled.buffer.recycle()
        else:
            if content or not self.sends_empty:
                self._skip_empty()
            self._take(content, len(polled.buffer.segments))
            self.held.append(polled.buffer)

    def _skip_empty(self) -> None:
        while self.items and self.items[0].event is None and self.items[0].finished and not self.items[0].data:
            assert not self.sends_empty, "a finished buffer was not sent, and its credit stays"
            self.items.pop(0)

    def _drop_passed(self) -> None:
        """Empty buffers that the look has passed over, if there was anything that made it look behind them."""
        while self.items and self.items[0].finished and not (self.items[0].data or self.items[0].event):
            if self.sends_empty or self.subpartition.backlog == self._backlog:
                break
            self.items.pop(0)

    @property
    def _backlog(self) -> int:
        return sum(item.segments for item in self.items if item.event is None)

    def _take(self, content: bytes, segments: int) -> None:
        item = self.items[0]
        assert item.event is None, "lost, doubled or reordered"
        assert item.data[: len(content)] == content, "lost, doubled or reordered"
        assert content or (item.finished and self.sends_empty), "an empty buffer"
        item.data = item.data[len(content) :]
        if len(self.items) == 1:
            self.flushed = max(0, self.flushed - len(content))
        if item.finished and not item.data:
            self.items.pop(0)
        elif item.segments > 1:
            item.segments -= segments

    def _check_seen(self) -> None:
        """The reader will not poll again before it is notified."""
        if not self.blocked:
            assert not any(item.has_something for item in self.items), "the reader went away too early"
            assert not (self.items and self.flushed), "a flush was not heeded"

    def read_priority(self) -> None:
        if self.attached and not self.released:
            event = self.subpartition.poll_priority()
            first = self.items[0].event if self.items and not self.blocked else None
            expected = first if first is not None and not _waits_in_order(first) else None
            assert event == expected, "not the barrier that overtakes"
            if event is not None:
                self.items.pop(0)
                self.sequence = (self.sequence + 1) & 0xFFFFFFFF

    def resume(self) -> None:
        was_blocked, self.blocked = self.blocked, False
        try:
            self.subpartition.resume()
        except ExchangeError:
            assert not was_blocked
            assert not self.released
        else:
            assert was_blocked or self.released, "went on though no barrier blocks"

    def recycle(self, count: int) -> None:
        """Recycle polled and overtaken buffers. Overtaken ones must still have their bytes."""
        recycle_all(self.held[:count])
        del self.held[:count]
        for overtaken, expected in self.kept:
            assert b"".join(view for buffer in overtaken for view in buffer.views) == expected, "came back too early"
            recycle_all(overtaken)
        self.kept = []

    def acknowledge(self) -> None:
        self.acknowledged = True
        settled = self.settled
        self.subpartition.acknowledge()
        assert self.settled == settled + 1, "the acknowledgement was not reported"

    def release(self) -> None:
        settled, was_released = self.settled, self.released
        self.released = True
        self.items, self.flushed = [], 0
        self.subpartition.release()
        assert self.settled == settled + (not was_released), "the release was not reported exactly once"

    # ---- what always holds

    def books_agree(self) -> None:
        subpartition = self.subpartition
        subpartition.validate()
        backlog = self._backlog
        assert subpartition.backlog == backlog, f"backlog {subpartition.backlog}, but {backlog} buffers are queued"
        assert subpartition.queued_bytes == sum(len(item.data) for item in self.items)
        assert subpartition.queue_length == backlog + sum(item.event is not None for item in self.items)
        assert subpartition.is_settled == self.acknowledged
        self._check_reported(backlog)
        self._check_known()
        if not self.kept and not self.held:
            expected = backlog + (self.builder is not None and not self._is_queued)
            self.kept_runs &= bool(self.items)
            assert self.segments == expected or (self.kept_runs and self.segments > expected), (
                f"{self.segments} segments are out, but {expected} are used"
            )

    @property
    def _is_queued(self) -> bool:
        """The buffer that is being filled is in the queue still."""
        return bool(self.items) and not self.items[-1].finished

    def _check_reported(self, backlog: int) -> None:
        reported = self.subpartition.reported_backlog
        if self.blocked or not self.items:
            assert reported == 0, "a backlog that cannot be sent"
        elif self.finished or self.items[-1].finished or self.flushed:
            assert reported == backlog, f"reports {reported} of {backlog}"
        elif len(self.items) == 1:
            assert reported <= backlog - (not self.subpartition.is_available(True)), "reports what cannot be sent"
        else:
            assert backlog - 1 <= reported <= backlog

    def _check_known(self) -> None:
        """Nobody stands still who could go on."""
        subpartition = self.subpartition
        available = subpartition.is_available(True)
        if self.blocked:
            assert not available, "available behind a barrier that blocks"
            assert not subpartition.is_available(False), "available behind a barrier that blocks"
        else:
            shows = any(item.has_something for item in self.items) or bool(self.items and self.flushed)
            assert available or not shows, "something is there, and not available"
            at_head = bool(self.items) and self.items[0].event is not None
            assert subpartition.is_available(False) == at_head, "events alone need no credit"
            in_order = [item for item in self.items if item.event is None or _waits_in_order(item.event)]
            tells = any(item.has_something for item in in_order) or bool(in_order and self.flushed)
            assert self.knows or not (tells and self.attached), "the reader was not notified"
        assert not (self.waits and self.is_starved), "the writer was not notified of its starved reader"

    def teardown(self) -> None:
        if not hasattr(self, "subpartition"):
            return
        self._finish_builder()
        self.release()
        self.recycle(len(self.held))
        self.fill([1], True)
        self.fill_run(2, 1)
        self.event("cancel")
        assert self.segments == 0, f"{self.segments} segments are lost"


def _waits_in_order(event: Event) -> bool:
    return not (isinstance(event, CheckpointBarrier) and event.alignment is Alignment.UNALIGNED)


def _is_timed(event: Event | None, checkpoint: int) -> bool:
    timed = isinstance(event, CheckpointBarrier) and event.alignment is Alignment.TIMEOUT
    return timed and isinstance(event, CheckpointBarrier) and event.id == checkpoint


def _write(machine: SubpartitionMachine, order: random.Random) -> None:
    if order.random() < 0.7:
        machine.fill([order.randint(0, SIZE) for _ in range(order.randint(1, 3))], order.random() < 0.5)
    else:
        machine.fill_run(order.randint(1, 4), order.randint(1, SIZE))


def _event(machine: SubpartitionMachine, order: random.Random) -> None:
    machine.event(order.choice(["cancel", Alignment.ALIGNED, Alignment.TIMEOUT, Alignment.TIMEOUT]))  # type: ignore[arg-type]


def _overtake(machine: SubpartitionMachine, order: random.Random) -> None:
    if order.random() < 0.4:  # nothing is there to be overtaken
        machine.read_all(True)
    machine.overtake() if order.random() < 0.5 else machine.prioritise(order.randint(0, 3))
    if order.random() < 0.4:
        machine.ask(True)
        machine.read_priority()


def _read(machine: SubpartitionMachine, order: random.Random) -> None:
    machine.read([order.randint(1, 5) for _ in range(order.randint(1, 3))])


def _read_all(machine: SubpartitionMachine, order: random.Random) -> None:
    machine.read_all(order.random() < 0.5)


def _read_out_of_order(machine: SubpartitionMachine, order: random.Random) -> None:
    machine.read_priority() if order.random() < 0.5 else machine.resume()


def _ask(machine: SubpartitionMachine, order: random.Random) -> None:
    machine.ask(order.random() < 0.7)


def _end(machine: SubpartitionMachine, order: random.Random) -> None:
    """What comes once, or makes an end of most."""
    ends = [machine.finish, machine.release] if machine.checkpoint > 10 else []
    order.choice([machine.attach, machine.attach, machine.acknowledge, *ends])()


#: What may happen, and how often.
STEPS: list[tuple[Callable[[SubpartitionMachine, random.Random], None], int]] = [
    (_write, 10),
    (_event, 3),
    (_overtake, 3),
    (lambda machine, order: machine.flush(), 4),
    (_read, 5),
    (_read_all, 5),
    (_read_out_of_order, 3),
    (_ask, 4),
    (lambda machine, order: machine.recycle(order.randint(1, 3)), 3),
    (_end, 2),
]
