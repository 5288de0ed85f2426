"""The gates of a writer: what they hold back, what passes, and when the task must wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pytest

from headgate.exchange.gated_output import GatedOutput, SendGate
from headgate.exchange.selectors import Broadcast, Rebalance
from headgate.records.elements import WatermarkElement
from headgate.records.events import Alignment, CheckpointBarrier, EndOfData
from tests.exchange.rig import Rig, rows

BARRIER = CheckpointBarrier(1, 0, Alignment.ALIGNED)


class Gate:
    """A gate that a test opens and closes. It lets `room` bytes be held while it is closed."""

    def __init__(self) -> None:
        self.is_open = True
        self.room = 0
        self.asked = 0
        self.messages = 0
        self.opened: Callable[[], None] = lambda: None

    def may_send(self) -> bool:
        self.asked += 1
        return self.is_open

    def may_hold(self, size: int) -> bool:
        return size < self.room

    def sent(self, size: int) -> None:
        self.messages += size > 100  # a watermark is smaller

    def open(self) -> None:
        self.is_open = True
        self.opened()


class Gated(Rig):
    """A rig with a gate for each channel. `mail` is what the gates have sent to the task."""

    def __init__(self, channels: int = 1, *, segments: int = 100, segment: int = 4096, broadcast: bool = False) -> None:
        self.gates = [Gate() for _ in range(channels)]
        gates: list[SendGate] = [*self.gates]
        self.mail: list[Callable[[], None]] = []
        super().__init__(
            Broadcast(channels) if broadcast else Rebalance(channels, 0),
            channels,
            segment=segment,
            segments=segments,
            message_size=1 << 20,
            buffer_timeout=0,
            gated=partial(GatedOutput, gates=gates, put_mail=self.mail.append),
        )

    def emit(self, *batches: pa.RecordBatch) -> None:
        for batch in batches:
            self.writer.emit(batch)
        self.writer.validate()

    def open(self, channel: int = 0) -> None:
        """Open a gate, and let the task run its mail."""
        self.gates[channel].open()
        while self.mail:
            self.mail.pop(0)()
        self.writer.validate()


@pytest.fixture
def rig() -> Iterator[Gated]:
    rig = Gated()
    yield rig
    rig.close()


def test_an_open_gate_is_asked_once_for_each_message_and_told_of_it(rig: Gated) -> None:
    rig.emit(rows(0, 2), rows(2, 1))
    assert rig.read() == ((0, 1), (2,))
    assert (rig.gates[0].asked, rig.gates[0].messages) == (2, 2)
    assert rig.writer.is_available
    assert not rig.writer.is_gated


def test_a_closed_gate_holds_the_message_and_all_behind_it(rig: Gated) -> None:
    rig.gates[0].is_open = False
    rig.emit(rows(0, 1), rows(1, 1))
    rig.writer.emit_watermark(7)
    rig.writer.write_barrier(BARRIER)
    assert rig.read() == ()
    assert not rig.writer.is_available
    assert rig.writer.is_gated
    assert not rig.writer.drain()
    rig.open()
    assert rig.read() == ((0,), (1,), WatermarkElement(7), BARRIER)
    assert rig.writer.is_available
    assert not rig.writer.is_gated


def test_watermarks_and_events_pass_a_closed_gate(rig: Gated) -> None:
    rig.gates[0].is_open = False
    rig.writer.emit_watermark(7)
    rig.writer.finish()
    rig.writer.write_barrier(BARRIER)
    assert rig.read() == (WatermarkElement(7), EndOfData(), BARRIER)
    assert rig.gates[0].asked == 0


def test_an_urgent_barrier_overtakes_what_a_gate_holds(rig: Gated) -> None:
    rig.gates[0].is_open = False
    rig.emit(rows(0, 1))
    urgent = CheckpointBarrier(1, 0, Alignment.UNALIGNED)
    (overtaken,) = rig.writer.overtake(urgent)
    assert sum(map(len, overtaken)) == rig.writer.pending_bytes > 0
    assert rig.partition.subpartitions[0].poll_priority() == urgent
    rig.open()
    assert rig.read() == ((0,),)


def test_only_the_channel_of_the_closed_gate_holds_back() -> None:
    rig = Gated(2, broadcast=True)
    rig.gates[1].is_open = False
    rig.emit(rows(0, 1))
    assert rig.read_all() == [((0,),), ()]
    assert not rig.writer.is_available
    rig.open(1)
    assert rig.read_all() == [(), ((0,),)]
    rig.close()


def test_while_a_gate_lets_it_hold_bytes_the_task_goes_on_and_an_open_gate_lets_them_go() -> None:
    rig = Gated()
    rig.gates[0].is_open, rig.gates[0].room = False, 1000
    rig.emit(rows(0, 1))
    assert rig.writer.is_available
    assert not rig.writer.is_gated
    held = rig.writer.pending_bytes
    while rig.writer.is_available:
        rig.emit(rows(1, 1))
    assert 1000 <= rig.writer.pending_bytes < 1000 + 2 * held
    assert rig.read() == ()
    rig.open()
    assert len(rig.read()) > 2
    assert rig.writer.is_available
    rig.close()


def test_a_message_that_has_begun_is_sent_whole() -> None:
    """The pool has three segments of 512 bytes, and a message of 8 kB needs more."""
    rig = Gated(segments=3, segment=512)
    rig.emit(rows(0, 1000))
    assert not rig.writer.is_available
    assert not rig.writer.is_gated, "it waits for segments"
    rig.gates[0].is_open = False
    seen = rig.read()
    while not rig.writer.drain():
        seen += rig.read()
    assert seen + rig.read() == (tuple(range(1000)),)
    rig.close()


def test_a_gate_that_opens_after_the_end_does_no_harm(rig: Gated) -> None:
    rig.gates[0].is_open = False
    rig.emit(rows(0, 1))
    rig.writer.close()
    rig.open()
    assert rig.read() == ()
