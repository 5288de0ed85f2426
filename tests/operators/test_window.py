"""Windows: their bounds, lateness, time types and errors, and that closed windows free their memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from headgate.errors import DataError, PlanError
from headgate.operators.aggregates import aggregates as hg
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_kinds import Windows, hop, tumble, window_schema
from headgate.operators.windows.window_panes import PaneState
from headgate.state.pairs import PairTable
from tests.operators.window_rig import Kept, attach

SECOND = 1_000_000
SCHEMA = pa.schema([("key", pa.int64()), ("t", pa.timestamp("us")), ("value", pa.int64())])
ROWS = (("n", hg.count()),)


def build(
    windows: Windows,
    aggregates: tuple[tuple[str, hg.Aggregate], ...] = ROWS,
    *,
    keys: tuple[str, ...] = ("key",),
    schema: pa.Schema = SCHEMA,
    offset: int = 0,
    on_null_time: Literal["error", "late"] = "error",
    clock: Callable[[], float] = lambda: 7.0,
) -> tuple[WindowAggregate, Kept]:
    operator = WindowAggregate(
        keys,
        time_column="t",
        time_offset=offset,
        windows=windows,
        aggregates=aggregates,
        input_schema=schema,
        on_null_time=on_null_time,
        clock=clock,
    )
    return operator, attach(operator)


def rows(times: Sequence[int | None], keys: Sequence[int] | None = None, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return a batch with these event times (in the column's unit), one key or those given, and the value 1."""
    numbers = pa.array([1] * len(times) if keys is None else keys, pa.int64())
    return pa.record_batch(
        [numbers, pa.array(times, schema.field("t").type), pa.array([1] * len(times))], schema=schema
    )


def bounds(kept: Kept) -> list[tuple[int, int, int]]:
    """Return (start, end, count) of each emitted row, in the unit of the column."""
    found = []
    for batch in kept.batches:
        start, end = (batch.column(name).cast(pa.int64()).to_pylist() for name in ("window_start", "window_end"))
        found += list(zip(start, end, batch.column("n").to_pylist(), strict=True))
    return found


