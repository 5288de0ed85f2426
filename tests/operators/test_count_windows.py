"""Windows by count agree with DuckDB: with nulls and NaN, batches of every size, overlaps, and incomplete windows."""

from __future__ import annotations

import re
from math import gcd
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.operator import OperatorContext
from headgate.operators.windows import count_state
from headgate.operators.windows.count_window import CountWindowAggregate
from headgate.operators.windows.window_kinds import CountWindows
from tests.operators.test_window_differential import AGGREGATES, SPECS, flights
from tests.operators.window_rig import attach, multiset, rows_of

SMALL = pa.schema([("key", pa.int64()), ("value", pa.int64())])
KEYS = [("carrier", "grade"), ("carrier",), ()]
WINDOWS = [
    CountWindows(1, 1),
    CountWindows(7, 7),
    CountWindows(100, 100, partial=True),
    CountWindows(10, 1),
    CountWindows(10, 4, partial=True),
    CountWindows(9, 3),
    CountWindows(5, 3, partial=True),
]


def made(windows: CountWindows, keys: tuple[str, ...] = ("key",), specs: Any = None, schema: pa.Schema = SMALL) -> Any:
    specs = (("rows", hg.count()), ("total", hg.sum("value"))) if specs is None else specs
    operator = CountWindowAggregate(keys, windows=windows, aggregates=specs, input_schema=schema)
    operator.open(OperatorContext("job", "operator", 0, 1, 8))
    return operator, attach(operator)


def of_duckdb(table: pa.Table, keys: tuple[str, ...], windows: CountWindows) -> list[tuple[Any, ...]]:
    columns = ", ".join(f"{sql} as {name}" for name, (_, sql) in AGGREGATES.items())
    names = "".join(f"{key}, " for key in keys)
    partition = f"partition by {', '.join(keys)}" if keys else ""
    size, every = windows.size, windows.every
    wanted = f"(number + 1) * {every} <= total"
    if windows.partial:
        wanted = f"({wanted} or number = total // {every} and total % {every} > 0)"
    with duckdb.connect() as connection:
        connection.execute("set threads=1")
        connection.register("flights", table)
        return rows_of(
            connection.sql(f"""
                with counted as (
                    select *, row_number() over ({partition} order by t) - 1 as place,
                        count(*) over ({partition}) as total
                    from flights),
                windowed as (
                    select *, unnest(range(place // {every}, (place + {size}) // {every})) as number from counted)
                select {names} {columns} from windowed where {wanted} group by {names} number
            """).to_arrow_table()
        )


@pytest.mark.turns(6)
@pytest.mark.parametrize(("rows", "batch"), [(40, 1), (120, 13), (700, 250), (700, 700)])
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_windows_agree_with_duckdb(
    windows: CountWindows, rows: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if batch < 250:  # compactions, and results in pieces
        monkeypatch.setattr(count_state, "_LEAST_DEAD", 2)
        monkeypatch.setattr(count_state, "_MOST", 3)
    table = flights(rows, seed=windows.size, distinct=5)
    order = pa.array(np.arange(len(table)), pa.int64()).cast(pa.timestamp("us"))
    table = table.set_column(table.schema.get_field_index("t"), "t", order)
    for keys in KEYS:
        operator, kept = made(windows, keys, SPECS, table.schema)
        for part in table.to_batches(max_chunksize=batch):
            operator.process(part)
        operator.end_input()
        assert kept.rows or keys
        assert multiset(kept.rows) == multiset(of_duckdb(table, keys, windows))


def numbered(keys: list[int], begin: int = 0) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys), pa.array(range(begin, begin + len(keys)))], schema=SMALL)


def test_a_window_fires_with_its_last_row_and_in_order() -> None:
    operator, kept = made(CountWindows(3, 3), specs=(("values", hg.collect_list("value")),))
    operator.process(numbered([1, 2, 1]))
    assert kept.rows == []
    operator.process(numbered([1, 1, 2, 1, 1, 1], begin=3))
    assert kept.rows == [(1, [0, 2, 3]), (1, [4, 6, 7])]
    operator.process(numbered([2], begin=9))
    assert kept.rows[2:] == [(2, [1, 5, 9])]


