"""Small batches for many channels wait until it is worth it to partition them; nothing else may notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.exchange.selectors import KeyGroups, Rebalance
from headgate.exchange.unpartitioned import (
    BYTES_PER_CHANNEL,
    MAX_UNPARTITIONED,
    UnpartitionedBatches,
    partition_threshold,
)
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from tests.examples import examples
from tests.exchange.rig import Rig, rows

SCHEMA = pa.schema({"n": pa.int64()})
CHANNELS = 4
#: The number of 8-byte rows that the writer splits over its channels.
ENOUGH = CHANNELS * BYTES_PER_CHANNEL // 8


@pytest.fixture
def made() -> Iterator[list[Rig]]:
    rigs: list[Rig] = []
    yield rigs
    for rig in rigs:
        rig.close()


def keyed(made: list[Rig], **options: Any) -> Rig:
    chosen = {"schema": SCHEMA, "message_size": 800, "segment": 512, "segments": 2000, **options}
    made.append(Rig(KeyGroups(["n"], CHANNELS, 128), CHANNELS, **chosen))
    return made[-1]


def values(rig: Rig) -> list[int]:
    return [value for channel in rig.read_all() for message in channel for value in message]


def test_the_limit_grows_with_the_channels_up_to_a_bound() -> None:
    assert partition_threshold(3) == 3 * BYTES_PER_CHANNEL
    assert partition_threshold(1 << 20) == MAX_UNPARTITIONED


def test_what_waits_is_one_batch_in_order() -> None:
    unpartitioned = UnpartitionedBatches(48)
    assert not unpartitioned
    assert not unpartitioned.add(rows(0, 2), 16)
    assert not unpartitioned.add(rows(2, 3), 24)
    assert unpartitioned.add(rows(5, 1), 8)
    batch, size = unpartitioned.take()
    assert batch.column(0).to_pylist() == list(range(6))
    assert size == 48
    assert not unpartitioned


def test_batches_are_split_together_when_there_are_enough(made: list[Rig]) -> None:
    rig = keyed(made)
    half = ENOUGH // 2
    rig.writer.emit(rows(0, half))
    assert values(rig) == []
    assert rig.writer.pending_bytes == 8 * half
    rig.writer.emit(rows(half, half))
    assert len(values(rig)) > half, "messages are full many times over"
    rig.writer.flush()
    assert rig.writer.pending_bytes == 0


def test_selectors_of_whole_batches_never_wait(made: list[Rig]) -> None:
    made.append(Rig(Rebalance(CHANNELS, start=0), CHANNELS, message_size=8))
    made[0].writer.emit(rows(0, 1))
    made[0].partition.flush(0)
    assert made[0].read(0) == ((0,),)


def test_the_timeout_counts_from_the_first_batch(made: list[Rig]) -> None:
    rig = keyed(made, buffer_timeout=0.1)
    rig.writer.emit(rows(0, 5))
    rig.now += 0.05
    rig.writer.emit(rows(5, 5))
    rig.writer.on_time(100.1)
    assert sorted(values(rig)) == list(range(10))


def test_a_watermark_waits_with_them_and_the_newest_wins(made: list[Rig]) -> None:
    rig = keyed(made)
    rig.writer.emit(rows(0, 100))
    rig.writer.emit_watermark(5)
    rig.writer.emit_watermark(7)
    rig.writer.flush()
    for seen in rig.read_all():
        assert seen[-1] == WatermarkElement(7)
        assert len(seen) == 2


@pytest.mark.parametrize("event", ["status", "marker", "finish"])
def test_nothing_overtakes_them(made: list[Rig], event: str) -> None:
    rig = keyed(made, buffer_timeout=0.0 if event == "marker" else -1)
    rig.writer.emit(rows(0, 100))
    match event:
        case "status":
            rig.writer.emit_status(False)
        case "marker":
            rig.writer.emit_marker(LatencyMarker(1, 2, 3))
        case "finish":
            rig.writer.finish()
    for seen in rig.read_all():
        first, *others = seen
        assert isinstance(first, tuple)
        assert not any(isinstance(other, tuple) for other in others)
        assert event != "status" or others == [WatermarkStatus(False)]


def test_starved_readers_get_theirs(made: list[Rig]) -> None:
    rig = keyed(made, buffer_timeout="adaptive")
    rig.writer.emit(rows(0, 10))
    rig.writer.before_wait()
    assert sorted(values(rig)) == list(range(10))


def test_a_full_budget_splits_early(made: list[Rig]) -> None:
    rig = keyed(made, limit=4000)
    rig.writer.emit(rows(0, 450))
    assert rig.writer.pending_bytes == 3600
    rig.writer.emit(rows(450, 200))
    assert rig.writer.pending_bytes == 0, "split, and each channel has a message"


@settings(max_examples=examples(25))
@given(sizes=st.lists(st.integers(1, ENOUGH), max_size=5))
def test_no_row_is_lost_doubled_or_overtaken(sizes: list[int]) -> None:
    rig = Rig(KeyGroups(["n"], CHANNELS, 128), CHANNELS, schema=SCHEMA, message_size=2000, segments=5000)
    first = 0
    for size in sizes:
        rig.writer.emit(rows(first, size))
        first += size
    rig.writer.flush()
    seen = [[value for message in channel for value in message] for channel in rig.read_all()]
    assert all(channel == sorted(channel) for channel in seen)
    assert sorted(value for channel in seen for value in channel) == list(range(first))
    rig.close()
