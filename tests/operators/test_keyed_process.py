"""`KeyedProcessFunction`: the operator agrees with a model of plain dicts for each key, with restores in between.

For each key, both must emit the same rows in the same order, at any parallelism before and after a restore.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.operators.keyed.expiry import Expiry
from headgate.operators.keyed.keyed_process import KeyedProcess
from headgate.operators.keyed.timers import TimerQueue
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext
from headgate.state.snapshot import Snapshot, decode, encode
from tests.examples import examples
from tests.operators.window_rig import GROUPS, Kept, Side, attach

#: Time to live, microseconds.
TTL = 50
IN = pa.schema([("key", pa.string()), ("do", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us"))])
OUT = pa.schema([("key", pa.string()), ("said", pa.string())])
ASIDE = pa.schema([("key", pa.string()), ("n", pa.int64())])
DEEDS = ("update", "clear", "add", "put", "remove", "empty", "timer", "no timer", "clock", "no clock", "look", "aside")


class Everything(hg.KeyedProcessFunction):
    """A function that does what each row says, and emits what it sees."""

    value = hg.ValueState(pa.int64())
    brief = hg.ValueState(pa.string(), ttl="50 us")
    elements = hg.ListState(pa.list_(pa.int64()), ttl="50 us")
    lasting = hg.ListState(pa.timestamp("us", "UTC"))
    entries = hg.MapState(pa.string(), pa.int64(), ttl="50 us")
    kept = hg.MapState(pa.int64(), pa.struct([("n", pa.int64())]))

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Any:
        for row, time in zip(batch.to_pylist(), ctx.timestamps.tolist(), strict=True):
            yield from self.do(row, time, ctx)

    def do(self, row: dict[str, Any], time: int, ctx: hg.ProcessContext) -> Any:
        n = row["n"]
        match row["do"]:
            case "update":
                self.value.update(n)
                self.brief.update(f"{n}")
            case "clear":
                self.value.clear()
                self.brief.update(None)
            case "add":
                self.elements.add([n, n])
                self.lasting.add_all([datetime.fromtimestamp(n, UTC)])
            case "put":
                self.entries.put(f"{n}", n)
                self.kept.put_all({n: {"n": n}})
            case "remove":
                self.entries.remove(f"{n}")
                self.kept.remove(n)
            case "empty":
                self.elements.clear() if n % 2 else self.elements.update([[n]])
                self.entries.clear()
            case "timer":
                ctx.register_event_time_timer(time + n)
            case "no timer":
                ctx.delete_event_time_timer(time + n)
            case "clock":
                ctx.register_processing_time_timer(ctx.processing_time + n)
            case "no clock":
                ctx.delete_processing_time_timer(ctx.processing_time + n)
            case "look":
                yield self.report(ctx)
            case "aside":
                yield hg.SideOutput("aside", {"key": ctx.key[0], "n": n})

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        if time % 5 == 0 and time < 10_000:
            ctx.register_event_time_timer(time + 3)
        return [self.report(ctx, f"{ctx.time_domain} {time} ")]

    def report(self, ctx: hg.ProcessContext, what: str = "") -> dict[str, Any]:
        values = self.value.value(), self.brief.value("none"), self.elements.get(), len(self.lasting.get())
        maps = sorted(self.entries.items()), sorted(self.entries.keys()), self.entries.get("3"), self.kept.get(3)
        more = self.kept.is_empty(), self.entries.contains("5"), sorted(each["n"] for each in self.kept.values())
        return {"key": ctx.key[0], "said": f"{what}{values} {maps} {more} {ctx.watermark}"}


class ByRow(Everything):
    """The same function, called row by row."""

    process = hg.KeyedProcessFunction.process

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        return list(self.do(row, ctx.timestamp, ctx))


class Model:
    """The state of one key in plain dicts: each value with the time at which it was written."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.value: int | None = None
        self.brief: tuple[str, int] | None = None
        self.elements: list[tuple[list[int], int]] = []
        self.lasting = 0
        self.entries: dict[str, tuple[int, int]] = {}
        self.kept: dict[int, int] = {}
        self.timers: set[int] = set()
        self.clocks: set[int] = set()
        self.said: list[str] = []
        self.aside: list[int] = []

    def do(self, deed: str, n: int, time: int, now: int, watermark: int) -> None:
        match deed:
            case "update":
                self.value, self.brief = n, (f"{n}", now)
            case "clear":
                self.value = self.brief = None
            case "add":
                self.elements.append(([n, n], now))
                self.lasting += 1
            case "put":
                self.entries[f"{n}"] = (n, now)
                self.kept[n] = n
            case "remove":
                self.entries.pop(f"{n}", None)
                self.kept.pop(n, None)
            case "empty":
                self.elements = [] if n % 2 else [([n], now)]
                self.entries = {}
            case "timer":
                self.timers.add(time + n)
            case "no timer":
                self.timers.discard(time + n)
            case "clock":
                self.clocks.add(now + n)
            case "no clock":
                self.clocks.discard(now + n)
            case "look":
                self.look(now, watermark)
            case "aside":
                self.aside.append(n)

    def look(self, now: int, watermark: int, what: str = "") -> None:
        brief = self.brief[0] if self.brief is not None and self.brief[1] + TTL > now else "none"
        elements = [element for element, written in self.elements if written + TTL > now]
        entries = {key: n for key, (n, written) in self.entries.items() if written + TTL > now}
        values = self.value, brief, elements, self.lasting
        maps = sorted(entries.items()), sorted(entries), entries.get("3"), {"n": 3} if 3 in self.kept else None
        more = not self.kept, "5" in entries, sorted(self.kept.values())
        self.said.append(f"{what}{values} {maps} {more} {watermark}")

    def watermark(self, watermark: int, now: int) -> None:
        while self.timers and min(self.timers) <= watermark:
            time = min(self.timers)
            self.timers.discard(time)
            if time % 5 == 0 and time < 10_000:
                self.timers.add(time + 3)
            self.look(now, watermark, f"event {time} ")

    def clock(self, now: int, watermark: int) -> None:
        while self.clocks and min(self.clocks) <= now:
            time = min(self.clocks)
            self.clocks.discard(time)
            if time % 5 == 0 and time < 10_000:
                self.timers.add(time + 3)
            self.look(now, watermark, f"processing {time} ")


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> float:
        return (self.now + 0.5) / 1e6


