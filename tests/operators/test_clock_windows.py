"""Windows by the clock fire when the clock passes their end, also after a restart; they agree with a plain model."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.api.rows_by_key import operator_of
from headgate.operators.aggregates.top_rows import TopRows
from headgate.operators.operator import MAX_TIME, OperatorContext
from headgate.operators.ranked_rows import ROWS, ranked_schema
from headgate.operators.windows.window_kinds import Sessions, Windows, window_schema
from headgate.records.hashing import key_group_range
from headgate.state.snapshot import Snapshot, decode, encode
from headgate.testing import AdvanceClock, OperatorHarness, Restart, at
from tests.examples import examples
from tests.operators.window_rig import GROUPS, Kept, Side, attach

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPECS = (("rows", hg.count()), ("numbers", hg.collect_list("n")), ("last", hg.last("n")))
WINDOWS = [Windows(10, 10, True), Windows(10, 3, True), Windows(40, 10, True), Sessions(7, True)]
#: Steps of the clock in microseconds, and the keys of the rows that come then.
STEPS = st.lists(
    st.tuples(st.integers(0, 25), st.lists(st.sampled_from(["a", "b", None]), max_size=4)), min_size=1, max_size=12
)


class Clock:
    """A clock in microseconds, which the test sets."""

    now = 0

    def __call__(self) -> float:
        return (self.now + 0.5) / 1e6


def aggregation(windows: Any, clock: Clock) -> Any:
    return operator_of(windows, is_ranked=False)(
        ("key",), windows=windows, aggregates=SPECS, input_schema=SCHEMA, time_column=None, time_offset=0, clock=clock
    )


def greatest(windows: Any, clock: Clock) -> Any:
    """Return the operator of the two rows of each window with the greatest numbers."""
    top = TopRows("top", "n", most=2, columns=("n",))
    specs = ((ROWS, top),)
    return operator_of(windows, is_ranked=True)(
        ("key",),
        windows=windows,
        aggregates=specs,
        input_schema=SCHEMA,
        output=ranked_schema(window_schema(("key",), None, windows, specs, SCHEMA), top),
        time_column=None,
        time_offset=0,
        clock=clock,
    )


def made(windows: Any, clock: Clock, subtask: int = 0, parallelism: int = 1) -> tuple[Any, Kept]:
    operator = aggregation(windows, clock)
    kept = attach(operator)
    operator.open(OperatorContext("job", "operator", subtask, parallelism, 8))
    return operator, kept


def batch(*rows: tuple[str | None, int]) -> pa.RecordBatch:
    return pa.record_batch([[row[0] for row in rows], [row[1] for row in rows]], schema=SCHEMA)


def tick(operator: Any, clock: Clock) -> None:
    """Call the operator's timer as often as a task does: until no time is due."""
    for _ in range(5):
        if operator.next_time() is None or operator.next_time() > clock.now:
            return
        operator.on_processing_time()
    raise AssertionError("the timer is due again and again")


