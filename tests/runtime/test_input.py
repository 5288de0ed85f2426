"""A task's input: batches joined up to a message's size, one event time, all gates in turn, and the end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.exchange.gate import InputGate
from headgate.memory.buffer import Buffer
from headgate.memory.segment import MemorySegment
from headgate.records.arrow import BatchCodec
from headgate.records.elements import MAX_TIME, Anchor, LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.records.events import (
    Alignment,
    Announcement,
    CancelMarker,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Event,
)
from headgate.records.spanning import Element, SpanningDeserializer, serialize
from headgate.runtime.control_messages import Part
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.heads import MORE, InputHead
from headgate.runtime.task.in_flight import InFlight
from headgate.runtime.task.input import TaskInput
from tests.examples import examples
from tests.exchange.scripted import ScriptedChannel

SCHEMA = pa.schema({"n": pa.int64()})
CODEC = BatchCodec(SCHEMA)
ROW = 8
END = (EndOfData(), EndOfPartition())


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


class Channel(ScriptedChannel):
    """Has events that overtake, too, and notes what it is asked to tell its producer."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.urgent: deque[Event] = deque()
        self.asked: list[str] = []

    def poll_priority(self) -> Event | None:
        return self.urgent.popleft() if self.urgent else None

    def bytes_before(self, checkpoint: int) -> int:
        return self.bytes_polled + sum(item.size for item in self.items if isinstance(item, Buffer))

    def peek(self, size: int) -> list[memoryview]:
        return [memoryview(b"".join(item.views)) for item in self.items if isinstance(item, Buffer)]

    def resume(self) -> None:
        self.asked.append("resume")

    def prioritise(self, checkpoint: int) -> None:
        self.asked.append(f"prioritise {checkpoint}")

    def acknowledge(self) -> None:
        self.asked.append("acknowledge")


class Fed:
    """An input of several gates, fed by hand; every buffer must be given back."""

    def __init__(
        self, *channels: int, message_size: int = 1 << 20, ports: Sequence[int] | None = None, joined_messages: int = 1
    ) -> None:
        self.out = 0
        self.gates = []
        for count in channels:
            gate = InputGate(lambda: None)
            gate.channels = [Channel(index) for index in range(count)]
            self.gates.append(gate)
        self.parts: list[Part] = []
        self.barriers = TaskBarriers("task", self.gates, [], self.parts.append)
        self.input = TaskInput(
            self.gates,
            [CODEC] * len(channels),
            message_size,
            self.barriers,
            ports=ports,
            joined_messages=joined_messages,
        )

    def feed(self, gate: int, channel: int, *elements: Element | Event, cut: int = 1 << 20) -> None:
        """Elements in buffers of `cut` bytes, in a few segments each; events in between."""
        stream = b""
        for element in elements:
            if isinstance(element, Event):
                self._buffers(gate, channel, stream, cut)
                self._put(gate, channel, element)
                stream = b""
            else:
                stream += b"".join(map(bytes, serialize(element, CODEC)))
        self._buffers(gate, channel, stream, cut)

    def _buffers(self, gate: int, channel: int, stream: bytes, cut: int) -> None:
        size = max(1, cut // 3)
        for at in range(0, len(stream), cut):
            part = memoryview(stream[at : at + cut])
            segments = [MemorySegment(0, part[start : start + size]) for start in range(0, len(part), size)]
            self.out += len(segments)
            self._put(gate, channel, Buffer(segments, 0, len(part), self._back))

    def _back(self, *segments: MemorySegment) -> None:
        self.out -= len(segments)

    def _put(self, gate: int, channel: int, item: Buffer | Event) -> None:
        self.channel(gate, channel).items.append(item)
        self.gates[gate].notify(channel)

    def channel(self, gate: int, index: int) -> Channel:
        found = self.gates[gate].channels[index]
        assert isinstance(found, Channel)
        return found

    def next(self) -> object:
        """The next thing to do; a batch as the tuple of its values."""
        while (element := self.input.next()) is None and self.input.catch_up():
            pass
        return tuple(element.column(0).to_pylist()) if isinstance(element, pa.RecordBatch) else element

    def all(self) -> list[object]:
        """All there is to do now."""
        done = []
        while (element := self.next()) is not None:
            done.append(element)
        return done


# ---- rows


def test_small_batches_that_are_there_together_are_joined() -> None:
    fed = Fed(2)
    fed.feed(0, 0, rows(1), rows(2, 3))
    fed.feed(0, 1, rows(10))
    assert fed.all() == [(1, 2, 3, 10)]
    assert fed.input.rows_in == 4
    assert fed.out == 0


def test_they_are_joined_up_to_about_a_message() -> None:
    fed = Fed(1, message_size=3 * ROW)
    fed.feed(0, 0, *[rows(n) for n in range(8)])
    assert fed.all() == [(0, 1, 2), (3, 4, 5), (6, 7)]


def test_messages_of_few_rows_are_joined() -> None:
    fed = Fed(1, message_size=2 * ROW, joined_messages=2)
    fed.input.took(0.01)
    fed.feed(0, 0, *[rows(n) for n in range(10)])
    assert fed.all() == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]