Make = Callable[[Callable[[], float]], KeyedProcess]


def make(clock: Callable[[], float], function: hg.KeyedProcessFunction | None = None) -> KeyedProcess:
    return KeyedProcess(
        function or Everything(),
        ("key",),
        input_schema=IN,
        schema=OUT,
        sides={"aside": ASIDE},
        time_column="t",
        time_offset=0,
        clock=clock,
    )


def random_rows(chance: random.Random, around: int, keys: int) -> list[tuple[Any, ...]]:
    names = [None, *(f"key {n}" for n in range(keys))]
    return [
        (chance.choice(names), chance.choice(DEEDS), chance.randint(0, 20), around + chance.randint(-20, 20))
        for _ in range(chance.randint(1, 60))
    ]


def as_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), IN, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=IN)


class Comparison:
    """A run that goes on with several parallelisms, against the model."""

    def __init__(self, made: Make, seed: int, keys: int) -> None:
        self._made = made
        self._chance, self._clock = random.Random(seed), Clock()
        self._keys = keys
        self._models: dict[str | None, Model] = {}
        self._side: Side | None = None
        self._sides: list[Kept] = []
        self._said: dict[Any, list[str]] = defaultdict(list)
        self._aside: dict[Any, list[int]] = defaultdict(list)
        self._around, self._watermark = 0, MIN_TIME

    def go_on(self, parallelism: int, most_steps: int) -> None:
        before, self._side = self._side, Side(lambda: self._made(self._clock), parallelism)
        self._sides = [Kept() for _ in self._side.operators]
        for operator, other in zip(self._side.operators, self._sides, strict=True):
            operator.sides = {"aside": other}
        if before is not None:
            self._clock.now += self._chance.choice([0, 0, 30])
            self._side.restore(before.snapshots())
        for _ in range(self._chance.randint(1, most_steps)):
            self._step(self._side)
        self._gather(self._side)
        for kept in (*self._side.kept, *self._sides):
            kept.events.clear()

    def _step(self, side: Side) -> None:
        match self._chance.choice(["rows", "rows", "watermark", "clock", "time passes"]):
            case "rows":
                self._process(side)
            case "watermark":
                self._around += self._chance.randint(0, 20)
                self._watermark = max(self._watermark, self._around - self._chance.randint(0, 20))
                side.watermarks([self._watermark] * len(side.operators))
                for model in self._models.values():
                    model.watermark(self._watermark, self._clock.now)
            case "clock":
                self._clock.now += self._chance.randint(0, 30)
                for operator in side.operators:
                    operator.on_processing_time()
                for model in self._models.values():
                    model.clock(self._clock.now, self._watermark)
            case "time passes":
                self._clock.now += self._chance.randint(0, 30)

    def _process(self, side: Side) -> None:
        rows = random_rows(self._chance, self._around, self._keys)
        side.process(as_batch(rows), 1)
        for key, deed, n, time in rows:
            self._models.setdefault(key, Model(key)).do(deed, n, time, self._clock.now, self._watermark)

    def _gather(self, side: Side) -> None:
        for kept, other in zip(side.kept, self._sides, strict=True):
            for key, text in kept.rows:
                self._said[key].append(text)
            for key, n in other.rows:
                self._aside[key].append(n)

    def end(self) -> None:
        assert self._side is not None
        self._side.watermarks([MAX_TIME] * len(self._side.operators))
        for operator in self._side.operators:
            operator.end_input()
            assert operator.next_time() is None or not len(operator._processing_timers)  # type: ignore[attr-defined]
        for model in self._models.values():
            model.watermark(MAX_TIME, self._clock.now)
        self._gather(self._side)
        assert self._said == {key: model.said for key, model in self._models.items() if model.said}
        assert self._aside == {key: model.aside for key, model in self._models.items() if model.aside}


