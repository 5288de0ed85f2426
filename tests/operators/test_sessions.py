"""Sessions agree with DuckDB and with a plain Python model: with disorder, merging, late rows and allowed lateness."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.operators.operator import MAX_TIME, OperatorContext
from headgate.operators.windows.session_window import SessionAggregate
from headgate.operators.windows.window_kinds import Sessions
from tests.examples import examples
from tests.operators.test_window_differential import AGGREGATES, SECOND, SPECS, flights
from tests.operators.window_rig import Kept, attach, multiset, rows_of

SCHEMA = pa.schema([("key", pa.string()), ("t", pa.timestamp("us")), ("value", pa.int64())])
COUNTED = (("n", hg.count()), ("total", hg.sum("value")), ("values", hg.collect_list("value")))


def made(gap: int, lateness: int = 0, specs: Any = COUNTED, **options: Any) -> tuple[SessionAggregate, Kept]:
    given: dict[str, Any] = {"keys": ("key",), "input_schema": SCHEMA, "time_offset": 0} | options
    operator = SessionAggregate(
        windows=Sessions(gap), aggregates=specs, time_column="t", allowed_lateness=lateness, **given
    )
    kept = attach(operator)
    operator.open(OperatorContext("job", "operator", 0, 1, 8))
    return operator, kept


def batch(*rows: tuple[str | None, int, int | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([row[i] for row in rows], f.type) for i, f in enumerate(SCHEMA)], schema=SCHEMA)


def found(kept: Kept) -> list[tuple[Any, ...]]:
    """Return the rows so far, with times in microseconds, and forget them."""
    table = pa.Table.from_batches(kept.batches, kept.batches[0].schema) if kept.batches else None
    kept.events = []
    if table is None:
        return []
    for at in (1, 2):
        table = table.set_column(at, table.schema.names[at], table.column(at).cast(pa.int64()))
    return rows_of(table)


def ask_duckdb(table: pa.Table, keys: tuple[str, ...], gap: int) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"{sql} as {name}" for name, (_, sql) in AGGREGATES.items())
    names = "".join(f"{key}, " for key in keys)
    by = f"partition by {', '.join(keys)}" if keys else ""
    with duckdb.connect() as connection:
        connection.execute("set threads=1")
        connection.register("flights", table)
        return rows_of(
            connection.sql(f"""
                with marked as (
                    select *, coalesce(epoch_us(t) - lag(epoch_us(t)) over w, {gap}) as after
                    from (select * replace (grade + 0.0 as grade) from flights) window w as ({by} order by t)),
                numbered as (
                    select *, sum((after >= {gap})::int) over ({by} order by t rows unbounded preceding) as number
                    from marked)
                select {names} min(t) as window_start, max(t) + to_microseconds({gap}) as window_end, {columns}
                from numbered group by {names} number
            """).to_arrow_table()
        )


@pytest.mark.turns(2)
@pytest.mark.parametrize("keys", [("carrier",), ("grade", "carrier"), ("seats",), ()], ids=str)
@pytest.mark.parametrize("gap", [SECOND // 100, SECOND, 7 * SECOND])
def test_sessions_agree_with_duckdb(keys: tuple[str, ...], gap: int) -> None:
    table = flights(3000, seed=len(keys), distinct=20)
    operator, kept = made(gap, specs=SPECS, keys=keys, input_schema=table.schema)
    largest = -(1 << 62)
    for part in table.to_batches(max_chunksize=257):
        operator.process(part)
        largest = max(largest, *part.column("t").cast(pa.int64()).to_pylist())
        operator.process_watermark(largest - 10 * SECOND)
    assert keys == () or kept.rows, "sessions fire before the input ends"
    operator.process_watermark(MAX_TIME)
    assert operator.late_rows == 0
    assert multiset(kept.rows) == multiset(ask_duckdb(table, keys, gap))


ROW = st.tuples(st.sampled_from(["a", "b", None]), st.integers(-60, 60), st.one_of(st.none(), st.integers(-5, 5)))
STEPS = st.lists(st.one_of(st.lists(ROW, min_size=1, max_size=12), st.integers(-80, 80)), max_size=12)
Session = tuple[list[int], list[int | None]]


class Model:
    """Sessions as lists: each has the times and the values of its rows."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap, self.lateness = gap, lateness
        self.sessions: dict[str | None, list[Session]] = {}
        self.watermark, self.late = -(1 << 62), 0

    def end(self, session: Session) -> int:
        return max(session[0]) + self.gap

    def row(self, key: str | None, session: Session) -> tuple[Any, ...]:
        known = [value for value in session[1] if value is not None]
        return key, min(session[0]), self.end(session), len(session[0]), sum(known) if known else None, known

    def process(self, rows: list[tuple[str | None, int, int | None]]) -> list[tuple[Any, ...]]:
        touched: list[tuple[str | None, int]] = []
        for key, time, value in rows:
            if time + self.gap + self.lateness <= self.watermark:
                self.late += 1
                continue
            touched.append((key, time))
            session: Session = ([time], [value])
            apart = []
            for other in self.sessions.get(key, []):
                is_open = self.end(other) + self.lateness > self.watermark
                if is_open and min(other[0]) < time + self.gap and time < self.end(other):
                    session = (other[0] + session[0], other[1] + session[1])
                else:
                    apart.append(other)
            self.sessions[key] = [*apart, session]
        changed = [
            (key, session)
            for key, sessions in self.sessions.items()
            for session in sessions
            if self.end(session) <= self.watermark and any((key, time) in touched for time in session[0])
            and self.end(session) + self.lateness > self.watermark
        ]  # fmt: skip
        return [self.row(key, session) for key, session in changed]

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        every = [(key, session) for key, sessions in self.sessions.items() for session in sessions]
        return [self.row(key, each) for key, each in every if before < self.end(each) <= self.watermark]