def test_more_messages_are_joined_after_each_quick_batch_and_only_one_after_a_slow_one() -> None:
    fed = Fed(1, message_size=ROW, joined_messages=4)
    fed.feed(0, 0, *[rows(n) for n in range(20)])
    sizes = []
    for seconds in (0.0, 0.09, 0.09, 0.09, 0.11, 5.0, 0.0):
        batch = fed.next()
        assert isinstance(batch, tuple)
        sizes.append(len(batch))
        fed.input.took(seconds)
    assert sizes == [1, 2, 4, 4, 4, 1, 1]
    assert fed.next() == (17, 18)


def test_the_head_measures_from_one_step_to_the_next() -> None:
    """So a wait for the output after a batch counts, too, but no wait for rows."""
    fed = Fed(1, message_size=ROW, joined_messages=4)
    sizes: list[int] = []
    output = SimpleNamespace(emit=lambda batch: sizes.append(batch.num_rows))
    head = InputHead(fed.input, cast(Any, output))
    fed.feed(0, 0, *[rows(n) for n in range(12)])
    for now in (0.0, 0.01, 0.02, 5.0, 5.01):
        head.step(now)
    assert sizes == [1, 2, 4, 1, 2]
    fed.feed(0, 0, *[rows(n) for n in range(20)])
    for now in (5.02, 5.03):
        head.step(now)
    assert sizes[5:] == [4, 4]
    while head.step(5.04) == MORE:
        pass
    fed.feed(0, 0, *[rows(n) for n in range(20)])
    head.step(90.0)
    assert sizes[-1] == 4


def test_messages_of_many_rows_are_not_joined() -> None:
    fed = Fed(1, message_size=8192 * ROW, joined_messages=2)
    fed.input.took(0.01)
    for _ in range(4):
        fed.feed(0, 0, rows(*range(8192)))
    assert [len(batch) for batch in fed.all() if isinstance(batch, tuple)] == [8192] * 4
    fed.feed(0, 0, rows(*range(8192)), rows(1))
    assert [len(batch) for batch in fed.all() if isinstance(batch, tuple)] == [8192, 1]


@pytest.mark.parametrize(("length", "sizes"), [(500, [20]), (1500, [2] * 10), (3000, [1] * 20)])
def test_messages_of_wide_rows_are_not_joined(length: int, sizes: list[int]) -> None:
    schema = pa.schema({"text": pa.string()})
    gate = InputGate(lambda: None)
    gate.channels = [Channel(0)]
    barriers = TaskBarriers("task", [gate], [], lambda _part: None)
    made = TaskInput([gate], [BatchCodec(schema)], 2000, barriers, joined_messages=8)
    for _ in range(3):
        made.took(0.01)
    made.restore([(0, pa.record_batch({"text": ["x" * length]}, schema=schema))] * 20)
    found = []
    while isinstance(batch := made.next(), pa.RecordBatch):
        found.append(batch.num_rows)
    assert found == sizes


def test_a_batch_of_a_message_is_handed_on_as_it_is() -> None:
    fed = Fed(1, message_size=2 * ROW)
    fed.feed(0, 0, rows(1, 2), rows(3, 4))
    assert fed.all() == [(1, 2), (3, 4)]


def test_nothing_is_waited_for() -> None:
    fed = Fed(1)
    assert fed.next() is None
    fed.feed(0, 0, rows(1))
    assert fed.next() == (1,)
    assert fed.next() is None


def test_a_latency_marker_waits_for_the_rows_before_it_and_no_others() -> None:
    fed = Fed(1, message_size=ROW)
    marker = LatencyMarker(1, 2, 3)
    fed.feed(0, 0, rows(1), marker, rows(2), rows(3))
    assert fed.all() == [(1,), marker, (2,), (3,)]


