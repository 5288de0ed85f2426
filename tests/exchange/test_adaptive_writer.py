"""A writer with adaptive flush: at once for starved readers, in full messages for busy ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.exchange.flush import BUSY_SHARE, IDLE_SHARE, MAX_INTERVAL
from headgate.exchange.selectors import Broadcast, Forward, Rebalance
from headgate.records.elements import WatermarkElement
from tests.examples import examples
from tests.exchange.rig import Rig, rows


@pytest.fixture
def made() -> Iterator[list[Rig]]:
    rigs: list[Rig] = []
    yield rigs
    for rig in rigs:
        rig.close()


def adaptive(made: list[Rig], *arguments: Any, **options: Any) -> Rig:
    made.append(Rig(*arguments, buffer_timeout="adaptive", **options))
    return made[-1]


def test_a_starved_reader_gets_every_batch_at_once(made: list[Rig]) -> None:
    rig = adaptive(made, Forward())
    for first in range(3):
        rig.writer.emit(rows(first, 1))
        assert rig.read() == ((first,),)
        assert rig.writer.deadline is None


def test_rows_for_a_busy_reader_gather_until_it_has_nothing_left(made: list[Rig]) -> None:
    rig = adaptive(made, Forward())
    for first in range(5):
        rig.writer.emit(rows(first, 1))
        rig.writer.before_wait()
    assert rig.wakes == 0
    assert rig.read() == ((0,),)
    assert rig.wakes == 1, "the task is woken"
    rig.writer.before_wait()
    assert rig.read() == ((1, 2, 3, 4),)
    rig.writer.before_wait()
    assert rig.read() == ()


def test_each_channel_for_itself(made: list[Rig]) -> None:
    rig = adaptive(made, Rebalance(2, start=0), 2)
    for first in range(4):
        rig.writer.emit(rows(first, 1))
    assert rig.read(0) == ((0,),)
    rig.writer.before_wait()
    assert rig.read_all() == [((2,),), ((1,),)]


def test_a_broadcast_is_cut_for_all_when_one_is_starved(made: list[Rig]) -> None:
    rig = adaptive(made, Broadcast(2), 2)
    rig.writer.emit(rows(0, 1))
    assert rig.read(0) == ((0,),)
    rig.writer.emit(rows(1, 1))
    assert rig.read(0) == ((1,),)
    rig.writer.before_wait()
    assert rig.read(1) == ((0,), (1,))


def test_a_reader_without_credit_is_busy(made: list[Rig]) -> None:
    rig = adaptive(made, Forward())
    rig.partition.subpartitions[0].credit_changed(False)
    rig.writer.emit(rows(0, 1))
    rig.writer.before_wait()
    assert rig.read() == ()
    assert rig.wakes == 0
    rig.partition.subpartitions[0].credit_changed(True)
    assert rig.wakes == 1
    rig.writer.before_wait()
    assert rig.read() == ((0,),)


def test_a_busy_task_flushes_seldom_and_one_that_would_wait_soon(made: list[Rig]) -> None:
    rig = adaptive(made, Forward(), message_size=1 << 20)
    rig.tick = 0.001  # a flush takes so long
    rig.writer.emit(rows(0, 1))
    assert rig.read() == ((0,),)
    flushed = rig.now
    emits = 0
    while not (seen := rig.read()):
        rig.writer.emit(rows(emits, 1))
        emits += 1
    assert rig.now - flushed == pytest.approx(0.001 / BUSY_SHARE, rel=0.2)
    assert len(seen[0]) == emits
    rig.tick = 0.0
    rig.writer.emit(rows(0, 1))
    rig.writer.before_wait()
    deadline = rig.writer.deadline
    assert rig.read() == ()
    assert deadline is not None
    assert deadline <= rig.now + 0.001
    rig.now = deadline
    rig.writer.on_time(rig.now)
    rig.writer.before_wait()
    assert len(rig.read()) == 1
    assert rig.writer.deadline is None


def test_a_back_pressured_task_flushes_as_seldom_as_a_busy_one(made: list[Rig]) -> None:
    rig = adaptive(made, Rebalance(2, start=0), 2, cap=1)
    rig.tick = 0.001
    rig.writer.emit(rows(0, 1000))
    assert not rig.writer.is_available, "channel 0 has no room"
    rig.writer.emit(rows(1000, 1))
    rig.writer.before_wait()
    deadline = rig.writer.deadline
    assert rig.read(1) == ()
    assert deadline is not None
    assert deadline > rig.now + 0.01 / IDLE_SHARE
    rig.now = deadline
    rig.writer.on_time(rig.now)
    rig.writer.before_wait()
    assert rig.read(1) == ((1000,),), "a starved channel does not wait for one that is stuck"


def busy(rig: Rig, seconds: float) -> None:
    """A task that neither emits nor waits all that time: it looks at the clock between two inputs."""
    end = rig.now + seconds
    while rig.now < end:
        rig.now += 0.01
        if rig.writer.deadline is not None and rig.now >= rig.writer.deadline:
            rig.writer.on_time(rig.now)


def test_rows_leave_in_time_though_the_task_neither_emits_nor_waits_any_more(made: list[Rig]) -> None:
    rig = adaptive(made, Forward())
    rig.tick = 0.0001
    rig.writer.emit(rows(0, 1))
    rig.writer.emit(rows(1, 1))
    assert rig.read() == ((0,),)
    rig.writer.emit_watermark(7)
    busy(rig, MAX_INTERVAL)
    assert rig.read() == ((1,), WatermarkElement(7))
    assert rig.writer.deadline is None


def test_rows_leave_in_time_though_the_task_is_busy_again_when_it_is_woken(made: list[Rig]) -> None:
    rig = adaptive(made, Forward())
    rig.writer.emit(rows(0, 1))
    rig.writer.emit(rows(1, 1))
    rig.writer.before_wait()
    busy(rig, 2 * MAX_INTERVAL)
    assert rig.read() == ((0,),), "it was not starved"
    busy(rig, 2 * MAX_INTERVAL)
    assert rig.read() == ((1,),)


def test_full_messages_leave_without_a_flush_and_their_rest_when_the_reader_is_starved(made: list[Rig]) -> None:
    rig = adaptive(made, Forward(), segment=192)
    rig.partition.subpartitions[0].credit_changed(False)
    rig.writer.emit(rows(0, 10))
    assert rig.partition.subpartitions[0].is_available(True), "whole segments need no flush"
    rig.partition.subpartitions[0].credit_changed(True)
    assert rig.read() == ()
    rig.writer.before_wait()
    assert rig.read() == (tuple(range(10)),)


def test_a_task_that_rests_completes_a_full_message(made: list[Rig]) -> None:
    """The reader, busy or not, can do nothing with the message before its end."""
    rig = adaptive(made, Forward(), segment=192)
    rig.writer.emit_watermark(6)
    assert rig.read() == (WatermarkElement(6),)
    rig.partition.subpartitions[0].credit_changed(False)
    rig.writer.emit(rows(0, 10))
    rig.writer.emit_watermark(7)
    assert rig.read() == (), "the end shares a segment with what follows"
    rig.writer.before_wait()
    assert rig.read() == (tuple(range(10)), WatermarkElement(7))
    rig.writer.emit(rows(10, 1))
    rig.writer.before_wait()
    assert rig.read() == (), "rows of the next message gather"


def test_the_end_leaves_nothing_behind(made: list[Rig]) -> None:
    rig = adaptive(made, Forward())
    rig.writer.emit(rows(0, 1))
    rig.writer.emit(rows(1, 1))
    rig.writer.finish()
    assert rig.read()[:2] == ((0,), (1,))
    assert rig.writer.is_available


STEPS = st.lists(
    st.tuples(st.sampled_from(["emit", "read", "credit", "no credit", "wait", "later"]), st.integers(0, 2)), max_size=30
)


@settings(max_examples=examples(60))
@given(steps=STEPS, tick=st.sampled_from([0.0, 0.001]))
def test_every_row_arrives_though_the_task_acts_only_when_woken(steps: list[tuple[str, int]], tick: float) -> None:
    """Whatever readers did before: once they read and have credit, wake-ups and deadlines alone bring them the rest."""
    rig = Rig(Rebalance(3, start=0), 3, buffer_timeout="adaptive", segment=64, message_size=80, segments=400)
    rig.tick = tick
    emitted, seen = 0, []
    for what, channel in steps:
        match what:
            case "emit":
                rig.writer.emit(rows(emitted, 1 + channel))
                emitted += 1 + channel
            case "read":
                seen += values(rig.read(channel, buffers=1))
            case "credit" | "no credit":
                rig.partition.subpartitions[channel].credit_changed(what == "credit")
            case "wait":
                rig.writer.before_wait()
            case "later":
                rig.now += 0.01
    rig.writer.before_wait()
    for subpartition in rig.partition.subpartitions:
        subpartition.credit_changed(True)
    wakes, is_called = 0, True
    while is_called:
        for channel in range(3):
            seen += values(rig.read(channel))
        is_called = rig.writer.deadline is not None or rig.wakes != wakes
        wakes = rig.wakes
        if is_called:
            rig.now = max(rig.now, rig.writer.deadline or 0.0)
            rig.writer.on_time(rig.now)
            rig.writer.before_wait()
    assert sorted(seen) == list(range(emitted))
    rig.close()


def values(seen: tuple[Any, ...]) -> list[int]:
    return [value for message in seen for value in message]