def test_first_and_last_go_by_arrival_and_a_null_time_is_no_error() -> None:
    schema = SMALL.append(pa.field("at", pa.timestamp("us")))
    specs = (("first", hg.first("value")), ("last", hg.last("value")))
    operator, kept = made(CountWindows(4, 2), specs=specs, schema=schema)
    times = pa.array([50, None, 10, 40, None, 0], pa.timestamp("us"))
    operator.process(pa.record_batch([pa.array([1] * 6), pa.array(range(6)), times], schema=schema))
    assert kept.rows == [(1, 0, 1), (1, 0, 3), (1, 2, 5)]


def test_rows_after_a_restore_arrive_later() -> None:
    specs = (("first", hg.first("value")), ("last", hg.last("value")))
    long, _ = made(CountWindows(4, 4), specs=specs)
    long.process(numbered([*[1] * 400, 2, 2]))
    short, _ = made(CountWindows(4, 4), specs=specs)
    short.process(numbered([3, 3]))
    restored, kept = made(CountWindows(4, 4), specs=specs)
    restored.restore([long.snapshot(), short.snapshot()])
    restored.process(numbered([2, 3, 3, 2], begin=900))
    assert sorted(kept.rows) == [(2, 400, 903), (3, 0, 902)]


def test_incomplete_windows_are_dropped_or_emitted_once() -> None:
    operator, kept = made(CountWindows(3, 3))
    operator.process(numbered([1, 1, 1, 1]))
    operator.end_input()
    assert kept.rows == [(1, 3, 3)]
    operator, kept = made(CountWindows(3, 3, partial=True))
    operator.process(numbered([1, 1, 1, 1, 2, 3, 3, 3]))
    operator.end_input()
    assert sorted(kept.rows[2:]) == [(1, 1, 3), (2, 1, 4)]
    restored, again = made(CountWindows(3, 3, partial=True))
    restored.restore([operator.snapshot()])
    restored.end_input()
    assert again.rows == []


@pytest.mark.parametrize("windows", [CountWindows(4, 4), CountWindows(4, 1)], ids=str)
def test_memory_is_that_of_the_windows_that_are_open(windows: CountWindows) -> None:
    operator, kept = made(windows, specs=(("values", hg.collect_list("value")),))
    most = 0
    for begin in range(0, 600_000, 6_000):
        operator.process(numbered(list(range(3000)) * 2, begin))
        kept.events = []
        most = max(most, operator.state_bytes())
    assert operator.state_keys() == 3000
    assert most < 5_000_000


def test_keys_without_rows_in_a_window_are_removed() -> None:
    operator, kept = made(CountWindows(2, 2))
    for begin in range(0, 400_000, 4_000):
        operator.process(numbered(list(range(begin, begin + 4_000))))
        operator.process(numbered(list(range(begin, begin + 4_000))))
    assert len(kept.rows) == 400_000
    assert operator.state_keys() < 40_000
    assert operator.snapshot().tables["panes"].num_rows == 0


def test_keys_that_stay_keep_their_rows_when_others_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_state, "_LEAST_DEAD", 2)
    operator, kept = made(CountWindows(3, 3))
    operator.process(numbered([*range(40), *range(40)]))
    done = [key for key in range(40) if key % 8 != 5]
    operator.process(numbered(done))
    assert operator.state_keys() == 5
    kept.events = []
    operator.process(numbered([37, 5, 100, 29], begin=1000))
    assert sorted(kept.rows) == [(5, 3, 5 + 45 + 1001), (29, 3, 29 + 69 + 1003), (37, 3, 37 + 77 + 1000)]


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
def test_the_state_has_the_panes_that_a_window_may_need(windows: CountWindows) -> None:
    operator, _ = made(windows)
    random = np.random.default_rng(3)
    panes = gcd(windows.size, windows.every)
    for size in (1, 2, 30, 7, 100, 1, 40, 500):
        operator.process(numbered(random.integers(0, 5, size).tolist()))
        table = operator.snapshot().tables["panes"]
        assert operator._state._live == table.num_rows
        for rows, pane in zip(table["rows"].to_pylist(), table["pane"].to_pylist(), strict=True):
            assert pane * panes < rows, "the pane has rows"
            assert pane * panes > rows - windows.size, "a window that ends with a later row needs it"
        restored, _ = made(windows)
        restored.restore([operator.snapshot()])
        assert restored.snapshot().tables["panes"].equals(table)