def compare(made: Make, parallelisms: Sequence[int], seed: int, steps: int = 8, keys: int = 5) -> None:
    comparison = Comparison(made, seed, keys)
    for parallelism in parallelisms:
        comparison.go_on(parallelism, steps)
    comparison.end()


PARALLELISMS = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@pytest.mark.parametrize("function", [Everything, ByRow])
@settings(max_examples=examples(12), deadline=None)
@given(PARALLELISMS, st.integers(0, 1 << 32))
def test_the_operator_agrees_with_a_model_of_plain_dicts(
    function: type[Everything], parallelisms: list[int], seed: int
) -> None:
    compare(lambda clock: make(clock, function()), parallelisms, seed)


class Clumsy(TimerQueue):
    """The planted bug "the operator calls deleted timers"."""

    def remove(self, timer: tuple[int, int]) -> None: ...


class Unordered(TimerQueue):
    """The planted bug "the operator does not call timers in the order of their times"."""

    def pop(self, until: int) -> tuple[int, int] | None:
        due = [timer for timer in self._heap if timer[0] <= until and timer in self._timers]
        if due:
            self._timers.discard(due[-1])
        return due[-1] if due else None


def with_timers(kind: type[TimerQueue]) -> Make:
    def made(clock: Callable[[], float]) -> KeyedProcess:
        class Bad(KeyedProcess):
            def open(self, context: OperatorContext) -> None:
                self._event_timers = kind()
                super().open(context)

        return Bad(
            Everything(),
            ("key",),
            input_schema=IN,
            schema=OUT,
            sides={"aside": ASIDE},
            time_column="t",
            time_offset=0,
            clock=clock,
        )

    return made


def with_states(spoil: Callable[[KeyedProcess], None]) -> Make:
    def made(clock: Callable[[], float]) -> KeyedProcess:
        operator = make(clock)
        spoil(operator)
        return operator

    return made


class NoClocks(KeyedProcess):
    """The planted bug "a snapshot lacks the processing-time timers"."""

    def snapshot(self) -> Snapshot:
        snapshot = super().snapshot()
        tables = {**snapshot.tables, "processing timers": snapshot.tables["processing timers"].slice(0, 0)}
        return Snapshot(tables, snapshot.values)


class Young(KeyedProcess):
    """The planted bug "a restore starts the `ttl` of all values again"."""

    def _load_table(self, name: str, table: pa.Table) -> None:
        place = table.schema.get_field_index("written")
        if place >= 0 and table.schema.field(place).type == pa.int64():
            table = table.set_column(place, "written", pa.nulls(len(table), pa.int64()))
        super()._load_table(name, table)


class NoWatermark(KeyedProcess):
    """The planted bug "the watermark is not restored"."""

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        super().restore(snapshots)
        self._user.watermark = MIN_TIME