def test_specs_are_in_microseconds() -> None:
    assert tumble("1 h") == Windows(3600 * SECOND, 3600 * SECOND)
    assert tumble(timedelta(milliseconds=5)) == tumble(0.005)
    assert hop("90 s", every="1 min") == hop("90 s", "1 min") == Windows(90 * SECOND, 60 * SECOND)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tumble(0), "0 is too short: windows need at least one microsecond"),
        (lambda: tumble("-1 s"), "'-1 s' is too short"),
        (lambda: tumble("1 parsec"), "window: '1 parsec': unknown unit 'parsec'"),
        (lambda: hop("1 s", every="2 s"), "size '1 s' must not be shorter than every='2 s'"),
    ],
)
def test_impossible_windows_are_refused(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_windows_are_aligned_to_the_epoch_before_and_after_it() -> None:
    operator, kept = build(tumble(10e-6))
    operator.process(rows([-11, -10, -1, 0, 9, 10]))
    operator.process_watermark(MAX_TIME)
    assert bounds(kept) == [(-20, -10, 1), (-10, 0, 2), (0, 10, 2), (10, 20, 1)]


def test_a_row_is_in_every_window_of_a_hop_even_one_that_is_no_divisor() -> None:
    operator, kept = build(Windows(5, 2))
    operator.process(rows([4, 5]))
    operator.process_watermark(MAX_TIME)
    assert bounds(kept) == [(0, 5, 1), (2, 7, 2), (4, 9, 2)]


def test_a_window_fires_when_the_watermark_reaches_its_end_and_before_the_watermark_goes_on() -> None:
    operator, kept = build(tumble(10e-6))
    operator.process(rows([5, 15]))
    for time in (9, 10, 10, 3):
        operator.process_watermark(time)
    assert [event if isinstance(event, int) else event.num_rows for event in kept.events] == [9, 1, 10, 10, 3]
    assert bounds(kept) == [(0, 10, 1)]
    assert operator.rows_out == 1


def test_late_rows_are_counted_and_take_no_memory() -> None:
    operator, kept = build(tumble(10e-6))
    operator.process_watermark(20)
    operator.process(rows([19, 0, -5], keys=[1, 2, 3]))
    assert (operator.late_rows, operator.state_keys()) == (3, 0)
    operator.process(rows([19, 20, 31], keys=[1, 2, 3]))
    assert (operator.late_rows, operator.state_keys()) == (4, 2)
    operator.process_watermark(MAX_TIME)
    assert bounds(kept) == [(20, 30, 1), (30, 40, 1)]


def test_rows_of_small_batches_are_added_together_before_their_window_fires() -> None:
    operator, kept = build(tumble(10e-6), (("n", hg.count()), ("first", hg.first("value")), ("last", hg.last("value"))))
    operator.process_watermark(0)
    for value in range(5):
        operator.process(rows([value]).set_column(2, "value", pa.array([value])))
        operator.process_watermark(value)
    assert (operator.state_keys(), operator.rows_out) == (0, 0)  # they wait
    assert operator.state_bytes() >= 5 * 24
    operator.process_watermark(10)
    assert [row[-3:] for row in kept.rows] == [(5, 0, 4)]


def test_a_late_row_does_not_wait_and_rows_keep_their_order() -> None:
    operator, kept = build(tumble(10e-6), (("first", hg.first("value")), ("last", hg.last("value"))))
    operator.process_watermark(10)
    operator.process(rows([11]).set_column(2, "value", pa.array([1])))
    operator.process(rows([3, 12]).set_column(2, "value", pa.array([2, 3])))
    assert (operator.late_rows, operator.state_keys()) == (1, 1)
    operator.process_watermark(20)
    assert [row[-2:] for row in kept.rows] == [(1, 3)]


def test_rows_wait_only_for_a_while_and_only_until_they_are_many() -> None:
    now = [0.0]
    operator, _ = build(tumble(10e-6), clock=lambda: now[0])
    operator.process(rows([1]))
    assert operator.state_keys() == 0
    now[0] = 0.3
    operator.process(rows([2]))
    assert operator.state_keys() == 1
    operator.process(rows([3], keys=[2]))
    assert operator.state_keys() == 1
    operator.process(rows([4] * 5000, keys=range(5000)))
    assert operator.state_keys() == 5000


def test_a_snapshot_has_the_rows_that_wait() -> None:
    operator, _ = build(tumble(10e-6))
    operator.open(OperatorContext("job", "sums", 0, 1))
    operator.process(rows([1, 2]))
    assert operator.snapshot().tables["entries"].num_rows == 1


def test_in_a_hop_a_row_joins_the_windows_that_have_not_fired() -> None:
    operator, kept = build(Windows(30, 10))
    operator.process_watermark(30)
    operator.process(rows([9, 15, -1]))
    operator.process_watermark(MAX_TIME)
    # 9 was in windows from -20, -10 and 0, all fired; 15 is still in time for the one from 10.
    assert bounds(kept) == [(10, 40, 1)]
    assert operator.late_rows == 2


def test_the_offset_counts_a_window_end_as_the_microsecond_before() -> None:
    operator, kept = build(tumble(10e-6), offset=-1)
    operator.process(rows([10, 11]))
    operator.process_watermark(MAX_TIME)
    assert bounds(kept) == [(0, 10, 1), (10, 20, 1)]


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize(("unit", "second"), [("s", 1), ("ms", 1000), ("us", SECOND), ("ns", 1000 * SECOND)])
def test_results_have_the_event_times_type(unit: str, second: int, zone: str | None) -> None:
    schema = SCHEMA.set(1, pa.field("t", pa.timestamp(unit, zone)))
    operator, kept = build(tumble("2 s"), schema=schema)
    operator.process(rows([-1, 0, second, 2 * second], schema=schema))
    operator.process_watermark(MAX_TIME)
    assert operator.schema.field("window_end").type == pa.timestamp(unit, zone)
    assert bounds(kept) == [(-2 * second, 0, 1), (0, 2 * second, 2), (2 * second, 4 * second, 1)]


def test_the_schema_is_keys_bounds_and_aggregates() -> None:
    aggregates = (("n", hg.count()), ("total", hg.sum("value")), ("all", hg.collect_list("value")))
    assert window_schema(("key",), "t", tumble("1 s"), aggregates, SCHEMA) == pa.schema(
        [
            ("key", pa.int64()),
            pa.field("window_start", pa.timestamp("us"), nullable=False),
            pa.field("window_end", pa.timestamp("us"), nullable=False),
            pa.field("n", pa.int64(), nullable=False),
            ("total", pa.int64()),
            ("all", pa.list_(pa.int64())),
        ]
    )


@pytest.mark.parametrize(
    ("keys", "time", "windows", "aggregates", "message"),
    [
        (("kex",), "t", "1 s", ROWS, "there must be one key column 'kex'; the columns are: key, t, value, whole"),
        ((), "value", "1 s", ROWS, "event-time column 'value' is int64, and event time must be a timestamp"),
        ((), "when", "1 s", ROWS, "there must be one event-time column 'when'; the columns are: key, t, value"),
        ((), "t", "1 s", (), "at least one aggregate, for example rows=hg.count"),
        ((), "t", "1 s", (("n", len),), "n=<built-in function len> is not an aggregate"),
        (("key",), "t", "1 s", (("key", hg.count()),), "two columns of the result would be called 'key'"),
        ((), "t", "1 s", (("window_end", hg.count()),), "two columns of the result would be called 'window_end'"),
        (
            (),
            "whole",
            "1.5 s",
            ROWS,
            r"size is 1500000 us, and event-time column 'whole' of type timestamp\[s\] cannot",
        ),
    ],
)
def test_impossible_aggregations_are_refused(keys: Any, time: str, windows: str, aggregates: Any, message: str) -> None:
    schema = SCHEMA.append(pa.field("whole", pa.timestamp("s")))
    with pytest.raises(PlanError, match=message):
        window_schema(keys, time, tumble(windows), aggregates, schema)


def test_a_null_event_time_is_an_error_that_says_what_to_do() -> None:
    operator, _ = build(tumble("1 s"))
    with pytest.raises(DataError, match=r"'t' is null in 2 of 3 rows; filter them out, .*on_null_time='late'"):
        operator.process(rows([None, 1, None]))


def test_a_null_event_time_may_be_late_instead() -> None:
    operator, kept = build(tumble("1 s"), on_null_time="late")
    operator.process(rows([None, 1, None]))
    operator.process(rows([None]))
    operator.process_watermark(MAX_TIME)
    assert operator.late_rows == 3
    assert bounds(kept) == [(0, SECOND, 1)]


@pytest.mark.parametrize(
    ("unit", "time"), [("us", MAX_TIME), ("us", MIN_TIME + 1), ("ns", MAX_TIME), ("ns", MIN_TIME + 1)]
)
def test_a_bound_beyond_the_columns_type_is_an_error(unit: str, time: int) -> None:
    schema = SCHEMA.set(1, pa.field("t", pa.timestamp(unit)))
    operator, _ = build(tumble("1 day"), schema=schema)
    with pytest.raises(DataError, match=rf"'t': a window of .* that timestamp\[{unit}\] cannot hold; filter"):
        operator.process(rows([time], schema=schema))


def test_event_times_beyond_microseconds_are_an_error() -> None:
    schema = SCHEMA.set(1, pa.field("t", pa.timestamp("s")))
    operator, _ = build(tumble("1 day"), schema=schema)
    with pytest.raises(DataError, match=f"event time {1 << 62} s in column 't' is too far from 1970"):
        operator.process(rows([0, 1 << 62], schema=schema))


def test_the_last_possible_window_fires_at_the_end() -> None:
    operator, kept = build(Windows(1, 1))
    operator.process(rows([MAX_TIME - 1]))
    operator.process_watermark(MAX_TIME - 1)
    assert bounds(kept) == []
    operator.process_watermark(MAX_TIME)
    assert bounds(kept) == [(MAX_TIME - 1, MAX_TIME, 1)]


def test_integer_sums_are_exact() -> None:
    operator, kept = build(tumble("1 s"), (("n", hg.count()), ("total", hg.sum("value"))))
    values = pa.array([2**53, 1, 2**62, 2**62, -(2**62)])
    operator.process(pa.record_batch([pa.array([1, 1, 2, 2, 2]), rows([0] * 5).column("t"), values], schema=SCHEMA))
    operator.process_watermark(MAX_TIME)
    assert sorted((row[0], row[4]) for row in kept.rows) == [(1, 2**53 + 1), (2, 2**62)]


def test_a_sum_that_overflows_in_the_end_is_an_error() -> None:
    operator, _ = build(tumble("1 s"), (("n", hg.count()), ("total", hg.sum("value"))))
    operator.process(pa.record_batch([[1, 1], rows([0, 0]).column("t"), [2**62, 2**62]], schema=SCHEMA))
    with pytest.raises(DataError, match=rf"sum\('value'\) is {2**63}, which does not fit into int64; make 'value' a"):
        operator.process_watermark(MAX_TIME)


def test_large_results_come_in_bounded_batches_in_the_order_of_their_ends() -> None:
    operator, kept = build(tumble(1e-6))
    count = 70_000
    order = np.random.default_rng(3).permutation(count)
    operator.process(rows(order.tolist(), keys=order.tolist()))
    operator.process_watermark(MAX_TIME)
    assert [batch.num_rows for batch in kept.batches] == [65_536, count - 65_536]
    assert [start for start, _, _ in bounds(kept)] == list(range(count))
    assert [row[0] for row in kept.rows] == list(range(count))
    assert operator.emissions is not None
    assert operator.emissions.points() == [(7.0, 65_536), (7.0, count)]


def test_string_keys_have_their_own_type_in_the_result() -> None:
    schema = pa.schema([("key", pa.dictionary(pa.int8(), pa.string())), ("zone", pa.large_string()), SCHEMA.field("t")])
    operator = WindowAggregate(
        ("zone", "key"), time_column="t", time_offset=0, windows=tumble("1 s"), aggregates=ROWS, input_schema=schema
    )
    kept = attach(operator)
    keys = pa.array(["a", None, "a", ""]).dictionary_encode().cast(schema.field("key").type)
    times = pa.array([0, 1, 2, 3], pa.timestamp("us"))
    operator.process(pa.record_batch([keys, pa.array(["x", "x", "x", None], pa.large_string()), times], schema=schema))
    operator.process_watermark(MAX_TIME)
    (batch,) = kept.batches
    assert batch.schema.field("key").type == pa.string()
    assert batch.schema.field("zone").type == pa.large_string()
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC).replace(tzinfo=None)
    assert {(*row[:2], *row[3:]) for row in kept.rows} == {
        ("x", "a", second, 2),
        ("x", None, second, 1),
        (None, "", second, 1),
    }


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
def test_keys_of_fired_windows_are_freed(kind: pa.DataType) -> None:
    """A hundred windows, each with its own keys, take no more memory than the first few."""
    aggregates = (("n", hg.count()), ("total", hg.sum("value")), ("kinds", hg.count_distinct("value")))
    schema = SCHEMA.set(0, pa.field("key", kind))
    operator, kept = build(tumble("1 s"), aggregates, schema=schema)
    per_window, sizes = 9_000, []
    for window in range(100):
        keys = pa.array(np.arange(per_window) + window * per_window).cast(kind)
        times = pa.array(np.full(per_window, window * SECOND), pa.timestamp("us"))
        operator.process(pa.record_batch([keys, times, pa.array(np.arange(per_window))], schema=schema))
        sizes.append(operator.state_bytes())
        operator.process_watermark((window + 1) * SECOND - 1)
    operator.process_watermark(MAX_TIME)
    assert sum(batch.num_rows for batch in kept.batches) == 100 * per_window
    assert operator.state_keys() <= 4 * per_window
    assert max(sizes) <= 1.5 * max(sizes[:5])