def test_no_more_is_taken_from_the_channels_than_asked_for() -> None:
    fed = Fed(1, message_size=ROW)
    for n in range(3):
        fed.feed(0, 0, rows(n))
    assert fed.next() == (0,)
    assert fed.out == 2, "credit of the others has not come back"


def test_an_element_over_many_buffers_comes_when_it_is_whole() -> None:
    fed = Fed(1)
    fed.feed(0, 0, rows(*range(50)), cut=7)
    last = fed.channel(0, 0).items.pop()
    assert isinstance(last, Buffer)
    assert fed.next() is None
    assert fed.out == len(last.segments)
    fed._put(0, 0, last)
    assert fed.next() == tuple(range(50))
    assert fed.out == 0


def test_damage_gives_the_buffer_back_all_the_same() -> None:
    fed = Fed(1)
    fed._buffers(0, 0, b"\xff" * 20, 20)
    with pytest.raises(ExchangeError, match="stream corrupted"):
        fed.next()
    assert fed.out == 0


def test_a_failed_channel_fails_the_input() -> None:
    fed = Fed(1)
    fed.feed(0, 0, rows(1))
    fed.channel(0, 0).items.append(ExchangeError("broken"))
    with pytest.raises(ExchangeError, match="broken"):
        fed.all()


# ---- gates


def test_the_gates_of_a_union_have_a_buffer_each_in_turn() -> None:
    fed = Fed(1, 1, message_size=ROW)
    for n in range(3):
        fed.feed(0, 0, rows(n))
        fed.feed(1, 0, rows(10 + n))
    assert fed.all() == [(0,), (10,), (1,), (11,), (2,), (12,)]


def test_an_empty_gate_costs_the_others_nothing() -> None:
    fed = Fed(1, 2, 1, message_size=ROW)
    for n in range(3):
        fed.feed(1, 1, rows(n))
    assert fed.all() == [(0,), (1,), (2,)]


def test_each_channel_of_each_gate_gathers_for_itself() -> None:
    fed = Fed(2, 2)
    values = 0
    for gate in range(2):
        for channel in range(2):
            fed.feed(gate, channel, rows(values), cut=5)
            values += 1
    assert fed.next() is not None
    assert fed.input.rows_in == 4


# ---- event time


def test_a_watermark_follows_the_rows_before_it() -> None:
    fed = Fed(1)
    fed.feed(0, 0, rows(1), WatermarkElement(5))
    assert fed.all() == [(1,), WatermarkElement(5)]


def test_of_several_watermarks_the_last_counts() -> None:
    fed = Fed(1)
    fed.feed(0, 0, rows(1), WatermarkElement(5), rows(2), WatermarkElement(6))
    assert fed.all() == [(1, 2), WatermarkElement(6)]


def test_a_watermark_does_not_wait_for_rows_of_later_messages() -> None:
    fed = Fed(1, message_size=2 * ROW)
    fed.feed(0, 0, rows(1), WatermarkElement(5), rows(2), rows(3))
    assert fed.all() == [(1, 2), WatermarkElement(5), (3,)]


def test_the_slowest_channel_of_all_gates_makes_the_watermark() -> None:
    fed = Fed(2, 1)
    fed.feed(0, 0, WatermarkElement(5))
    fed.feed(0, 1, WatermarkElement(7))
    assert fed.all() == []
    fed.feed(1, 0, WatermarkElement(6))
    assert fed.all() == [WatermarkElement(5)]


def test_a_status_comes_after_the_rows_and_the_watermark_before_it() -> None:
    fed = Fed(1)
    fed.feed(0, 0, rows(1), WatermarkElement(5), WatermarkStatus(False), WatermarkStatus(True), rows(2))
    assert fed.all() == [(1,), WatermarkElement(5), WatermarkStatus(False), WatermarkStatus(True), (2,)]


def test_an_idle_channel_lets_the_others_go_on() -> None:
    fed = Fed(2)
    fed.feed(0, 0, WatermarkElement(5))
    fed.feed(0, 1, WatermarkStatus(False))
    assert fed.all() == [WatermarkElement(5)]


# ---- the end