def results(kept: Kept) -> list[tuple[Any, ...]]:
    """Return key, start, end, rows, numbers and last of each result, sorted."""
    rows = [
        (row[0], *((bound - EPOCH) // timedelta(microseconds=1) for bound in row[1:3]), row[3], sorted(row[4]), row[5])
        for row in kept.rows
    ]
    return sorted(rows, key=repr)


def model(windows: Any, rows: list[tuple[int, str | None, int]]) -> list[tuple[Any, ...]]:
    """Return the results for rows with their times, in the order of time."""
    held: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    if isinstance(windows, Sessions):
        latest: dict[str | None, list[Any]] = {}
        sessions: list[list[Any]] = []
        for time, key, n in rows:
            session = latest.get(key)
            if session is None or time >= session[2] + windows.gap:
                session = latest[key] = [key, time, time, []]
                sessions.append(session)
            session[2] = time
            session[3].append(n)
        held = {(key, first, last + windows.gap): numbers for key, first, last, numbers in sessions}
    else:
        for time, key, n in rows:
            start = time // windows.every * windows.every
            while start + windows.size > time:
                held[key, start, start + windows.size].append(n)
                start -= windows.every
    return sorted(((*at, len(ns), sorted(ns), ns[-1]) for at, ns in held.items()), key=repr)


@settings(max_examples=examples(200))
@given(st.sampled_from(WINDOWS), STEPS, st.integers(0, 12), st.booleans())
def test_windows_agree_with_a_model(windows: Any, steps: Any, restart: int, ticks: bool) -> None:
    clock = Clock()
    operator, kept = made(windows, clock)
    rows: list[tuple[int, str | None, int]] = []
    for number, (step, keys) in enumerate(steps):
        if number == restart:
            snapshot = decode(encode({"node": operator.snapshot()}))["node"]
            operator, again = made(windows, clock)
            operator.restore([snapshot])
            again.events = kept.events
            kept = again
        clock.now += step
        if ticks:
            tick(operator, clock)
            due = [row for row in model(windows, rows) if row[2] <= clock.now]
            assert results(kept) == due
        if keys:
            given_rows = [(key, len(rows) + at) for at, key in enumerate(keys)]
            rows += [(clock.now, *row) for row in given_rows]
            operator.process(batch(*given_rows))
        is_open = any(row[2] > clock.now for row in model(windows, rows))
        assert not is_open or operator.next_time() is not None
    operator.end_input()
    assert results(kept) == model(windows, rows)
    assert operator.next_time() is None
    assert operator.late_rows == 0


@pytest.mark.parametrize("make", [aggregation, greatest])
@settings(max_examples=examples(100))
@given(st.sampled_from(WINDOWS), STEPS, st.integers(0, 12), st.tuples(st.integers(1, 3), st.integers(1, 4)))
def test_a_restart_at_another_parallelism_changes_nothing(
    make: Any, windows: Any, steps: Any, restart: int, parallelisms: tuple[int, int]
) -> None:
    clock = Clock()
    whole, *sides = [Side(partial(make, windows, clock), number) for number in (GROUPS, *parallelisms)]
    side, after = sides
    for number, (step, keys) in enumerate(steps):
        if number == restart:
            after.restore(side.snapshots())
            side = after
        clock.now += step
        for operator in (*whole.operators, *side.operators):
            tick(operator, clock)
        if keys:
            rows = batch(*((key, 10 * number + at) for at, key in enumerate(keys)))
            whole.process(rows, 1)
            side.process(rows, 1)
    for operator in (*whole.operators, *side.operators):
        operator.end_input()
    assert sum((side.rows for side in sides), Counter()) == whole.rows


@pytest.mark.parametrize("windows", [Windows(10, 10, True), Sessions(10, True)])
def test_windows_that_ended_while_the_job_was_down_fire_at_once(windows: Any) -> None:
    clock = Clock()
    operator, _ = made(windows, clock)
    operator.process(batch(("a", 1), ("b", 2)))
    snapshot = decode(encode({"node": operator.snapshot()}))["node"]
    clock.now = 1000
    fired = []
    for subtask in range(2):  # two subtasks now, each with its own keys
        resumed, kept = made(windows, clock, subtask, 2)
        resumed.restore([snapshot.of_key_groups(key_group_range(subtask, 2, 8))])
        due = resumed.next_time()
        if due is not None:
            assert due <= 1000
            tick(resumed, clock)
        fired += results(kept)
    assert sorted(row[:3] for row in fired) == [("a", 0, 10), ("b", 0, 10)]


def test_time_stands_still_while_the_clock_is_behind_the_checkpoint() -> None:
    clock = Clock()
    clock.now = 95
    operator, _ = made(WINDOWS[0], clock)
    operator.process(batch(("a", 1)))
    snapshot = decode(encode({"node": operator.snapshot()}))["node"]
    clock.now = 20
    resumed, kept = made(WINDOWS[0], clock)
    resumed.restore([snapshot])
    resumed.process(batch(("a", 2)))
    clock.now = 100
    tick(resumed, clock)
    assert results(kept) == [("a", 90, 100, 2, [1, 2], 2)]


def test_an_idle_operator_needs_no_timer() -> None:
    for windows in WINDOWS:
        clock = Clock()
        operator, _ = made(windows, clock)
        assert operator.next_time() is None
        for _ in range(3):
            operator.process(batch(("a", 1)))
            for _ in range(100):
                if operator.next_time() is None:
                    break
                clock.now = max(clock.now, operator.next_time())
                operator.on_processing_time()
            assert operator.next_time() is None, windows


def test_watermarks_pass_and_fire_nothing() -> None:
    operator, kept = made(WINDOWS[0], Clock())
    operator.process(batch(("a", 1)))
    operator.process_watermark(50)
    operator.process_watermark(MAX_TIME)
    assert kept.events == [50, MAX_TIME]


def test_state_of_windows_by_event_time_is_refused() -> None:
    operator, _ = made(WINDOWS[0], Clock())
    operator.process(batch(("a", 1)))
    other = operator.snapshot()
    of = dict(other.values["of"]) | {"event time": "t + 0 us", "the operator": "a windowed aggregation"}
    with pytest.raises(hg.CheckpointError, match="a windowed aggregation there and an aggregation of windows by the"):
        operator.restore([Snapshot(other.tables, dict(other.values) | {"of": of})])


# --- in pipelines


def per_minute(env: hg.StreamEnvironment) -> hg.DataStream:
    rows = env.from_source(hg.sources.csv("in/", schema=SCHEMA))
    return rows.key_by("key").window(hg.tumble("1 min", time="processing")).aggregate(total=hg.sum("n"))


def test_a_pipeline_without_a_watermark() -> None:
    steps = [{"key": "a", "n": 1}, {"key": "b", "n": 2}, AdvanceClock(at("59 s")), {"key": "a", "n": 3}]
    after = [AdvanceClock(at("61 s")), {"key": "a", "n": 10}]
    result = hg.testing.run(per_minute, [*steps, *after], restarts=[Restart(row=2, parallelism=3)])
    found = sorted((row["key"], row["window_start"], row["total"]) for row in result.rows)
    assert found == [("a", at(0), 4), ("a", at(60), 10), ("b", at(0), 2)]
    assert result.late_rows == 0


def _greatest(windows: Any, rows: hg.DataStream) -> hg.DataStream:
    return rows.key_by("key").window(windows).max_by("n")


def test_top_rows_of_windows_and_sessions() -> None:
    for windows, end in ((hg.tumble("1 min", time="processing"), 60), (hg.session("20 s", time="processing"), 20)):
        with OperatorHarness(partial(_greatest, windows), schema=SCHEMA) as harness:
            harness.push([{"key": "a", "n": 1}, {"key": "a", "n": 5}])
            assert harness.advance_clock(at(end - 1)) == []
            [row] = harness.advance_clock(at(end))
            assert (row["key"], row["n"], row["window_end"]) == ("a", 5, at(end))


def test_mistakes_are_found_at_the_call() -> None:
    rows = hg.StreamEnvironment().from_source(hg.sources.csv("in/", schema=SCHEMA)).key_by("key")
    windows = rows.window(hg.tumble("1 min", time="processing"))
    with pytest.raises(hg.PlanError, match=r"allowed_lateness: no row is late for tumble\(1 min, time='processing'\)"):
        windows.allowed_lateness("1 s")
    with pytest.raises(hg.PlanError, match=r"late_output: no row is late for session\(.*leave late_output out"):
        rows.window(hg.session("1 min", time="processing")).late_output("late")
    with pytest.raises(hg.PlanError, match="time='clock' must be 'event' or 'processing'"):
        hg.hop("2 s", every="1 s", time="clock")  # type: ignore[arg-type]
    with pytest.raises(hg.PlanError, match="the windows of 'window' go by the clock.*use time='processing' here too"):
        windows.aggregate(n=hg.count()).key_by().window(hg.tumble("1 h"))
    windows.aggregate(n=hg.count()).key_by().window(hg.tumble("1 h", time="processing")).aggregate(n=hg.sum("n"))


def test_a_window_fires_while_no_row_comes() -> None:
    """The source gives one row and then nothing for an hour: only the task's timer can fire the window."""
    env = hg.StreamEnvironment()
    rows = env.from_source(hg.sources.generate(_numbers, rate=1 / 3600))
    counts = rows.key_by().window(hg.tumble("50 ms", time="processing")).aggregate(rows=hg.count())
    assert counts.collect(limit=1)["rows"].to_pylist() == [1]


def _numbers(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch([range(start, start + n)], schema=pa.schema({"n": pa.int64()}))