class TwiceAtOnce(KeyedProcess):
    """The planted bug "the operator processes the rows of a batch in reverse order"."""

    def _process_keys(self, batch: pa.RecordBatch, slots: Any) -> None:
        super()._process_keys(batch.take(pa.array(np.arange(len(slots))[::-1])), slots[::-1])


def bad(kind: type[KeyedProcess]) -> Make:
    return lambda clock: kind(
        Everything(),
        ("key",),
        input_schema=IN,
        schema=OUT,
        sides={"aside": ASIDE},
        time_column="t",
        time_offset=0,
        clock=clock,
    )


def forgets_ttl(operator: KeyedProcess) -> None:
    for state in operator._states:
        if state._ttl is not None:
            state._ttl += 10


def sweeps_all(operator: KeyedProcess) -> None:
    for state in operator._states:
        state.expire = lambda now, state=state: state._cells.clear() or state._times.clear()  # type: ignore[method-assign, misc]


def compare_seeds(made: Make, count: int) -> None:
    for seed in range(count):
        compare(made, [2, 1, 3], seed)


@pytest.mark.parametrize(
    "made",
    [with_timers(Clumsy), with_timers(Unordered), bad(NoClocks), bad(Young), bad(NoWatermark), bad(TwiceAtOnce),
     with_states(forgets_ttl), with_states(sweeps_all)],
    ids=[
        "the operator calls deleted timers",
        "the operator does not call timers in the order of their times",
        "a snapshot lacks the processing-time timers",
        "a restore starts the ttl of all values again",
        "the watermark is not restored",
        "the operator processes the rows of a batch in reverse order",
        "values are kept longer than their ttl",
        "a sweep removes values that have not expired",
    ],
)  # fmt: skip
def test_planted_bugs_are_found(made: Make) -> None:
    with pytest.raises((AssertionError, KeyError)):
        compare_seeds(made, 200)


class Keeps(hg.KeyedProcessFunction):
    """A function that calls the given function with itself."""

    value = hg.ValueState(pa.int64(), ttl="1 h")
    elements = hg.ListState(pa.string())
    entries = hg.MapState(pa.int32(), pa.list_(pa.int64()))

    def __init__(self, does: Callable[[Keeps, Any, hg.ProcessContext], Any]) -> None:
        self.does = does

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Any:
        return self.does(self, batch, ctx)


class Rings(Keeps):
    """The same, with timers."""

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> None: ...


def opened(function: hg.KeyedProcessFunction, time_column: str | None = "t", clock: Any = lambda: 0.0) -> KeyedProcess:
    operator = KeyedProcess(
        function,
        ("key",),
        input_schema=IN,
        schema=OUT,
        sides={"aside": ASIDE},
        time_column=time_column,
        time_offset=0,
        clock=clock,
    )
    attach(operator)
    operator.open(OperatorContext("job", "operator", 0, 1, GROUPS))
    return operator


def one(key: str = "a", time: int = 0) -> pa.RecordBatch:
    return as_batch([(key, "", 0, time)])


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda f, b, ctx: f.value.update("7"), "value state 'value': '7' (str) does not fit int64"),
        (lambda f, b, ctx: f.value.update(1.5), "value state 'value': 1.5 (float) does not fit int64"),
        (lambda f, b, ctx: f.value.update(1 << 63), "state 'value': 9223372036854775808 (int) does not fit int64"),
        (lambda f, b, ctx: f.elements.add(None), "list state 'elements': None cannot be stored"),
        (lambda f, b, ctx: f.elements.add_all(["a", 3]), "list state 'elements': 3 (int) does not fit string"),
        (lambda f, b, ctx: f.elements.add("\ud800"), "does not fit string"),
        (lambda f, b, ctx: f.entries.put(1 << 31, [1]), "state 'entries', key: 2147483648 (int) does not fit int32"),
        (lambda f, b, ctx: f.entries.put(1, ["x"]), "map state 'entries': ['x'] (list) does not fit list<"),
        (lambda f, b, ctx: ctx.register_event_time_timer(1.5), "a timer's time is microseconds since the epoch"),
        (lambda f, b, ctx: ctx.register_processing_time_timer(1 << 63), "in 64 bits, and 9223372036854775808"),
        (lambda f, b, ctx: 7, "Keeps.process must give rows as dicts or RecordBatches"),
        (lambda f, b, ctx: "text", "and gave 'text' (str)"),
        (lambda f, b, ctx: pa.table(OUT.empty_table()), "use table.to_batches()"),
        (lambda f, b, ctx: hg.SideOutput("aside", [{"key": "a"}]),
         "must give one row as a dict, or a RecordBatch, in each SideOutput('aside', ...), and gave [{'key': 'a'}]"),
        (lambda f, b, ctx: [{"key": "a"}], "column said is missing"),
        (lambda f, b, ctx: b, "Keeps.process returned other columns than schema= declares"),
        (lambda f, b, ctx: hg.SideOutput("other", b), "SideOutput('other', ...), which side_outputs={tag: schema}"),
        (lambda f, b, ctx: hg.SideOutput("aside", {"key": "a", "n": "x"}), "column n, which schema= declares int64"),
    ],
)  # fmt: skip
def test_an_error_names_what_the_function_did_wrong(does: Any, says: str) -> None:
    with pytest.raises(hg.UserFunctionError) as caught:
        opened(Keeps(does)).process(one())
    assert says in caught.value.message