def test_the_end_is_when_all_channels_have_ended_and_all_is_handed_out() -> None:
    fed = Fed(1, 1)
    fed.feed(0, 0, rows(1), *END)
    assert fed.all() == [(1,)]
    assert not fed.input.is_finished
    fed.feed(1, 0, rows(2), WatermarkElement(MAX_TIME), *END)
    assert not fed.input.is_finished
    assert fed.next() == (2,)
    assert not fed.input.is_finished
    assert fed.next() == WatermarkElement(MAX_TIME)
    assert not fed.input.is_finished
    assert fed.next() is None
    assert fed.input.is_finished


def test_the_end_of_data_alone_is_not_the_end() -> None:
    fed = Fed(1)
    fed.feed(0, 0, EndOfData())
    assert fed.all() == []
    assert not fed.input.is_finished
    fed.feed(0, 0, EndOfPartition())
    assert fed.all() == [WatermarkElement(MAX_TIME)]
    assert fed.input.is_finished


def test_an_ended_channel_holds_back_no_watermark() -> None:
    fed = Fed(2)
    fed.feed(0, 0, WatermarkElement(5))
    fed.feed(0, 1, *END)
    assert fed.all() == [WatermarkElement(5)]


def test_when_only_idle_channels_are_left_the_task_is_idle_and_keeps_its_time() -> None:
    fed = Fed(2)
    fed.feed(0, 0, WatermarkElement(5), WatermarkStatus(False))
    fed.feed(0, 1, WatermarkElement(5), *END)
    assert fed.all() == [WatermarkElement(5), WatermarkStatus(False)]
    fed.feed(0, 0, WatermarkStatus(True), rows(1), WatermarkElement(6))
    assert fed.all() == [WatermarkStatus(True), (1,), WatermarkElement(6)]


# ---- all together

ELEMENT = st.one_of(
    st.lists(st.integers(0, 9), min_size=1, max_size=5).map(lambda values: rows(*values)),
    st.just("watermark"),
    st.booleans().map(WatermarkStatus),
)


