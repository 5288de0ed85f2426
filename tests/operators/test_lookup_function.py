"""Lookups by a function: which keys it gets, the cache, retries and time limits, order, and every wrong answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import DataError, UserFunctionError
from headgate.operators.lookup import Lookup
from headgate.operators.lookup_calls import CallLimits
from headgate.operators.lookup_function import FunctionLookup
from headgate.operators.operator import OperatorContext

SCHEMA = pa.schema({"country": pa.string()})
STREAM = pa.record_batch({"id": [1, 2, 3, 4, 5], "city": ["Rome", None, "Oslo", "Rome", "Nowhere"]})
COUNTRIES = {"Rome": "Italy", "Oslo": "Norway", "Paris": "France"}


class Collected:
    """An output that stores all rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def emit(self, batch: pa.RecordBatch) -> None:
        batch.validate(full=True)
        self.rows += batch.to_pylist()

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


class Countries:
    """A function that knows some countries, and stores the keys of each call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        cities = keys.column("city").to_pylist()
        self.calls.append(cities)
        known = [city for city in cities if city in COUNTRIES]
        return pa.table({"country": [COUNTRIES[city] for city in known], "city": known})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def opened(function: Callable[..., Any], clock: Callable[[], float] | None = None, **changes: Any) -> FunctionLookup:
    limits: dict[str, Any] = {"batch_keys": 1000, "concurrency": 4, "timeout": 30.0, "retries": 0}
    limits = {name: changes.pop(name, value) for name, value in limits.items()}
    options = {"schema": SCHEMA, "how": "left", "suffix": None, "cache_rows": 100, "ttl": None, **changes}
    operator = FunctionLookup(
        function, ("city",), limits=CallLimits(**limits), input_schema=STREAM.schema, clock=clock or Clock(), **options
    )
    operator.output = Collected()
    operator.open(OperatorContext("job", "lookup", 0, 1))
    return operator


def rows_of(operator: FunctionLookup, batch: pa.RecordBatch = STREAM) -> list[Any]:
    assert isinstance(operator.output, Collected)
    operator.output.rows.clear()
    operator.process(batch)
    return [(row["id"], row["country"]) for row in operator.output.rows]


def test_the_function_gets_each_key_once_and_the_order_stays() -> None:
    function = Countries()
    operator = opened(function)
    expected = [(1, "Italy"), (2, None), (3, "Norway"), (4, "Italy"), (5, None)]
    assert rows_of(operator) == expected
    assert rows_of(operator, STREAM.slice(2)) == expected[2:]
    assert [sorted(call) for call in function.calls] == [["Nowhere", "Oslo", "Rome"]]
    operator.close()


def test_an_inner_lookup_drops_rows_without_a_match() -> None:
    operator = opened(Countries(), how="inner")
    assert rows_of(operator) == [(1, "Italy"), (3, "Norway"), (4, "Italy")]
    operator.close()


def test_an_async_function_gets_several_parts_at_a_time() -> None:
    running, most = 0, 0

    async def countries(keys: pa.RecordBatch) -> list[dict[str, Any]]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < 2:  # both parts are here at once, or the call does not return in time
            await asyncio.sleep(0)
        running -= 1
        return [{"city": city, "country": COUNTRIES.get(city)} for city in keys.column("city").to_pylist()]

    operator = opened(countries, batch_keys=2, concurrency=2)
    assert rows_of(operator)[0] == (1, "Italy")
    assert operator.lookup_wait_s > 0
    operator.close()


class AsyncCountries:
    """An object whose call is async."""

    async def __call__(self, keys: pa.RecordBatch, name: str = "country") -> list[dict[str, Any]]:
        await asyncio.sleep(0)
        return [{"city": city, name: COUNTRIES.get(city)} for city in keys.column("city").to_pylist()]


@pytest.mark.parametrize("function", [AsyncCountries(), partial(AsyncCountries(), name="country")])
def test_an_object_with_an_async_call_is_async(function: Callable[..., Any]) -> None:
    operator = opened(function)
    assert rows_of(operator)[:3] == [(1, "Italy"), (2, None), (3, "Norway")]
    operator.close()


def test_calls_run_at_once_up_to_the_concurrency() -> None:
    together = threading.Barrier(3, timeout=20)

    def countries(keys: pa.RecordBatch) -> pa.Table:
        together.wait()
        return pa.table({"city": keys.column("city"), "country": ["x"] * keys.num_rows})

    operator = opened(countries, batch_keys=1, concurrency=3)
    assert rows_of(operator) == [(1, "x"), (2, None), (3, "x"), (4, "x"), (5, "x")]
    operator.close()


def test_the_cache_forgets_keys_after_their_time_to_live() -> None:
    function, clock = Countries(), Clock()
    operator = opened(function, clock, ttl=10_000_000)
    rows_of(operator)
    clock.now += 9.9
    rows_of(operator)
    assert len(function.calls) == 1
    clock.now += 0.1
    assert rows_of(operator)[0] == (1, "Italy")
    assert len(function.calls) == 2
    operator.close()


def test_the_cache_keeps_the_newest_keys() -> None:
    function, clock = Countries(), Clock()
    operator = opened(function, clock, cache_rows=2)
    for cities in (["Rome"], ["Oslo"], ["Paris"], ["Paris"], ["Rome"]):
        clock.now += 1
        rows_of(operator, pa.record_batch({"id": [1], "city": cities}))
    assert function.calls == [["Rome"], ["Oslo"], ["Paris"], ["Rome"]]
    operator.close()


def test_without_a_cache_each_batch_asks_again() -> None:
    function = Countries()
    operator = opened(function, cache_rows=0)
    assert rows_of(operator) == rows_of(operator)
    assert len(function.calls) == 2
    operator.close()


def test_a_failed_call_is_repeated() -> None:
    failures = iter([ConnectionError("gone"), None])

    def countries(keys: pa.RecordBatch) -> pa.Table:
        error = next(failures)
        if error is not None:
            raise error
        return Countries()(keys)

    operator = opened(countries, retries=1)
    assert rows_of(operator)[0] == (1, "Italy")
    operator.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_says_what_the_function_raised_and_how_often(is_async: bool) -> None:
    def broken(keys: pa.RecordBatch) -> pa.Table:
        raise ConnectionError(f"no answer for {keys.num_rows} keys")

    async def broken_too(keys: pa.RecordBatch) -> pa.Table:
        return broken(keys)

    operator = opened(broken_too if is_async else broken, retries=1)
    words = r"all 2 attempts failed; the last: .*broken.* raised ConnectionError: no answer for 3 keys"
    with pytest.raises(UserFunctionError, match=words):
        rows_of(operator)
    operator.close()


def test_a_call_that_takes_too_long_is_an_error() -> None:
    release = threading.Event()

    def slow(_: pa.RecordBatch) -> None:
        release.wait(20)

    operator = opened(slow, timeout=0.01)
    with pytest.raises(UserFunctionError, match=r"slow did not return within 0.01 s for 3 keys; allow more with"):
        rows_of(operator)
    release.set()
    operator.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (5, "it is a int, and a table, a batch or a list of dicts is needed"),
        ({"city": ["Rome"]}, "do not have the columns city string, country string"),
        ({"city": ["Rome"], "country": [b"\xff"]}, "do not have the columns"),
        ({"city": ["Rome", "Rome"], "country": ["a", "b"]}, "returned 2 rows for the key city='Rome'"),
    ],
)
def test_a_wrong_answer_is_an_error(answer: object, words: str) -> None:
    operator = opened(lambda _: answer)
    with pytest.raises(DataError, match=words):
        rows_of(operator)
    operator.close()


class Cancelled(Exception):
    """Stands for a cancel of the job."""


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancel_ends_the_wait_for_a_call(is_async: bool) -> None:
    release, asked = threading.Event(), threading.Event()

    async def later(_: pa.RecordBatch) -> None:
        asked.set()
        await asyncio.sleep(60)

    def blocked(_: pa.RecordBatch) -> None:
        asked.set()
        release.wait(60)

    def cancel() -> None:
        if asked.is_set() and operator.lookup_wait_s > 0:  # the metric grows while the call lasts
            raise Cancelled

    operator = opened(later if is_async else blocked)
    operator.open(OperatorContext("job", "lookup", 0, 1, let_task_work=cancel))
    began = time.monotonic()
    with pytest.raises(Cancelled):
        operator.process(STREAM)
    assert time.monotonic() - began < 30
    operator.close()
    release.set()


def test_a_cancel_ends_the_pause_before_a_retry() -> None:
    calls = []

    def broken(keys: pa.RecordBatch) -> None:
        calls.append(keys)
        raise OSError("no connection")

    def cancel() -> None:
        if len(calls) == 2:
            raise Cancelled

    operator = opened(broken, retries=1_000)
    operator.open(OperatorContext("job", "lookup", 0, 1, let_task_work=cancel))
    with pytest.raises(Cancelled):
        operator.process(STREAM)
    operator.close()


def test_a_running_job_takes_a_cancel_while_a_call_lasts() -> None:
    release, asked = threading.Event(), threading.Event()

    def blocked(_: pa.RecordBatch) -> None:
        asked.set()
        release.wait(180)

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(hg.sources.iterable([STREAM]))
    rows.lookup(blocked, on="city", schema=SCHEMA).sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        assert asked.wait(60)
        began = time.monotonic()
        job.cancel()
        with pytest.raises(hg.JobCancelled):
            job.wait(60)
        assert time.monotonic() - began < 60  # far less than the call takes
    finally:
        release.set()


def test_none_and_unknown_keys_are_no_rows() -> None:
    assert {country for _, country in rows_of(opened(lambda _: None))} == {None}
    assert rows_of(opened(lambda _: {"city": ["Bern"], "country": ["x"]}))[0] == (1, None)


def test_the_operator_can_be_sent_to_a_task() -> None:
    environment = hg.StreamEnvironment()
    stream = environment.from_source(hg.sources.iterable([STREAM]))
    found = stream.lookup(Countries(), on="city", schema=SCHEMA, retries=0).collect()
    assert found.column_names == ["id", "city", "country"]
    assert found["country"].to_pylist() == ["Italy", None, "Norway", "Italy", None]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": None}, "a function needs schema="),
        ({"schema": STREAM.schema}, "schema= has the key column 'city'"),
        ({"schema": pa.schema({"id": pa.int64()})}, "the stream and the table both have 'id'; give suffix="),
        ({"schema": pa.schema([])}, "schema= has no column"),
        ({"on": "town"}, "no column 'town'"),
        ({"timeout": "0 s"}, "timeout='0 s' must be more than 0"),
        ({"cache_ttl": "soon"}, "cache_ttl"),
        ({"retries": -1}, "retries=-1 must be an integer of at least 0"),
        ({"concurrency": 0}, "concurrency=0 must be an integer of at least 1"),
        ({"refresh": "1 min"}, "columns= and refresh= are for tables"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(changes: dict[str, Any], words: str) -> None:
    stream = hg.StreamEnvironment().from_source(hg.sources.iterable([STREAM]))
    with pytest.raises(hg.PlanError, match=words):
        stream.lookup(Countries(), **{"on": "city", "schema": SCHEMA, **changes})


def test_arguments_of_functions_are_refused_for_tables() -> None:
    stream = hg.StreamEnvironment().from_source(hg.sources.iterable([STREAM]))
    table = pa.table({"city": ["Rome"], "country": ["Italy"]})
    with pytest.raises(hg.PlanError, match="timeout= is for a function, and this is a Table"):
        stream.lookup(table, on="city", timeout="1 s")
    with pytest.raises(hg.PlanError, match="refresh= needs the path of a file"):
        stream.lookup(table, on="city", refresh="1 min")


def test_a_table_is_read_again_each_refresh(tmp_path: Any) -> None:
    path, clock = tmp_path / "cities.csv", Clock()
    path.write_text("city,country\nRome,Italy\n")
    arguments: dict[str, Any] = {"how": "left", "columns": None, "suffix": None, "input_schema": STREAM.schema}
    operator = Lookup(str(path), "city", **arguments, refresh=60_000_000, clock=clock)
    operator.output = output = Collected()
    operator.open(OperatorContext("job", "lookup", 0, 1))
    path.write_text("city,country\nOslo,Norway\n")
    operator.process(STREAM)
    assert [row["country"] for row in output.rows] == ["Italy", None, None, "Italy", None]
    assert operator.next_time() == 160_000_000
    clock.now = 160.0
    operator.on_processing_time()
    operator.process(STREAM)
    assert [row["country"] for row in output.rows[5:]] == [None, None, "Norway", None, None]
    assert operator.next_time() == 220_000_000


@pytest.mark.parametrize("columns", [
    {"a": pa.array(range(10**12, 10**12 + 1000))},
    {"a": pa.array([number / 7 for number in range(1000)])},
    {"a": pa.array([f"key {number % 40}" for number in range(1000)]), "b": pa.array(range(-500, 500))},
], ids=["large integers", "floats", "two columns"])  # fmt: skip
def test_each_of_many_new_keys_gets_its_own_row(columns: dict[str, pa.Array]) -> None:
    batch = pa.record_batch(columns)

    def names(keys: pa.RecordBatch) -> pa.Table:
        texts = [str(tuple(row.values())) for row in keys.to_pylist()]
        return pa.Table.from_batches([keys]).append_column("name", pa.array(texts)).take(list(range(len(texts)))[::-1])

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    given = env.from_source(hg.sources.iterable([batch]))
    found = given.lookup(names, on=list(columns), schema=pa.schema({"name": pa.string()})).collect().to_pylist()
    assert len(found) == 1000
    assert [row["name"] for row in found] == [str(tuple(row[name] for name in columns)) for row in found]


def test_rows_without_the_key_column_are_an_error() -> None:
    """A list of dicts may lack a column. Without the key, each row would silently get nulls."""
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    given = env.from_source(hg.sources.iterable([STREAM]))
    misspelt = given.lookup(lambda keys: [{"town": "Rome", "country": "Italy"}], on="city", schema=SCHEMA)
    with pytest.raises(DataError, match="returned 1 rows, all without a value of the key column 'city'"):
        misspelt.collect()