def corrupted(**columns: list[int | None]) -> Any:
    operator, _ = made(CountWindows(4, 2))
    operator.process(numbered([1, 1, 1]))
    snapshot = operator.snapshot()
    assert snapshot.tables["panes"].select(["rows", "pane"]).to_pydict() == {"rows": [3, 3], "pane": [0, 1]}

    def change(table: pa.Table) -> pa.Table:
        for name, values in columns.items():
            table = table.set_column(table.schema.get_field_index(name), name, [pa.array(values, pa.int64())])
        return table

    return snapshot.with_tables(change)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"pane": [0, 0]}, "a pane exists twice"),
        ({"pane": [0, 2]}, "no window needs pane 2 of a key with 3 rows"),
        ({"pane": [-1, 1]}, "no window needs pane -1"),
        ({"rows": [3, 4]}, "a key has two numbers of rows"),
        ({"rows": [9, 9]}, "no window needs pane 0 of a key with 9 rows"),
        ({"rows": [0, 3]}, "a key has 0 rows"),
        ({"rows": [2**62 + 1] * 2}, "a key has"),
        ({"pane": [None, 1]}, "a pane has no number"),
    ],
)
def test_panes_that_cannot_be_are_refused(columns: dict[str, list[int | None]], says: str) -> None:
    operator, _ = made(CountWindows(4, 2))
    with pytest.raises(ValueError, match=says):
        operator.restore([corrupted(**columns)])


def test_state_of_other_windows_is_refused() -> None:
    operator, _ = made(CountWindows(4, 2))
    says = "had count_window(4, every=2), and has count_window(4) now: change it back"
    with pytest.raises(hg.CheckpointError, match=re.escape(says)):
        made(CountWindows(4, 4))[0].restore([operator.snapshot()])
    partial, _ = made(CountWindows(4, 2, partial=True))
    partial.restore([operator.snapshot()])
    snapshot = operator.snapshot()
    snapshot.values.pop("arrived")
    with pytest.raises(ValueError, match="arrived"):
        partial.restore([snapshot])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0,), "count_window: size=0 must be a whole number of rows, from 1 to"),
        ((-3,), "size=-3 must be"),
        ((True,), "size=True must be"),
        ((2.0,), "size=2.0 must be"),
        (("10",), "size='10' must be"),
        ((2**41,), "must be a whole number of rows, from 1 to 1099511627776"),
        ((10, 0), "every=0 must be"),
        ((10, 1.5), "every=1.5 must be"),
        ((10, 11), "size=10 must not be less than every=11: rows would be in no window"),
        ((20_000, 1), "would cut each window into 20000 parts, and at most 10000 are possible"),
    ],
)
def test_impossible_windows_are_refused(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(hg.PlanError, match=re.escape(says)):
        hg.count_window(*arguments)


def test_windows_say_what_they_are() -> None:
    windows = [hg.count_window(3), hg.count_window(3, 1), hg.count_window(4, every=4, partial=True)]
    assert [*map(str, windows)] == ["count_window(3)", "count_window(3, every=1)", "count_window(4, partial=True)"]
    with pytest.raises(hg.PlanError, match="partial=1 must be True or False"):
        hg.count_window(3, partial=1)  # type: ignore[arg-type]


def test_the_log_says_when_rows_were_emitted() -> None:
    operator, _ = made(CountWindows(2, 2))
    operator.process(numbered([1, 1, 1]))
    operator.process(numbered([1]))
    assert [total for _, total in operator.emissions.points()] == [1, 2]