def test_event_timers_need_event_time() -> None:
    operator = opened(Keeps(lambda f, b, ctx: ctx.register_event_time_timer(1)), None)
    with pytest.raises(hg.UserFunctionError, match="needs event time, which this stream does not have"):
        operator.process(one())


def test_a_timer_without_on_timer_is_an_error() -> None:
    for register in ("register_event_time_timer", "register_processing_time_timer"):
        operator = opened(Keeps(lambda f, b, ctx, register=register: getattr(ctx, register)(1)))  # type: ignore[misc]
        with pytest.raises(hg.UserFunctionError, match="a timer calls on_timer, which this function lacks"):
            operator.process(one())


def test_state_without_a_current_key_is_an_error() -> None:
    class Early(Keeps):
        def open(self, ctx: hg.ProcessContext) -> None:
            self.does(self, None, ctx)

    for does, says in (
        (lambda f, b, ctx: f.value.update(1), "value state 'value' needs a current key, and there is none"),
        (lambda f, b, ctx: ctx.key, "ctx.key: there is no current key"),
        (lambda f, b, ctx: ctx.register_event_time_timer(1), "a timer needs a current key, and there is none"),
    ):
        with pytest.raises(hg.UserFunctionError, match=says):
            opened(Early(does))


def test_a_value_that_is_read_is_a_copy() -> None:
    seen = []

    def does(f: Keeps, _batch: pa.RecordBatch, _ctx: hg.ProcessContext) -> None:
        if f.entries.is_empty():
            f.entries.put(1, [1])
            f.elements.add("a")
        f.entries.get(1).append(2)
        f.elements.get().append("b")
        seen.append((f.entries.get(1), f.elements.get()))

    operator = opened(Keeps(does))
    operator.process(one())
    operator.process(one())
    assert seen == [([1], ["a"])] * 2


