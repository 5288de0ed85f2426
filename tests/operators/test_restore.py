"""Operators are saved and restored, at the same and at another parallelism, and agree with a run without interruption.

The uninterrupted run has a subtask for every key group. Both runs must emit the same rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.api.rows_by_key import operator_of
from headgate.errors import CheckpointError, DataError
from headgate.operators.aggregates.aggregates import Aggregate
from headgate.operators.aggregates.running_aggregate import RunningAggregate, running_schema
from headgate.operators.aggregates.top_rows import TopRows
from headgate.operators.deduplicate import KeepFirst, KeepLast
from headgate.operators.operator import MAX_TIME, Operator, OperatorContext
from headgate.operators.ranked_rows import ROWS, RunningTop, TopInCountWindows, ranked_schema
from headgate.operators.windows.count_window import CountWindowAggregate, count_window_schema
from headgate.operators.windows.session_window import SessionAggregate
from headgate.operators.windows.window import WindowAggregate
from headgate.operators.windows.window_kinds import CountWindows, Sessions, TimeWindows, Windows, window_schema
from headgate.records.hashing import key_groups, key_hash, subtask_of_key_group
from headgate.state.snapshot import KEY_GROUP, Snapshot, decode, encode
from tests.examples import examples
from tests.operators.window_rig import GROUPS, Side, attach, multiset

NAN = float("nan")
KEYS: dict[tuple[pa.DataType, ...], list[list[Any]]] = {
    (pa.int64(),): [[*range(-5, 30), 2**62, None]],
    (pa.uint8(),): [[0, 1, 255, None]],
    (pa.string(),): [["", "a", None, "\0", *(f"a key of some length, number {n}" for n in range(9))]],
    (pa.float64(),): [[0.0, -0.0, NAN, None, 1.5, float("-inf")]],
    (pa.float32(), pa.bool_()): [[0.0, -0.0, NAN, None, 1.1], [True, False, None]],
    (pa.dictionary(pa.int16(), pa.string()), pa.date32()): [["x", "", None, "yyyy"], [date(2026, 1, 1), None]],
    (pa.decimal128(30, 1), pa.binary(2)): [[Decimal("1.5"), Decimal("-9999999999999999999999.5"), None], [b"ab", None]],
    (pa.timestamp("ns", "UTC"), pa.binary()): [[datetime(1960, 1, 1), None], [b"", b"\0", None]],
    (pa.null(), pa.int32()): [[None], [1, 2, None]],
    (): [],
}
VALUES = {
    "i": (pa.int64(), [2**53 + 1, -(2**53) - 1, 3, None]),
    "f": (pa.float64(), [0.5, -0.25, 1024.0, NAN, None]),
    "s": (pa.string(), ["", "tail", "ä" * 12, None]),
    "d": (pa.decimal128(30, 2), [Decimal("0.25"), Decimal("-1000000000000.00"), None]),
    "b": (pa.bool_(), [True, False, None]),
}
#: All aggregates. All event times are different, so the results of first and last are certain.
SPECS = (
    ("rows", hg.count()),
    *((f"{make.__name__}_{name}", make(name))
      for name in VALUES for make in (hg.count, hg.first, hg.last, hg.min, hg.max, hg.count_distinct,
                                     hg.approx_count_distinct, hg.collect_list)),
    *((f"{make.__name__}_{name}", make(name)) for name in "ifd" for make in (hg.sum, hg.mean, hg.stddev, hg.var)),
    *((f"some_{make.__name__}_{name}", make(name, where="s <> ''"))
      for name in VALUES for make in (hg.count, hg.last, hg.min, hg.count_distinct, hg.collect_list)),
    *((f"some_{make.__name__}_{name}", make(name, where="s <> ''")) for name in "ifd" for make in (hg.sum, hg.var)),
    # A quantile of few values is exact, so the order of merges does not change it.
    *((f"quantile_{name}", hg.quantile(name, 0.4, where="s = 'tail'")) for name in "ifd"),
)  # fmt: skip
Specs = tuple[tuple[str, Aggregate], ...]
Make = Callable[[pa.Schema, tuple[str, ...], Specs], Operator]


def random_batch(
    keys: tuple[pa.DataType, ...], chance: random.Random, around: int, used: set[int], kinds: Any = KEYS
) -> pa.RecordBatch:
    count = chance.randint(1, 40)
    times: list[int] = []
    while len(times) < count:
        time = 64 * chance.randint(around - 30, around + 30) + chance.randrange(64)
        if time not in used:
            used.add(time)
            times.append(time)
    columns = {f"k{n}": pa.array(chance.choices(v, k=count), t, from_pandas=False)
               for n, (t, v) in enumerate(zip(keys, kinds[keys], strict=True))}  # fmt: skip
    columns["t"] = pa.array(times, pa.timestamp("us"))
    for name, (kind, values) in VALUES.items():
        columns[name] = pa.array(chance.choices(values, k=count), kind, from_pandas=False)  # type: ignore[arg-type]
    return pa.record_batch(columns)


def compare(make: Make, types: tuple[pa.DataType, ...], parallelisms: Sequence[int], apart: int, seed: int) -> None:
    """Compare a run that resumes at each of these parallelisms with an uninterrupted one.

    `apart` is how much the watermarks of subtasks may differ.
    """
    chance, used = random.Random(seed), set[int]()
    names = tuple(f"k{n}" for n in range(len(types)))
    schema = random_batch(types, chance, 0, set()).schema
    specs = tuple(chance.sample(SPECS, 5))
    whole = Side(lambda: make(schema, names, specs), GROUPS)
    sides: list[Side] = []
    around = 0
    for parallelism in parallelisms:
        side = Side(lambda: make(schema, names, specs), parallelism)
        if sides:
            side.restore(sides[-1].snapshots())
        sides.append(side)
        owners = [subtask_of_key_group(group, parallelism, GROUPS) for group in range(GROUPS)]  # type: ignore[arg-type]

        def watermarks(times: Sequence[int], side: Side = side, owners: Sequence[Any] = owners) -> None:
            side.watermarks(times)
            whole.watermarks([times[owner] for owner in owners])

        for _ in range(chance.randint(0, 3)):
            batch = random_batch(types, chance, around, used)
            side.process(batch, len(types))
            whole.process(batch, len(types))
            around += chance.randint(0, 15)
            watermarks([64 * (around - 10 - chance.randint(0, apart)) for _ in range(parallelism)])
    sides[-1].watermarks([MAX_TIME] * len(sides[-1].operators))
    whole.watermarks([MAX_TIME] * GROUPS)
    for operator in (*sides[-1].operators, *whole.operators):
        operator.end_input()
    assert sum((side.rows for side in sides), Counter()) == whole.rows
    assert sum(side.late for side in sides) == whole.late


def window(windows: Windows, lateness: int = 0) -> Make:
    def make(schema: pa.Schema, keys: tuple[str, ...], specs: Specs) -> Operator:
        return WindowAggregate(
            keys,
            time_column="t",
            time_offset=0,
            windows=windows,
            aggregates=specs,
            input_schema=schema,
            allowed_lateness=lateness,
            clock=lambda: 0.0,
        )

    return make


def sessions(gap: int, lateness: int = 0) -> Make:
    def make(schema: pa.Schema, keys: tuple[str, ...], specs: Specs) -> Operator:
        return SessionAggregate(
            keys,
            time_column="t",
            time_offset=0,
            windows=Sessions(gap),
            aggregates=specs,
            input_schema=schema,
            allowed_lateness=lateness,
            clock=lambda: 0.0,
        )

    return make


def running(final: bool) -> Make:
    return lambda schema, keys, specs: RunningAggregate(keys, specs, input_schema=schema, final=final, time_column="t")


def top(most: int, window: TimeWindows | None = None) -> Make:
    def make(schema: pa.Schema, keys: tuple[str, ...], specs: Specs) -> Operator:
        rows = TopRows("top", "t", most=most, columns=tuple(name for name in schema.names if name not in keys))
        specs = ((ROWS, rows),)
        if window is None:
            output = ranked_schema(running_schema(keys, specs, schema), rows)
            return RunningTop(keys, specs, input_schema=schema, output=output)
        return operator_of(window, is_ranked=True)(  # type: ignore[no-any-return]
            keys,
            time_column="t",
            time_offset=0,
            windows=window,
            aggregates=specs,
            input_schema=schema,
            output=ranked_schema(window_schema(keys, "t", window, specs, schema), rows),
            allowed_lateness=300,
            clock=lambda: 0.0,
        )

    return make


def counted(windows: CountWindows) -> Make:
    return lambda schema, keys, specs: CountWindowAggregate(
        keys, windows=windows, aggregates=specs, input_schema=schema, clock=lambda: 0.0
    )


def top_by_count(most: int, windows: CountWindows) -> Make:
    def make(schema: pa.Schema, keys: tuple[str, ...], specs: Specs) -> Operator:
        rows = TopRows("top", "t", most=most, columns=tuple(name for name in schema.names if name not in keys))
        specs = ((ROWS, rows),)
        output = ranked_schema(count_window_schema(keys, specs, schema), rows)
        return TopInCountWindows(keys, windows=windows, aggregates=specs, input_schema=schema, output=output)

    return make


def first_rows(ttl: int | None) -> Make:
    timed: Any = {} if ttl is None else {"ttl": ttl, "time_column": "t"}
    return lambda schema, keys, specs: KeepFirst(keys, input_schema=schema, **timed)


OPERATORS = {
    "tumbling": window(Windows(640, 640)),
    "hop": window(Windows(1000, 640)),
    "panes": window(Windows(2560, 640)),
    "tumbling, late": window(Windows(640, 640), 700),
    "hop, late": window(Windows(1000, 400), 700),
    "panes, late": window(Windows(2560, 640), 700),
    "short sessions": sessions(10),
    "sessions": sessions(300),
    "sessions, late": sessions(200, 700),
    "top": top(2),
    "top in windows": top(2, Windows(640, 640)),
    "top in panes": top(3, Windows(2560, 640)),
    "top in sessions": top(1, Sessions(300)),
    "count": counted(CountWindows(4, 4)),
    "count, overlapping": counted(CountWindows(6, 4, partial=True)),
    "count, at each row": counted(CountWindows(3, 1)),
    "top by count": top_by_count(2, CountWindows(4, 2)),
    "first rows": first_rows(None),
    "first rows for some time": first_rows(500),
    "last rows": lambda schema, keys, specs: KeepLast(keys, input_schema=schema, time_column="t"),
    "running": running(False),
    "final": running(True),
}
OLD_AND_NEW = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
APART = st.sampled_from([0, 0, 3, 40])


@pytest.mark.turns(3)
@pytest.mark.parametrize("operator", OPERATORS)
@settings(max_examples=examples(16))
@given(st.sampled_from(list(KEYS)), OLD_AND_NEW, APART, st.integers(0, 1 << 32))
def test_the_output_is_that_of_a_run_without_interruption(
    operator: str, types: tuple[pa.DataType, ...], parallelisms: tuple[int, ...], apart: int, seed: int
) -> None:
    compare(OPERATORS[operator], types, parallelisms, apart, seed)


@pytest.mark.parametrize("types", KEYS, ids=lambda types: "+".join(map(str, types)) or "no keys")
def test_keys_of_every_type_are_restored(types: tuple[pa.DataType, ...]) -> None:
    compare(OPERATORS["tumbling"], types, (2, 3), 0, 5)
    compare(OPERATORS["running"], types, (3, 2), 0, 6)


SMALL = pa.schema([("key", pa.int64()), ("t", pa.timestamp("us")), ("value", pa.int64())])
COUNT = (("rows", hg.count()), ("total", hg.sum("value")))


def small(*times: int) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array([1] * len(times)), pa.array(times, pa.timestamp("us")), [1] * len(times)], schema=SMALL
    )


def opened(operator: Operator) -> Operator:
    attach(operator)
    operator.open(OperatorContext("job", "operator", 0, 1, GROUPS))
    return operator


def of_window(
    size: int = 10, every: int = 10, schema: pa.Schema = SMALL, specs: Specs = COUNT, time: str = "t"
) -> Operator:
    return opened(
        WindowAggregate(
            ("key",),
            time_column=time,
            time_offset=0,
            windows=Windows(size, every),
            aggregates=specs,
            input_schema=schema,
        )
    )


def of_sessions(gap: int = 10, specs: Specs = COUNT) -> Operator:
    return opened(sessions(gap)(SMALL, ("key",), specs))


def of_running(schema: pa.Schema = SMALL, specs: Specs = COUNT) -> Operator:
    return opened(RunningAggregate(("key",), specs, input_schema=schema, time_column="t"))


@pytest.mark.parametrize(
    "make",
    [of_window, of_running, partial(of_window, 40, 10), of_sessions],
    ids=["window", "running", "panes", "sessions"],
)
def test_a_snapshot_is_a_copy(make: Callable[[], Operator]) -> None:
    operator = make()
    operator.process(small(1, 2, 33))
    operator.process_watermark(5)
    snapshot, same = operator.snapshot(), operator.snapshot()
    assert snapshot is not None
    assert same is not None
    before = encode({"node": snapshot})
    for time in range(0, 3000, 7):
        operator.process(small(time + 30))
        operator.process_watermark(time)
    assert encode({"node": same}) == before


@pytest.mark.turns(3)
@pytest.mark.parametrize("types", [(pa.int64(),), (pa.string(), pa.int64())], ids=["one", "two"])
@pytest.mark.parametrize(
    "operator",
    ["tumbling", "panes", "sessions", "count, overlapping", "running", "top", "top in sessions", "last rows"],
)
def test_later_rows_do_not_change_a_snapshot(operator: str, types: tuple[pa.DataType, ...]) -> None:
    kinds = {**KEYS, (pa.string(), pa.int64()): [KEYS[(pa.string(),)][0], [1, 2, None]]}
    chance, used = random.Random(3), set[int]()

    def batch(around: int) -> pa.RecordBatch:
        return random_batch(types, chance, around, used, kinds)

    names = tuple(f"k{n}" for n in range(len(types)))
    made = opened(OPERATORS[operator](batch(0).schema, names, SPECS))
    for around in range(0, 100, 10):
        made.process(batch(around))
        made.process_watermark(64 * (around - 40))
    snapshot, same = made.snapshot(), made.snapshot()
    assert snapshot is not None
    assert same is not None
    before = [repr(table.to_pydict()) for table in snapshot.tables.values()]  # NaN is NaN
    for around in range(100, 250, 10):
        made.process(batch(around))
        made.process_watermark(64 * (around - 40))
    assert [repr(table.to_pydict()) for table in same.tables.values()] == before


def test_tables_begin_with_the_key_group_and_say_what_their_columns_are() -> None:
    operator = of_window()
    operator.process(small(1, 2, 33))
    snapshot = operator.snapshot()
    assert snapshot is not None
    [group] = key_groups(key_hash([pa.array([1])]), GROUPS).tolist()
    fields = [KEY_GROUP, "key key", "window", "rows=count()[0]", "total=sum('value')[0]", "total=sum('value')[1]"]
    assert snapshot.tables["entries"].schema.names == fields
    assert snapshot.tables["entries"].schema.field(0).type == pa.int32()
    assert sorted(zip(*snapshot.tables["entries"].to_pydict().values(), strict=True)) == [
        (group, 1, 0, 2, 2, 0),
        (group, 1, 3, 1, 1, 0),
    ]


@pytest.mark.parametrize("make", [of_window, partial(of_window, 40, 10)], ids=["window", "panes"])
def test_closed_windows_are_not_in_a_snapshot(make: Callable[[], Operator]) -> None:
    operator = make()
    operator.process(small(1, 11, 51))
    operator.process_watermark(50)
    snapshot = operator.snapshot()
    assert snapshot is not None
    assert snapshot.tables["entries"].column("window").to_pylist() == [5]


STRINGS = SMALL.set(0, pa.field("key", pa.string()))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (of_running, "the operator is a windowed aggregation there and a running aggregation here"),
        (partial(of_window, schema=STRINGS), "column 'key key' is int64 there and string here"),
        (partial(of_window, specs=COUNT[:1]), "column \"total=sum('value')[0]\" is int64 there and missing here"),
        (partial(of_window, specs=(*COUNT, ("x", hg.last("value")))), "column \"x=last('value')[0]\" is missing there"),
    ],
)  # fmt: skip
def test_state_of_another_operator_is_refused(make: Callable[[], Operator], what: str) -> None:
    operator = of_window()
    operator.process(small(1))
    snapshot = operator.snapshot()
    assert snapshot is not None
    with pytest.raises(hg.CheckpointError) as caught:
        make().restore([snapshot])
    assert what in caught.value.message
    assert "Change the operator back, or start without the checkpoint" in caught.value.message


@pytest.mark.parametrize(
    ("bounds", "what"),
    [
        ((20_000_000, 20_000_000), "had tumble(10 us), and has tumble(20 s) now: change it back, or start without"),
        ((7_200_000_000, 90_000), "had tumble(10 us), and has hop(2 h, every=90 ms) now"),
    ],
)
def test_state_of_other_windows_is_refused(bounds: tuple[int, int], what: str) -> None:
    snapshot = of_window().snapshot()
    assert snapshot is not None
    with pytest.raises(hg.CheckpointError) as caught:
        of_window(*bounds).restore([snapshot])
    assert what in caught.value.message


def test_state_of_sessions_with_another_gap_is_refused() -> None:
    snapshot = of_sessions().snapshot()
    assert snapshot is not None
    with pytest.raises(hg.CheckpointError, match=r"had session\(10 us\), and has session\(20 s\) now: change it back"):
        of_sessions(20_000_000).restore([snapshot])
    with pytest.raises(hg.CheckpointError, match="is an aggregation of sessions there and a windowed aggregation here"):
        of_window().restore([snapshot])


@pytest.mark.parametrize(
    ("column", "time", "what"),
    [("first", 2, "a session ends before"), ("last", None, "has no times"), ("last", 2**63 - 1, "timestamp.*cannot")],
)
def test_sessions_that_cannot_be_are_refused(column: str, time: int | None, what: str) -> None:
    operator = of_sessions()
    operator.process(small(1))
    snapshot = operator.snapshot()
    assert snapshot is not None
    entries = snapshot.tables["entries"]
    changed = entries.set_column(entries.column_names.index(column), column, pa.array([time], pa.int64()))
    with pytest.raises(ValueError, match=what):
        of_sessions().restore([Snapshot({"entries": changed}, snapshot.values)])


def test_the_number_of_key_groups_cannot_change() -> None:
    other = RunningAggregate(("key",), COUNT, input_schema=SMALL)
    attach(other)
    other.open(OperatorContext("job", "operator", 0, 1, 2 * GROUPS))
    snapshot = of_running().snapshot()
    assert snapshot is not None
    with pytest.raises(hg.CheckpointError, match=f"max_parallelism is {GROUPS} there and {2 * GROUPS} here"):
        other.restore([snapshot])


def test_windows_need_the_state_of_every_old_subtask() -> None:
    old = Side(
        lambda: WindowAggregate(
            ("key",), time_column="t", time_offset=0, windows=Windows(10, 10), aggregates=COUNT, input_schema=SMALL
        ),
        2,
    )
    for snapshots in (old.snapshots()[:1], old.snapshots() * 2):
        with pytest.raises(hg.CheckpointError, match="does not have the state of each former subtask exactly once"):
            of_window().restore(snapshots)


def test_shards_are_merged_when_the_watermark_has_passed_all() -> None:
    def make() -> WindowAggregate:
        return WindowAggregate(
            ("key",), time_column="t", time_offset=0, windows=Windows(10, 10), aggregates=COUNT, input_schema=SMALL
        )

    keys = pa.array(range(100))
    old, new = Side(make, 2), Side(make, 1)
    old.process(pa.record_batch([keys, pa.array([15] * 100, pa.timestamp("us")), keys], schema=SMALL), 1)
    old.watermarks([20, 12])
    fired = sum(old.rows.values())
    assert 0 < fired < 100
    new.restore(old.snapshots())
    [operator] = new.operators
    assert len(operator.snapshot().values["progress"]) == 2
    late = pa.record_batch([keys, pa.array([16] * 100, pa.timestamp("us")), keys], schema=SMALL)
    new.process(late, 1)
    assert new.late == fired, "late where the window had fired, in time where it had not"
    new.watermarks([15])
    again = Side(make, 3)
    again.restore(new.snapshots())  # apart still
    new.watermarks([20])
    again.watermarks([20] * 3)
    assert again.rows == new.rows
    assert sorted(new.rows.values()) == [1] * (100 - fired)
    assert operator.snapshot().values["progress"] == [[0, GROUPS, 20, 1]]
    new.process(late, 1)
    assert new.late == fired + 100


def test_a_closed_window_stays_closed_if_more_lateness_is_allowed() -> None:
    def make(lateness: int) -> Operator:
        return opened(
            WindowAggregate(
                ("key",),
                time_column="t",
                time_offset=0,
                windows=Windows(10, 10),
                aggregates=COUNT,
                input_schema=SMALL,
                allowed_lateness=lateness,
            )
        )

    operator = make(0)
    operator.process(small(5))
    operator.process_watermark(10)
    snapshot, later = operator.snapshot(), make(100)
    assert snapshot is not None
    later.restore([snapshot])
    later.process(small(6))
    later.process_watermark(11)
    later.process(small(7))
    assert later.late_rows == 2


def test_final_rows_are_not_emitted_again_after_a_restore() -> None:
    operator = opened(RunningAggregate(("key",), COUNT, input_schema=SMALL, final=True))
    operator.process(small(1, 2))
    operator.process_watermark(MAX_TIME)
    operator.end_input()
    snapshot = operator.snapshot()
    assert snapshot is not None
    again = RunningAggregate(("key",), COUNT, input_schema=SMALL, final=True)
    kept = attach(again)
    again.open(OperatorContext("job", "operator", 0, 1, GROUPS))
    again.restore([snapshot])
    again.end_input()
    assert kept.rows == []


@pytest.mark.parametrize("make", [of_window, of_running], ids=["window", "running"])
def test_a_subtask_that_had_ended_needs_no_tables(make: Callable[[], Operator]) -> None:
    ended = make()
    ended.process(small(1))
    ended.process_watermark(MAX_TIME)
    ended.end_input()
    snapshot, operator = ended.snapshot(), make()
    assert snapshot is not None
    operator.restore([Snapshot(values=snapshot.values)])
    kept = attach(operator)
    operator.process_watermark(MAX_TIME)
    operator.end_input()
    assert kept.rows == []


PRICES = pa.schema([("key", pa.int64()), ("t", pa.timestamp("us")), ("price", pa.decimal128(20, 2))])
OF_PRICES: Specs = (("latest", hg.max("t")), ("total", hg.sum("price")), ("average", hg.mean("price")),
                    ("rows", hg.count()))  # fmt: skip


def prices(*rows: tuple[int, int, str | None]) -> pa.RecordBatch:
    """Return a batch of rows, each given as (key, time, price)."""
    keys, times, found = zip(*rows, strict=True)
    decimals = [None if price is None else Decimal(price) for price in found]
    return pa.RecordBatch.from_pydict({"key": keys, "t": times, "price": decimals}, schema=PRICES)


def with_floats(snapshot: Snapshot, sums: Sequence[float | None]) -> Snapshot:
    """Return the snapshot as an earlier version wrote it, with `sums` of decimals as float64."""
    [(name, table)] = snapshot.tables.items()
    for spec, counts in (("total=sum('price')", 0), ("average=mean('price')", 1)):
        own = [column for column in table.column_names if column.startswith(spec)]
        if not own:
            continue
        at = table.column_names.index(own[0])
        kept = [pa.array(sums, pa.float64()), *table.select(own).columns[len(own) - counts :]]
        table = table.drop_columns(own)
        for number, column in enumerate(kept):
            table = table.add_column(at + number, f"{spec}[{number}]", column)
    return decode(encode({"node": Snapshot({name: table}, snapshot.values)}))["node"]


@pytest.mark.parametrize(
    "make",
    [
        partial(of_window, schema=PRICES, specs=OF_PRICES),
        partial(of_window, 20, 10, schema=PRICES, specs=OF_PRICES),
        partial(of_window, 40, 10, schema=PRICES, specs=OF_PRICES),
        partial(of_running, schema=PRICES, specs=OF_PRICES),
    ],
    ids=["tumble", "hop", "panes", "running"],
)
def test_float_sums_of_decimals_become_exact(make: Callable[[], Operator]) -> None:
    """Restored state of an earlier version behaves like the rounded sums, also for slots without a value."""
    rows = [(1, 41, "0.10"), (1, 42, "0.20"), (2, 43, None), (3, 44, "-0.05"), (4, 45, "12345678901234567.25")]
    more = prices((1, 46, "0.01"), (2, 47, "-7.00"), (5, 48, "2.50"), (4, 49, None))
    floats = {1: 0.1 + 0.2, 2: None, 3: -0.05, 4: 12345678901234568.0}
    old, exact, migrated = make(), make(), make()
    old.process(prices(*rows))
    exact.process(prices(*rows[:4], (4, 45, "12345678901234568.00")))
    snapshot = old.snapshot()
    assert snapshot is not None
    [table] = snapshot.tables.values()
    kept = with_floats(snapshot, [floats[key] for key in table.column(1).to_pylist()])
    migrated.restore([kept])
    found = []
    for operator in (exact, migrated):
        rows_out = attach(operator)
        operator.process(more)
        operator.process_watermark(MAX_TIME)
        operator.end_input()
        found.append(multiset(rows_out.rows))
    assert found[0] == found[1] != Counter()


TOO_LARGE = [("sum", 1.1e28), ("sum", -1e300), ("sum", NAN), ("mean", 1e38), ("mean", float("inf"))]


@pytest.mark.parametrize("make", [of_window, of_running], ids=["window", "running"])
@pytest.mark.parametrize(("kind", "total"), TOO_LARGE)
def test_a_float_sum_that_does_not_fit_is_an_error(make: Callable[..., Operator], kind: str, total: float) -> None:
    operator = of_one_price(make, kind)
    with pytest.raises(CheckpointError) as raised:
        operator.restore([with_floats(operator.snapshot() or Snapshot(), [total])])
    assert raised.value.message == (
        f"an earlier version stored the sum of column 'price' as a float64. It is {total!r} here, which does not fit "
        "into decimal128(30, 2); start without this checkpoint"
    )


@pytest.mark.parametrize(("total", "mean"), [(1e30, None), (-0.125, "-0.130000"), (0.125, "0.130000")])
def test_a_float_sum_is_rounded_half_up(total: float, mean: str | None) -> None:
    """The sum of a mean may be larger than the sum of a result. The mean itself must fit its type."""
    operator = of_one_price(of_running, "mean")
    kept = with_floats(operator.snapshot() or Snapshot(), [total])
    migrated = of_running(schema=PRICES, specs=OF_PRICES[2:3])
    rows = attach(migrated)
    migrated.restore([kept])
    if mean is None:
        with pytest.raises(DataError, match=r"mean\('price'\) is 10000000000000000198846248.* does not fit"):
            migrated.process(prices((1, 42, None)))
        return
    migrated.process(prices((1, 42, None)))
    assert [row[1] for row in rows.rows] == [Decimal(mean)]


def of_one_price(make: Callable[..., Operator], kind: str) -> Operator:
    operator = make(schema=PRICES, specs=OF_PRICES[1:2] if kind == "sum" else OF_PRICES[2:3])
    operator.process(prices((1, 41, "0.10")))
    return operator


@pytest.mark.parametrize("make", [hg.min, hg.max, hg.first, hg.last, hg.collect_list, hg.count_distinct])
def test_only_sums_and_means_of_floats_become_decimals(make: Callable[[str], Aggregate]) -> None:
    floats = PRICES.set(2, pa.field("price", pa.float64()))
    operator = of_running(schema=floats, specs=(("found", make("price")),))
    operator.process(pa.RecordBatch.from_pydict({"key": [1], "t": [41], "price": [0.25]}, schema=floats))
    with pytest.raises(CheckpointError, match=r"found=.*price.* is .*double.* there and .*decimal128\(20, 2\).* here"):
        of_running(schema=PRICES, specs=(("found", make("price")),)).restore([operator.snapshot() or Snapshot()])
