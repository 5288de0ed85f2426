"""The rows with the extreme values agree with a plain sort: of every type, with nulls and ties, in windows and so
far."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.api.rows_by_key import operator_of
from headgate.operators.aggregates.running_aggregate import running_schema
from headgate.operators.aggregates.top_rows import TopRows
from headgate.operators.operator import MAX_TIME, OperatorContext
from headgate.operators.ranked_rows import ROWS, RunningTop, ranked_schema
from headgate.operators.windows.window_kinds import Sessions, TimeWindows, Windows, window_schema
from headgate.records.order_words import Ranking, has_order_words, order_words
from tests.examples import examples
from tests.operators.window_rig import Kept, attach, rows_of

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("note", pa.string()), ("t", pa.timestamp("us"))])
Row = tuple[str | None, int | None, str | None, int]
ORDERED: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -5, 0, 7, 2**63 - 1],
    pa.int8(): [-128, -1, 0, 127],
    pa.uint64(): [0, 1, 2**63, 2**64 - 1],
    pa.uint8(): [0, 200, 255],
    pa.float64(): [-math.inf, -1.5, -1e-300, 0.0, 1e-300, 2.5, math.inf, math.nan],
    pa.float32(): [-math.inf, -1.5, 0.0, 2.5, math.nan],
    pa.bool_(): [False, True],
    pa.date32(): [date(1960, 1, 1), date(2026, 1, 1)],
    pa.timestamp("ns", "UTC"): [-5, 0, 2**60],
    pa.decimal128(18, 2): [Decimal("-9999999999999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("3.50")],
}


@pytest.mark.parametrize("kind", ORDERED, ids=str)
def test_words_have_the_order_of_the_values(kind: pa.DataType) -> None:
    words = order_words(pa.array([*ORDERED[kind], None], kind, from_pandas=False)).tolist()[:-1]
    assert has_order_words(kind)
    assert words == sorted(set(words))
    if pa.types.is_floating(kind):
        assert len(set(order_words(pa.array([0.0, -0.0], kind)).tolist())) == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.decimal128(19, 0), pa.list_(pa.int64()), pa.null()])
def test_other_types_are_refused(kind: pa.DataType) -> None:
    assert not has_order_words(kind)
    with pytest.raises(hg.PlanError, match=r"top\(3, by='value'\): column 'value' is .*cast it first"):
        TopRows("top", "value", most=3).output_field(ROWS, pa.schema([("value", kind)]))


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.record_batch([pa.array([row[i] for row in rows], f.type) for i, f in enumerate(SCHEMA)], schema=SCHEMA)


def running(most: int, greatest: bool = True, final: bool = False, then_by: Ranking = ()) -> tuple[RunningTop, Kept]:
    top = TopRows("top", "value", most=most, greatest=greatest, columns=("value", "note", "t"), then_by=then_by)
    output = ranked_schema(running_schema(("key",), ((ROWS, top),), SCHEMA), top)
    operator = RunningTop(("key",), ((ROWS, top),), input_schema=SCHEMA, output=output, final=final)
    operator.open(OperatorContext("job", "operator", 0, 1, 8))
    return operator, attach(operator)


def best(rows: Sequence[Row], most: int, greatest: bool = True, then_by: Ranking = ()) -> list[Row]:
    known = [(row[1], row) for row in rows if row[1] is not None]
    for _, latest in then_by:  # by the time; sorts are stable
        known.sort(key=lambda pair: pair[1][3], reverse=latest)
    return [row for _, row in sorted(known, key=lambda pair: -pair[0] if greatest else pair[0])[:most]]


ROWS_OF_KEYS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(-4, 4)),
        st.sampled_from(["x", None, "a longer note than sixteen bytes"]),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(80))
@given(
    st.lists(ROWS_OF_KEYS, min_size=1, max_size=6),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), (("t", True),), (("t", False),)]),
)
def test_the_last_rows_of_each_rank_are_those_of_a_stable_sort(
    batches: list[list[Row]], most: int, greatest: bool, final: bool, then_by: Ranking
) -> None:
    operator, kept = running(most, greatest, final, then_by)
    seen: list[Row] = []
    latest: dict[tuple[str | None, int], Row] = {}
    for rows in batches:
        operator.process(batch(rows))
        seen += rows
        if not final:
            for row in kept.rows:
                latest[row[0], row[4]] = row[:4]
            kept.events = []
            assert latest == expected(seen, most, greatest, then_by)
    operator.end_input()
    if final:
        assert {(row[0], row[4]): row[:4] for row in kept.rows} == expected(seen, most, greatest, then_by)


def expected(
    rows: Sequence[Row], most: int, greatest: bool, then_by: Ranking = ()
) -> dict[tuple[str | None, int], Any]:
    table = rows_of(pa.Table.from_batches([batch(rows)]))
    wanted = {}
    for key in {row[0] for row in rows}:
        of_key = [row for row in table if row[0] == key]
        for rank, row in enumerate(best(of_key, most, greatest, then_by), start=1):
            wanted[key, rank] = row
    return wanted


def test_only_keys_whose_rows_changed_are_emitted() -> None:
    operator, kept = running(1)
    operator.process(batch([("a", 5, None, 0), ("b", 5, None, 0)]))
    kept.events = []
    operator.process(batch([("a", 5, "equal", 0), ("a", 4, None, 0), ("b", 6, None, 0)]))
    assert [row[:2] for row in kept.rows] == [("b", 6)]


def test_the_log_of_rows_stays_small() -> None:
    operator, _ = running(2)
    for begin in range(0, 600_000, 10_000):
        values = list(range(begin, begin + 10_000))
        columns = [pa.array(["a", "b"] * 5_000), pa.array(values), pa.nulls(10_000, pa.string())]
        operator.process(pa.record_batch([*columns, pa.array(values, pa.timestamp("us"))], schema=SCHEMA))
    assert operator.state_bytes() < 10_000_000


@pytest.mark.parametrize("size", [(30, 30), (60, 30), (120, 30), 30], ids=["tumble", "hop", "panes", "session"])
def test_the_rows_of_windows_are_those_of_a_sort(size: tuple[int, int] | int) -> None:
    chance = random.Random(str(size))
    top = TopRows("top", "value", most=2, columns=("value", "note", "t"))
    windows: TimeWindows = Sessions(size) if isinstance(size, int) else Windows(*size)
    output = ranked_schema(window_schema(("key",), "t", windows, ((ROWS, top),), SCHEMA), top)
    operator = operator_of(windows, is_ranked=True)(
        ("key",),
        windows=windows,
        aggregates=((ROWS, top),),
        input_schema=SCHEMA,
        time_column="t",
        time_offset=0,
        output=output,
    )
    operator.open(OperatorContext("job", "operator", 0, 1, 8))
    kept = attach(operator)
    values = iter(chance.sample(range(10_000), 600))  # all different
    rows: list[Row] = [(chance.choice("ab"), next(values), "x", chance.randint(0, 3000)) for _ in range(600)]
    for begin in range(0, 600, 50):
        operator.process(batch(rows[begin : begin + 50]))
    operator.process_watermark(MAX_TIME)
    found: dict[Any, list[int]] = {}
    table = pa.Table.from_batches(kept.batches)
    table = table.set_column(2, "window_end", table["window_end"].cast(pa.int64()))
    for row in table.to_pylist():
        found.setdefault((row["key"], row["window_end"]), []).append(row["value"])
        assert row["rank"] == len(found[row["key"], row["window_end"]])
    groups: dict[Any, list[Row]] = {}
    for key in "ab":
        ordered = sorted((row for row in rows if row[0] == key), key=lambda row: row[3])
        if isinstance(windows, Windows):
            for row in ordered:
                for start in range(row[3] // windows.every * windows.every, row[3] - windows.size, -windows.every):
                    groups.setdefault((key, start + windows.size), []).append(row)
            continue
        session: list[Row] = []
        for row in [*ordered, (key, None, None, 10**9)]:
            if session and row[3] - session[-1][3] >= windows.gap:
                groups[key, session[-1][3] + windows.gap] = session
                session = []
            session.append(row)
    assert found == {group: [row[1] for row in best(of, 2)] for group, of in groups.items()}


def test_keys_get_places_for_the_rows_that_they_have() -> None:
    """With `top(100_000)`, 1,000 keys with one row each and one key with many need little memory."""
    operator, kept = running(100_000)
    chance = random.Random(0)
    rows: list[Row] = []
    for count in (1, 30, 3_000):
        more: list[Row] = [("many", chance.randint(0, 10_000), "x", 0) for _ in range(count)]
        more += [(f"key {number}", number, "x", 0) for number in range(1_000) if count == 30]
        chance.shuffle(more)
        operator.process(batch(more))
        rows += more
    assert operator.state_bytes() < 2_000_000
    latest = {(row[0], row[4]): row[1] for row in kept.rows}
    assert latest == {place: row[1] for place, row in expected(rows, 100_000, greatest=True).items()}


@pytest.mark.parametrize("most", [1, 16, 17, 40])
def test_places_move_and_rows_survive_a_restart(most: int) -> None:
    chance = random.Random(most)
    rows: list[Row] = [(chance.choice("abc"), chance.randint(0, 50), "x", 0) for _ in range(300)]
    operator, _ = running(most, final=True)
    for begin in range(0, 200, 20):
        operator.process(batch(rows[begin : begin + 20]))
    again, kept = running(most, final=True)
    again.restore([operator.snapshot()])
    again.process(batch(rows[200:]))
    again.end_input()
    assert {(row[0], row[4]): row[1] for row in kept.rows} == {
        place: row[1] for place, row in expected(rows, most, greatest=True).items()
    }


@pytest.mark.parametrize("then_by", [(), (("t", False),)])
def test_a_copy_for_a_snapshot_stays_as_it_is(then_by: Ranking) -> None:
    """The operator goes on while another thread writes the snapshot."""
    top = TopRows("top", "value", most=20, columns=("value", "note", "t"), then_by=then_by)
    accumulator = top.own_accumulator(SCHEMA)
    read = top.reader(SCHEMA)

    def update(keys: int, count: int) -> None:
        chance = random.Random(count)
        slots = np.array([chance.randrange(keys) for _ in range(count)])
        rows: list[Row] = [("x", chance.randint(0, 50), "x", chance.randint(0, 9)) for _ in range(count)]
        accumulator.update(keys, slots, read(batch(rows)), None)

    update(100, 1_000)
    slots = np.arange(100)
    [before] = accumulator.columns(slots)
    copied = accumulator.frozen()
    update(100, 2_000)
    accumulator.keep(np.arange(3))
    assert copied.columns(slots)[0].equals(before)
    assert not accumulator.columns(np.arange(3))[0].equals(before[:3])