def test_numbers_of_numpy_and_times_with_zones_are_taken() -> None:
    def does(f: Keeps, _batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Any:
        f.value.update(np.int64(5))
        zone = datetime(1970, 1, 1, 1, tzinfo=UTC) - timedelta(hours=1) + timedelta(microseconds=7)
        ctx.register_event_time_timer(zone)
        ctx.delete_event_time_timer(datetime(1970, 1, 1, 0, 0, 0, 7))
        ctx.register_event_time_timer(np.int64(9))  # type: ignore[arg-type]
        return {"key": "a", "said": repr(f.value.value())}

    operator = opened(Rings(does))
    operator.process(one())
    assert operator.output.rows == [("a", "5")]  # type: ignore[attr-defined]
    assert operator._event_timers.first == 9


def test_rows_and_batches_keep_their_order() -> None:
    def does(_f: Keeps, _batch: pa.RecordBatch, _ctx: hg.ProcessContext) -> Any:
        yield {"key": "a", "said": "1"}
        yield pa.RecordBatch.from_pylist([{"key": "a", "said": "2"}, {"key": "a", "said": "3"}], schema=OUT)
        yield {"key": "a", "said": "4"}

    operator = opened(Keeps(does))
    operator.process(one())
    [batch] = operator.output.batches  # type: ignore[attr-defined]
    assert batch.column("said").to_pylist() == ["1", "2", "3", "4"]


def test_each_subtask_has_a_copy_of_the_function() -> None:
    function = Keeps(lambda f, b, ctx: f.value.update(1))
    first, second = opened(function), opened(function)
    first.process(one())
    assert [len(operator._states[0].slots) for operator in (first, second)] == [1, 0]
    assert "value" not in vars(function)


def test_keys_without_state_and_timers_are_removed() -> None:
    def does(f: Keeps, _batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Any:
        if ctx.key[0].endswith("000"):
            f.elements.add(ctx.key[0])
            ctx.register_event_time_timer(7)

    operator = opened(Rings(does))
    for begin in range(0, 40_000, 1000):
        operator.process(as_batch([(f"key {n}", "", 0, 0) for n in range(begin, begin + 1000)]))
        assert operator.state_keys() < 17_000
    before = operator.snapshot()
    assert sorted(before.tables["list state 'elements'"]["key key"].to_pylist()) == sorted(
        f"key {n}" for n in range(1000, 40_000, 1000)
    )
    assert len(before.tables["event timers"]) == 39
    held = operator.state_bytes()
    operator.process(one("000"))
    assert operator.state_bytes() > held


def test_expired_values_take_no_memory() -> None:
    clock = Clock()

    class Brief(hg.KeyedProcessFunction):
        value = hg.ValueState(pa.int64(), ttl="1 s")
        elements = hg.ListState(pa.int64(), ttl="1 s")
        entries = hg.MapState(pa.int64(), pa.int64(), ttl="1 s")

        def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> None:
            self.value.update(1)
            self.elements.add(1)
            self.entries.put(ctx.processing_time, 1)

    operator = opened(Brief(), clock=clock)
    most = 0
    for step in range(100):
        operator.process(as_batch([(f"key {step * 10 + n}", "", 0, 0) for n in range(10)]))
        clock.now += 100_000
        at = operator.next_time()
        if at is not None and at <= clock.now:
            operator.on_processing_time()
        most = max(most, *(len(state.slots) for state in operator._states))
    assert most <= 10 * (10 + 3)
    clock.now += 2_000_000
    operator.on_processing_time()
    assert [state.nbytes for state in operator._states] == [0, 0, 0]
    assert operator.next_time() is None


def test_the_error_names_a_state_that_is_no_longer_declared() -> None:
    class Renamed(hg.KeyedProcessFunction):
        other = hg.ValueState(pa.int64(), name="value")
        elements = hg.ListState(pa.int64())

        def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> None: ...

    snapshot = opened(Keeps(lambda f, b, ctx: None)).snapshot()
    with pytest.raises(hg.CheckpointError, match=r"column 'values' is large_list<item: string> there and large_list"):
        opened(Renamed()).restore([snapshot])
    Renamed.elements = hg.ListState(pa.string(), name="elements")
    with pytest.raises(hg.CheckpointError, match=r"has a map state 'entries', which this function does not declare"):
        opened(Renamed()).restore([snapshot])


def test_a_removal_of_many_expired_values_takes_several_calls() -> None:
    expiry = Expiry(1_000_000)
    for slot in range(25_000):
        expiry.watch(slot, 0)
    found = []
    while expiry.next is not None:
        found += list(expiry.take_due(2_000_000))
    assert sorted(found) == list(range(25_000))


def test_setting_a_timer_repeatedly_takes_no_more_memory() -> None:
    timers = TimerQueue()
    for time in range(10_000):
        timers.add((time + 100, 1))
        timers.remove((time + 99, 1))
    assert len(timers) == 1
    assert timers.nbytes < 1_000_000
    timers.add((10_098, 1))
    assert [timers.pop(MAX_TIME) for _ in range(3)] == [(10_098, 1), (10_099, 1), None]


def test_snapshots_are_copies() -> None:
    clock = Clock()
    operator = make(clock)
    attach(operator)
    operator.open(OperatorContext("job", "operator", 0, 1, GROUPS))
    chance = random.Random(1)
    operator.process(as_batch(random_rows(chance, 0, 5)))
    snapshot, same = operator.snapshot(), operator.snapshot()
    before = decode(encode({"node": snapshot}))
    for _ in range(20):
        operator.process(as_batch(random_rows(chance, 0, 5)))
        clock.now += 20
        operator.on_processing_time()
    assert decode(encode({"node": same})) == before