def test_keys_that_come_in_every_window_are_kept() -> None:
    operator, _ = build(tumble("1 s"))
    for window in range(20):
        operator.process_watermark(window * SECOND)
        operator.process(rows([window * SECOND] * 5000, keys=list(range(5000))))
        assert operator.state_keys() == 5000


def late_build(windows: Windows, lateness: int, tag: str = "") -> tuple[WindowAggregate, Kept, Kept]:
    operator = WindowAggregate(
        ("key",),
        time_column="t",
        time_offset=0,
        windows=windows,
        aggregates=ROWS,
        input_schema=SCHEMA,
        on_null_time="late",
        allowed_lateness=lateness * SECOND,
        late_tag=tag,
        clock=lambda: 7.0,
    )
    kept, aside = attach(operator), Kept()
    operator.sides = {tag: aside} if tag else {}
    return operator, kept, aside


def at(*seconds: float | None) -> pa.RecordBatch:
    return rows([None if second is None else int(second * SECOND) for second in seconds])


def in_seconds(kept: Kept) -> list[tuple[int, int, int]]:
    return [(start // SECOND, end // SECOND, n) for start, end, n in bounds(kept)]


def test_a_row_for_a_window_that_has_fired_emits_it_whole_again() -> None:
    operator, kept, _ = late_build(tumble("10 s"), lateness=5)
    operator.process(at(1, 2, 11))
    operator.process_watermark(12 * SECOND)
    assert in_seconds(kept) == [(0, 10, 2)]
    operator.process(at(3, 12, 4))
    assert in_seconds(kept)[1:] == [(0, 10, 4)], "the open window stays open"
    operator.process_watermark(14 * SECOND)
    operator.process(at(5))
    operator.process_watermark(15 * SECOND)
    operator.process(at(6))
    assert in_seconds(kept)[2:] == [(0, 10, 5)]
    assert operator.late_rows == 1
    operator.process_watermark(MAX_TIME)
    assert in_seconds(kept)[3:] == [(10, 20, 2)]


def test_the_first_row_of_a_key_may_come_after_its_window_has_fired() -> None:
    operator, kept, _ = late_build(tumble("10 s"), lateness=5)
    operator.process_watermark(12 * SECOND)
    operator.process(at(3, 4))
    assert in_seconds(kept) == [(0, 10, 2)]


def test_a_late_row_emits_only_windows_that_fired_and_are_retained() -> None:
    operator, kept, _ = late_build(hop("10 s", every="5 s"), lateness=6)
    operator.process(at(11))
    operator.process_watermark(15 * SECOND)
    assert in_seconds(kept) == [(5, 15, 1)]
    operator.process(at(4, 6, 11))
    assert in_seconds(kept)[1:] == [(0, 10, 2), (5, 15, 3)]
    operator.process_watermark(16 * SECOND)
    operator.process(at(4, 6))
    assert in_seconds(kept)[3:] == [(5, 15, 4)]
    assert operator.late_rows == 1
    operator.process_watermark(MAX_TIME)
    assert in_seconds(kept)[4:] == [(10, 20, 2)]


def test_windows_retained_for_lateness_are_removed_in_the_end() -> None:
    operator, _, _ = late_build(tumble("1 s"), lateness=20)
    sizes = []
    for second in range(600):
        operator.process(rows([second * SECOND] * 500, list(range(500))))
        operator.process_watermark(second * SECOND)
        sizes.append(operator.state_bytes())
    assert max(sizes[300:]) <= max(sizes[:300])


def test_late_rows_and_rows_without_a_time_go_to_the_side_output() -> None:
    operator, kept, aside = late_build(tumble("10 s"), lateness=0, tag="late")
    operator.process_watermark(10 * SECOND)
    operator.process(at(9, None, 10, 3))
    assert [row[1] for row in aside.rows] == [None, datetime(1970, 1, 1, 0, 0, 9), datetime(1970, 1, 1, 0, 0, 3)]
    assert aside.batches[0].schema == SCHEMA
    assert operator.late_rows == 0
    operator.process_watermark(MAX_TIME)
    assert in_seconds(kept) == [(10, 20, 1)]


def test_late_rows_are_counted_if_the_side_output_is_not_read() -> None:
    operator, _, _ = late_build(tumble("10 s"), lateness=0, tag="late")
    operator.sides = {}
    operator.process_watermark(10 * SECOND)
    operator.process(at(9, None))
    assert operator.late_rows == 2


def test_sums_of_panes_may_exceed_64_bits_on_the_way() -> None:
    """The sum of each pane needs two words, and so does the merged one on the way. The result fits one."""
    huge = (1 << 63) - 1
    operator, kept = build(hop("8 s", every="2 s"), (("total", hg.sum("value")),))
    for sign in (1, 1, -1, -1):
        for second in (0, 2, 4):
            values = pa.array([sign * huge, sign * 5, None])
            times = pa.array([second * SECOND] * 3, pa.timestamp("us"))
            operator.process(pa.record_batch([pa.array([1, 1, 1]), times, values], schema=SCHEMA))
    operator.process(pa.record_batch([pa.array([1]), rows([SECOND])["t"], pa.array([7])], schema=SCHEMA))
    operator.process_watermark(MAX_TIME)
    assert [row[3] for row in kept.rows] == [7, 7, 7, 7, 0, 0]


def test_the_windows_of_panes_are_found_without_listing_all_windows() -> None:
    chance = random.Random(7)
    for _ in range(200):
        overlap = chance.randint(1, 12)
        state = PaneState([pa.int64()], lambda: AccumulatorSet([], pa.schema([])), overlap)  # type: ignore[arg-type]
        panes = np.unique([chance.randint(-30, 30) for _ in range(chance.randint(1, 8))])
        after, last = chance.randint(-40, 30), chance.choice([chance.randint(-40, 40), 2**62])
        inside = {pane - back for pane in panes.tolist() for back in range(overlap)}
        assert state._windows_of(panes, after, last) == sorted(w for w in inside if after < w <= last)
    day = PaneState([pa.int64()], lambda: AccumulatorSet([], pa.schema([])), 10**12)  # type: ignore[arg-type]
    assert day._windows_of(np.array([0, 10**11]), 10**11 - 3, 2**62) == [10**11 - 2, 10**11 - 1, 10**11]


@pytest.mark.parametrize("late", [False, True])
def test_a_jump_of_the_watermark_goes_through_the_entries_of_panes_once(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a jump of 4 days would cost 16 times as much as one of a day."""
    times = [pane * SECOND for pane in range(300) for _ in range(2)]
    batch = rows(times, [1, 2] * 300)
    operator, kept, _ = late_build(hop("4 s", every="1 s"), lateness=1000 if late else 0)
    operator.process(batch)
    calls = []
    for name in ("left", "right"):
        method = getattr(PairTable, name)
        monkeypatch.setattr(PairTable, name, lambda *given, call=method: (calls.append(1), call(*given))[1])
    operator.process_watermark(300 * SECOND)
    if late:
        kept.events = []
        operator.process(batch)
    rounds = 2 if late else 1
    wanted = [(start, start + 4, rounds * min(4, 4 + start)) for start in range(-3, 297) for _ in range(2)]
    assert sorted(in_seconds(kept)) == wanted
    assert len(calls) < 20
