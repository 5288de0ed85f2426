"""Aggregates that users write agree with the built-in ones, in windows, sessions and through restores, and their
mistakes have clear errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.operators.aggregates import user_aggregate
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.operator import Operator
from tests.operators.test_restore import OPERATORS, compare
from tests.pipelines.pipeline_rig import assert_same, expected, stream_of


class Mean(hg.AggregateFunction):
    """The mean of a column, weighted by another."""

    state = pa.schema({"total": pa.float64(), "weight": pa.int64()})
    type = pa.float64()

    def create(self, count: int) -> Any:
        return {"total": np.zeros(count), "weight": np.zeros(count, np.int64)}

    def accumulate(self, values: pa.RecordBatch, groups: Any, count: int) -> Any:
        value, weight = (pc.fill_null(column.cast(pa.float64()), 0).to_numpy() for column in values.columns)
        return {
            "total": np.bincount(groups, value * weight, count),
            "weight": np.bincount(groups, weight, count).astype(np.int64),
        }

    def merge(self, states: pa.RecordBatch, others: pa.RecordBatch) -> Any:
        return {name: pc.add(states[name], others[name]) for name in self.state.names}

    def result(self, states: pa.RecordBatch) -> Any:
        weight = states["weight"].to_numpy()
        return np.divide(states["total"].to_numpy(), weight, out=np.zeros(len(weight)), where=weight != 0)


class Longest(hg.AggregateFunction):
    """The longest string: state without a fixed width, and null before the first row."""

    state = pa.schema({"text": pa.string()})
    type = pa.string()

    def create(self, count: int) -> Any:
        return {"text": pa.nulls(count, pa.string())}

    def accumulate(self, values: pa.RecordBatch, groups: Any, count: int) -> Any:
        texts: list[str | None] = [None] * count
        for group, text in zip(groups.tolist(), values.column(0).to_pylist(), strict=True):
            texts[group] = max((each for each in (texts[group], text) if each is not None), key=_size, default=None)
        return {"text": texts}

    def merge(self, states: pa.RecordBatch, others: pa.RecordBatch) -> Any:
        pairs = zip(states["text"].to_pylist(), others["text"].to_pylist(), strict=True)
        return {"text": [max((t for t in pair if t is not None), key=_size, default=None) for pair in pairs]}

    def result(self, states: pa.RecordBatch) -> Any:
        return states["text"]


def _size(text: str) -> tuple[int, str]:
    return len(text), text


OWN = (("mean", Mean()("f", "i")), ("longest", Longest()("s")), ("some", Longest()("s", where="i > 0")))


@pytest.mark.turns(2)
@pytest.mark.parametrize("operator", ["hop", "panes, late", "sessions, late", "running", "final"])
def test_restored_states_go_on(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = OPERATORS[operator]
    floats = {"f": (pa.float64(), [0.5, -0.25, 8.0, None]), "i": (pa.int64(), [1, 2, -3, None]),
              "s": (pa.string(), ["", "b", "ccc", None])}  # fmt: skip
    monkeypatch.setattr("tests.operators.test_restore.VALUES", floats)
    monkeypatch.setattr(random.Random, "sample", lambda self, specs, count: OWN)

    def own(schema: pa.Schema, keys: tuple[str, ...], specs: Any) -> Operator:
        assert specs == OWN
        return make(schema, keys, specs)

    for seed in range(4):
        compare(own, (pa.string(),), (2, 3, 1), 3, seed)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_whole_jobs_agree_with_duckdb(parallelism: int) -> None:
    env = hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(message_size=512))
    found = stream_of(env).key_by("name").window(hg.tumble("20 s")).aggregate(mean=Mean()("number", "number")).collect()
    wanted = expected("""
        select name, time_bucket(interval 20 seconds, ts, timestamp '1970-01-01') as window_start,
            window_start + interval 20 seconds as window_end, sum(number * number) / sum(number) as mean
        from events group by all
    """)
    assert_same(found, wanted)


def test_no_rows_give_the_result_of_an_empty_state() -> None:
    env = hg.StreamEnvironment()
    stream = env.from_source(hg.sources.iterable([], schema=pa.schema({"s": pa.string(), "n": pa.int64()})))
    assert stream.key_by().aggregate(final=True, mean=Mean()("n", "n"), text=Longest()("s")).collect().to_pylist() == [
        {"mean": 0.0, "text": None}
    ]


class Broken(Mean):
    def __init__(self, method: str, returned: Any) -> None:
        if isinstance(returned, Exception):

            def raising(*_: Any) -> Any:
                raise returned

            setattr(self, method, raising)
        else:
            setattr(self, method, lambda *_: returned)


@pytest.mark.parametrize(
    ("method", "returned", "error"),
    [
        ("accumulate", ValueError("no such value"), "raised ValueError: no such value"),
        ("merge", ZeroDivisionError("no merge"), "raised ZeroDivisionError: no merge"),
        ("result", ValueError("no result"), "raised ValueError: no result"),
        ("accumulate", 5, "returned int; return a dict of arrays, or a RecordBatch"),
        ("accumulate", {"total": [1.0]}, r"returned the columns \['total'\]; the state has \['total', 'weight'\]"),
        ("accumulate", {"total": [1.0, 2.0], "weight": [1, 2]}, "returned columns of 2, 2 rows; there are 1 groups"),
        ("merge", {"total": ["x"], "weight": [1]}, "returned list, which is no column of double"),
        ("result", [], "returned 0 results for 1 states; return one for each"),
        ("result", ["x"], "returned list, which is no column of double"),
    ],
)
def test_what_does_not_fit_is_the_function_s_error(method: str, returned: Any, error: str) -> None:
    rows = pa.record_batch({"n": [2]})
    held = AccumulatorSet((("x", Broken(method, returned)("n", "n")),), rows.schema)
    slots = np.zeros(1, np.int64)

    def use() -> None:
        for _ in range(2):
            held.update(1, slots, rows, None)
        held.results(slots)

    with pytest.raises(hg.UserFunctionError, match=error):
        use()


@pytest.mark.parametrize("method", ["create", "accumulate", "result"])
def test_a_method_that_raises_fails_the_job_and_is_named(method: str) -> None:
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    rows = [] if method == "create" else [pa.record_batch({"n": [2]})]  # an aggregate of no rows is `create`
    stream = env.from_source(hg.sources.iterable(rows, schema=pa.schema({"n": pa.int64()})))
    broken = Broken(method, ValueError("no such value"))("n", "n")
    with pytest.raises(hg.UserFunctionError, match="raised ValueError: no such value") as error:
        stream.key_by().aggregate(final=True, x=broken).name("means").collect()
    assert error.value.operator == "means"


def test_mistakes_are_found_at_the_call() -> None:
    class NoState(Mean):
        state: Any = None

    class Empty(Mean):
        state = pa.schema([])

    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: Mean()(), "Mean: call it with the names of its columns"),
        (lambda: Mean()(5), "Mean: call it with the names of its columns"),  # type: ignore[arg-type]
        (lambda: NoState()("n"), "NoState: the class must set state to a pyarrow.Schema"),
        (lambda: Empty()("n"), "Empty: state must have a column at least"),
    ]
    for wrong, error in calls:
        with pytest.raises(hg.PlanError, match=error):
            wrong()
    keyed = hg.StreamEnvironment().from_source(hg.sources.iterable([[{"k": 1, "n": 2}]])).key_by("k")
    for columns in (("n", "no"), ("no", "n")):
        with pytest.raises(hg.PlanError, match="'no'"):
            keyed.aggregate(x=Mean()(*columns))
    with pytest.raises(hg.PlanError, match=r"x=.* is not an aggregate"):
        keyed.aggregate(x=Mean())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.list_view(pa.int64())])
def test_a_type_that_states_cannot_have_is_refused_when_the_aggregate_is_made(kind: pa.DataType) -> None:
    """It failed while the job ran, with an error of Arrow."""

    class OfState(hg.AggregateFunction):
        state, type = pa.schema({"x": kind}), pa.int64()

        def create(self, count: int) -> Any: ...
        def accumulate(self, values: Any, groups: Any, count: int) -> Any: ...
        def merge(self, states: Any, others: Any) -> Any: ...
        def result(self, states: Any) -> Any: ...

    with pytest.raises(hg.PlanError, match="OfState: states and results cannot have the type"):
        OfState()("km")


def test_states_that_move_while_slots_of_one_accumulator_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sessions become one, and the merge of the first two removes old states from the log."""
    monkeypatch.setattr(user_aggregate, "_SLACK", 0)
    accumulator = user_aggregate.UserAccumulator(Mean())
    for _ in range(2):
        values = pa.StructArray.from_arrays([pa.array([1.0, 10.0, 100.0, 1000.0]), pa.array([1] * 4)], ["x", "w"])
        accumulator.update(4, np.arange(4), values, None)
    accumulator.absorb(4, np.array([1, 1]), accumulator, np.array([2, 3]))
    assert accumulator.result(np.array([0, 1])).to_pylist() == [1.0, 370.0]