@settings(deadline=None, max_examples=examples(150))
@given(
    st.lists(st.lists(ELEMENT, max_size=6), min_size=2, max_size=4),
    st.integers(1, 100),
    st.sampled_from([3 * ROW, 1 << 20]),
    st.lists(st.integers(0, 3), max_size=30),
)
def test_rows_keep_their_order_and_no_watermark_overtakes_them(
    channels: list[list[object]], cut: int, message_size: int, turns: list[int]
) -> None:
    """Watermarks count the rows before them on their channel, so the task's says how many rows must have come."""
    fed = Fed(1, len(channels) - 1, message_size=message_size)
    streams: list[list[Element | Event]] = []
    for number, script in enumerate(channels):
        stream, count = [], 0
        for element in script:
            if isinstance(element, pa.RecordBatch):
                stream.append(rows(*(1000 * number + count + at for at in range(element.num_rows))))
                count += element.num_rows
            else:
                stream.append(WatermarkElement(count) if element == "watermark" else element)
        streams.append([*stream, *END])
    never_idle = all(not isinstance(element, WatermarkStatus) for script in channels for element in script)
    seen: list[list[int]] = [[] for _ in channels]
    last = -1

    def look() -> None:
        nonlocal last
        for element in fed.all():
            if isinstance(element, WatermarkElement):
                assert element.time > last
                last = element.time
                if never_idle and element.time < MAX_TIME:
                    assert all(len(values) >= min(element.time, total(number)) for number, values in enumerate(seen))
            elif isinstance(element, tuple):
                for value in element:
                    seen[value // 1000].append(value % 1000)

    def total(number: int) -> int:
        return sum(element.num_rows for element in channels[number] if isinstance(element, pa.RecordBatch))

    for turn in [*turns, *sorted(list(range(4)) * 10)]:
        number = turn % len(streams)
        if streams[number]:
            fed.feed(min(number, 1), max(0, number - 1), streams[number].pop(0), cut=cut)
            look()
    assert seen == [list(range(total(number))) for number in range(len(channels))]
    assert fed.input.is_finished
    assert fed.out == 0
    assert last == MAX_TIME


# ---- barriers and acknowledgements

ALIGNED = CheckpointBarrier(1, 1_000_000)
PRIORITY = CheckpointBarrier(1, 1_000_000, Alignment.UNALIGNED)


def asked(fed: Fed) -> list[list[str]]:
    return [channel.asked for gate in fed.gates for channel in gate.channels if isinstance(channel, Channel)]


def test_an_aligned_barrier_waits_for_the_rows_before_it_and_for_the_other_channels() -> None:
    fed = Fed(1, 1)
    fed.feed(0, 0, rows(1), ALIGNED)
    assert fed.next() == (1,)
    assert fed.next() is None
    assert fed.parts == []
    assert asked(fed) == [[], []]
    fed.feed(1, 0, rows(2), ALIGNED, rows(3))
    assert fed.next() == (2,)
    assert fed.parts == [], "the rows before it are still being worked on"
    assert fed.all() == [(3,)]
    assert asked(fed) == [["resume"], ["resume"]]
    [part] = fed.parts
    assert (part["checkpoint"], part["task"], part["unaligned"], part["aborted"]) == (1, "task", False, False)
    assert part["start_delay_s"] <= part["triggered_s"] <= part["completed_s"]


def test_a_priority_barrier_is_due_at_once_and_counts_what_it_overtakes() -> None:
    fed = Fed(2)
    fed.feed(0, 0, rows(*range(50)), cut=7)
    channel = fed.channel(0, 0)
    queued = sum(item.size for item in channel.items if isinstance(item, Buffer))
    assert fed.barriers.deadline is None
    for index in (1, 0):
        fed.channel(0, index).urgent.append(PRIORITY)
        fed.gates[0].notify_priority(index)
        assert fed.barriers.deadline == 0.0
        fed.barriers.on_time(0.0)
    [part] = fed.parts
    assert part["unaligned"]
    assert part["overtaken_in_bytes"] == queued
    assert fed.all() == [tuple(range(50))]


class Keeper:
    """Notes what becomes of each checkpoint."""

    def __init__(self) -> None:
        self.captured: list[int] = []
        self.stored: dict[int, InFlight] = {}
        self.dropped: dict[int, str] = {}

    def capture(self, checkpoint: int) -> None:
        self.captured.append(checkpoint)

    def store(self, checkpoint: int, in_flight: InFlight) -> None:
        self.stored[checkpoint] = in_flight

    def drop(self, checkpoint: int, reason: str) -> None:
        self.dropped[checkpoint] = reason


def urgent(fed: Fed, channel: int, event: Event) -> None:
    """An event overtakes what is queued."""
    fed.channel(0, channel).urgent.append(event)
    fed.gates[0].notify_priority(channel)
    fed.barriers.on_time(0.0)


def in_flight(pieces: list[memoryview]) -> list[int]:
    elements = SpanningDeserializer(CODEC).feed(pieces)
    return [n for batch in elements if isinstance(batch, pa.RecordBatch) for n in batch.column(0).to_pylist()]


def test_what_is_read_until_a_channels_barrier_comes_belongs_to_the_checkpoint() -> None:
    """Rows that were read and wait, those that are read later, and those that stand before the barrier."""
    fed = Fed(2, message_size=ROW)
    capturer = fed.barriers.capturer = Keeper()
    fed.feed(0, 1, rows(1), rows(2), rows(3))
    assert fed.next() == (1,)
    urgent(fed, 0, PRIORITY)
    assert capturer.captured == [1]
    assert not capturer.stored
    fed.feed(0, 1, rows(4))
    fed.feed(0, 0, rows(10))
    assert fed.all() == [(2,), (3,), (4,), (10,)]
    fed.feed(0, 1, rows(5), WatermarkElement(7), rows(6))
    urgent(fed, 1, PRIORITY)
    assert [in_flight(pieces) for pieces in capturer.stored[1].inputs] == [[], [2, 3, 4, 5, 6]]
    fed.feed(0, 1, rows(8))
    assert fed.all() == [(5,), (6,), (8,)]
    assert fed.barriers.recording is None


@pytest.mark.parametrize("ending", [CancelMarker(1), CheckpointBarrier(2, 1_000_000)])
def test_an_interrupted_checkpoint_stores_nothing(ending: Event) -> None:
    fed = Fed(2)
    capturer = fed.barriers.capturer = Keeper()
    urgent(fed, 0, PRIORITY)
    fed.feed(0, 1, rows(*range(50)), ending, cut=7)
    assert fed.all() == [tuple(range(50))]
    assert capturer.captured == [1]
    assert list(capturer.dropped) == [1]
    assert not capturer.stored
    assert fed.barriers.recording is None
    assert fed.barriers._in_flight == InFlight()


def test_what_was_in_flight_comes_first() -> None:
    fed = Fed(1, 1)
    fed.feed(0, 0, rows(3), *END)
    fed.feed(1, 0, rows(4), *END)
    fed.input.restore([(0, rows(1)), (1, rows(2))])
    capturer = fed.barriers.capturer = Keeper()
    fed.barriers.inject(PRIORITY)
    fed.barriers.on_time(0.0)
    assert [in_flight(pieces) for pieces in capturer.stored[1].inputs] == [[1], [2]], "it still is"
    assert fed.all()[0] == (1, 2, 3, 4)


def test_a_timeout_turns_announced_barriers_urgent() -> None:
    fed = Fed(2)
    timed = CheckpointBarrier(1, round(time.time() * 1e6), Alignment.TIMEOUT, 3600_000_000)
    fed.channel(0, 0).urgent.append(Announcement(3, timed))
    fed.gates[0].notify_priority(0)
    fed.barriers.on_time(time.monotonic())
    deadline = fed.barriers.deadline
    assert deadline is not None
    assert 3000 < deadline - time.monotonic() <= 3600
    assert asked(fed) == [[], []]
    fed.barriers.on_time(deadline)
    assert asked(fed) == [["prioritise 1"], []]
    assert fed.parts == []
    fed.feed(0, 1, timed)
    assert fed.all() == []
    assert asked(fed) == [["prioritise 1", "resume"], ["resume"]]
    assert fed.parts[0]["unaligned"]
    assert fed.barriers.deadline is None


def test_a_counted_barrier_blocks_no_channel() -> None:
    fed = Fed(2)
    counted = CheckpointBarrier(1, 1_000_000, Alignment.COUNTED)
    fed.feed(0, 0, rows(1), counted, rows(2))
    assert fed.all() == [(1,), (2,)]
    assert fed.parts == [], "a row from behind it is worked on before the part is taken"
    fed.feed(0, 1, counted)
    assert fed.all() == []
    assert asked(fed) == [[], []]
    assert not fed.parts[0]["unaligned"]
    assert not fed.parts[0]["aborted"]


def test_a_cancel_marker_ends_a_checkpoint_and_lets_channels_go_on() -> None:
    fed = Fed(2)
    fed.feed(0, 0, ALIGNED)
    fed.feed(0, 1, CancelMarker(1))
    assert fed.all() == []
    assert asked(fed) == [["resume"], []]
    assert fed.parts[0]["aborted"]


def test_a_channel_is_acknowledged_when_its_rows_have_been_worked_on() -> None:
    fed = Fed(2)
    fed.feed(0, 1, rows(1), EndOfData())
    assert fed.next() == (1,)
    assert asked(fed) == [[], []]
    assert fed.next() is None
    assert asked(fed) == [[], ["acknowledge"]]


def test_batches_of_two_ports_stay_apart_and_come_before_the_watermark() -> None:
    fed = Fed(1, 2, ports=[0, 1])
    fed.feed(0, 0, rows(1), rows(2), WatermarkElement(7))
    fed.feed(1, 0, rows(3), WatermarkElement(5))
    fed.feed(1, 1, rows(4, 5), WatermarkElement(9))
    by_port: dict[int, list[int]] = {0: [], 1: []}
    while isinstance(element := fed.next(), tuple):
        by_port[fed.input.port] += element
    assert {port: sorted(values) for port, values in by_port.items()} == {0: [1, 2], 1: [3, 4, 5]}
    assert element == WatermarkElement(5), "the lowest of both ports, behind all rows"
    assert fed.input.rows_in == 5


def test_what_waits_behind_a_batch_of_another_port_is_held() -> None:
    """A barrier that overtakes comes between the two batches: the second one is in flight."""
    fed = Fed(1, 2, ports=[0, 1])
    fed.feed(0, 0, rows(1))
    fed.feed(1, 0, rows(2))
    fed.feed(1, 1, rows(3, 4))
    first = fed.next()
    assert fed.barriers.held is not None
    held = [b"".join(map(bytes, views)) for views in fed.barriers.held()]
    wanted = [(1,), (2,), (3, 4)]
    assert [bool(content) for content in held] == [values != first for values in wanted]
    assert held[2] == b"".join(map(bytes, serialize(rows(3, 4), CODEC)))


def test_an_id_that_only_a_throttle_sends_is_corruption() -> None:
    fed = Fed(1)
    fed.feed(0, 0, Anchor(1, 2), rows(1))
    with pytest.raises(ExchangeError, match="channel 0 has an Anchor, which only a throttle sends"):
        fed.all()