@settings(max_examples=examples(300))
@given(STEPS, st.integers(1, 25), st.sampled_from([0, 0, 1, 10, 60]), st.booleans())
def test_late_rows_and_merging_agree_with_a_plain_model(
    steps: list[list[tuple[str | None, int, int | None]] | int], gap: int, lateness: int, compacts: bool
) -> None:
    operator, kept = made(gap, lateness)
    if compacts:  # at each watermark
        operator._shards[0].state._compact_at = 0
    model = Model(gap, lateness)
    for step in [*steps, MAX_TIME]:
        if isinstance(step, int):
            operator.process_watermark(step)
            wanted = model.advance(step)
            rows = found(kept)
            assert [row[2] for row in rows] == sorted(row[2] for row in rows), "they come in the order of their ends"
        else:
            operator.process(batch(*step))
            wanted, rows = model.process(step), found(kept)
        if compacts:
            operator._shards[0].state._compact_at = 0
        assert multiset(rows) == multiset(wanted)
    assert operator.late_rows == model.late


def test_a_row_joins_the_sessions_on_both_sides() -> None:
    operator, kept = made(10)
    operator.process(batch(("a", 0, 1), ("a", 15, 2), ("b", 15, 5)))
    operator.process(batch(("a", 8, 3)))
    operator.process_watermark(24)
    assert found(kept) == []
    operator.process_watermark(25)
    assert multiset(found(kept)) == multiset([("a", 0, 25, 3, 6, [1, 2, 3]), ("b", 15, 25, 1, 5, [5])])


def test_a_row_at_the_end_of_a_session_begins_another() -> None:
    operator, kept = made(10)
    operator.process(batch(("a", 0, 1), ("a", 10, 2), ("a", 19, 3)))
    operator.process_watermark(MAX_TIME)
    assert found(kept) == [("a", 0, 10, 1, 1, [1]), ("a", 10, 29, 2, 5, [2, 3])]


def test_times_far_apart() -> None:
    operator, kept = made(1)
    far = (1 << 63) - 3
    operator.process(batch(("a", -far, 1), ("b", far, 2), ("a", far, 3)))
    operator.process_watermark(MAX_TIME)
    assert sorted(found(kept)) == [("a", -far, 1 - far, 1, 1, [1]), ("a", far, far + 1, 1, 3, [3]),
                                   ("b", far, far + 1, 1, 2, [2])]  # fmt: skip
    with pytest.raises(hg.DataError, match="a window of .* us since the epoch begins or ends at a time that"):
        operator.process(batch(("a", far + 2, 1)))


def test_the_state_of_a_long_session_stays_small() -> None:
    """A session that never ends needs its last buckets only."""
    operator, _ = made(10, specs=(("n", hg.count()),))
    sizes = []
    for begin in range(0, 400_000, 4_000):
        times = np.arange(begin, begin + 4_000)
        columns = [pa.array(["a"] * 4_000), pa.array(times, pa.timestamp("us")), pa.nulls(4_000, pa.int64())]
        operator.process(pa.record_batch(columns, schema=SCHEMA))
        operator.process_watermark(begin)
        sizes.append(operator.state_bytes())
    assert max(sizes[50:]) <= max(sizes[:50])


@pytest.mark.parametrize("gap", ["0 s", 0, "-1 s", "soon"])
def test_impossible_gaps(gap: Any) -> None:
    with pytest.raises(hg.PlanError, match="^window: "):
        hg.session(gap)


def test_a_gap_that_the_time_column_cannot_hold() -> None:
    schema = SCHEMA.set(1, pa.field("t", pa.timestamp("s")))
    with pytest.raises(hg.PlanError, match=r"gap is 1500000 us, and event-time column 't' of type timestamp\[s\]"):
        made(1_500_000, input_schema=schema)
