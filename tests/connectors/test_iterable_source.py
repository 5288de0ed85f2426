"""The sources of lists, partitioned by position, and of factories, each of which runs on a thread."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.connector import SourceReader

Read = Callable[..., list[pa.Table]]
SCHEMA = pa.schema({"a": pa.int64()})
WAIT = 60.0


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


def test_batch_i_goes_to_subtask_i_mod_p(read_source: Read) -> None:
    source = hg.sources.iterable([batch(0, 1), batch(2), batch(), [{"a": 3}, {"a": None}], batch(5)])
    assert [part["a"].to_pylist() for part in read_source(source, 2)] == [[0, 1, 5], [2, 3, None]]
    assert [part["a"].to_pylist() for part in read_source(source)] == [[0, 1, 2, 3, None, 5]]


def test_a_list_has_the_schema_of_its_first_item() -> None:
    assert hg.sources.iterable([[{"x": "a"}]]).schema == pa.schema({"x": pa.string()})
    assert hg.sources.iterable([], schema=SCHEMA).schema == SCHEMA
    with pytest.raises(hg.ConfigError, match="the list is empty, so its schema is unknown; give schema="):
        hg.sources.iterable([])


def test_an_empty_pandas_frame_with_objects_needs_a_schema() -> None:
    frame = pd.DataFrame({"n": [1], "text": ["a"]}).astype({"text": object}).iloc[:0]
    assert hg.sources.iterable(frame[["n"]]).schema == pa.schema({"n": pa.int64()})
    with pytest.raises(hg.SourceError, match=r"no rows, so the type of column 'text' is unknown; give schema="):
        hg.sources.iterable(frame)
    schema = pa.schema({"n": pa.int64(), "text": pa.string()})
    assert hg.sources.iterable(frame, schema).schema == schema


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (pa.record_batch({"b": [1]}), r"item 1 has schema \(b int64\), not \(a int64\)"),
        ([{"a": 1, "c": 2}], "item 1: the column 'c' is not in the schema"),
        ([{"a": "text"}], "item 1: does not fit the schema: .*text"),
        (pa.table({"b": [1]}), r"item 1 has schema \(b int64\), not \(a int64\)"),
        (pa.table({"a": ["text"]}), "item 1, a Table, does not fit the schema: .*text"),
        (pd.DataFrame({"a": ["text"]}), "item 1, a DataFrame, does not fit the schema: .*text"),
        ({"a": 1}, r"item 1 is of type dict; each item must be .*; rows as dicts are \[\{'n': 1\}, \{'n': 2\}\]"),
        (1, "item 1 is of type int; each item must be a RecordBatch, a list of dicts, or a frame"),
    ],
)
def test_an_item_that_does_not_fit_is_named(item: object, message: str, reader_context: Callable[..., Any]) -> None:
    with pytest.raises(hg.SourceError, match=message):
        hg.sources.iterable([batch(1), item])
    reader = Waker(hg.sources.iterable(lambda *_: [batch(1), item], SCHEMA), reader_context)
    assert reader.next() == batch(1)
    with pytest.raises(hg.SourceError, match=message):
        reader.next()
    reader.reader.close()


def test_an_iterator_cannot_be_a_source() -> None:
    with pytest.raises(hg.ConfigError, match="a generator cannot be read again; give a list, a frame, or a function"):
        hg.sources.iterable(item for item in [batch(1)])
    with pytest.raises(hg.ConfigError, match="a count cannot be read again"):
        hg.sources.iterable(itertools.count())
    with pytest.raises(hg.ConfigError, match=r"a dict is not a list; for columns give pa.table\(columns\)"):
        hg.sources.iterable({"a": [1]})
    with pytest.raises(hg.ConfigError, match="a str is not a list; give a list, a frame, or a function"):
        hg.sources.iterable("file.csv")
    with pytest.raises(hg.ConfigError, match="a list has an end"):
        hg.sources.iterable([batch(1)], bounded=False)


FRAMES = {
    "pandas": pd.DataFrame({"a": [1, 2], "s": ["x", None]}, index=[7, 8]),
    "polars": pl.DataFrame({"a": [1, 2], "s": ["x", None]}),
    "pyarrow": pa.table({"a": [1, 2], "s": ["x", None]}),
    "a batch": pa.record_batch({"a": [1, 2], "s": ["x", None]}),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_is_a_source_and_an_item(read_source: Read, frame: Any) -> None:
    whole = [{"a": 1, "s": "x"}, {"a": 2, "s": None}]
    assert read_source(hg.sources.iterable(frame))[0].to_pylist() == whole
    assert [part.to_pylist() for part in read_source(hg.sources.iterable([frame, frame]), 2)] == [whole, whole]
    schema = pa.schema({"a": pa.int64(), "s": pa.string()})
    assert hg.sources.iterable(frame[:0], schema).schema.names == ["a", "s"]


def test_a_list_of_rows_is_a_source(read_source: Read) -> None:
    rows = [{"a": number} for number in range(8200)]
    parts = read_source(hg.sources.iterable(rows), 2)
    assert [part["a"].to_pylist() for part in parts] == [[*range(8192)], [*range(8192, 8200)]]
    source = hg.sources.iterable(
        [{"a": None}, {"a": 2, "b": None}], schema=pa.schema({"a": pa.int32(), "b": pa.int8()})
    )
    assert read_source(source)[0].to_pylist() == [{"a": None, "b": None}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"a": 1}, {"a": 2, "b": 3}], "the rows: the column 'b' is not in the first row; give schema="),
        ([[{"a": 1}, {"a": 2, "b": 3}]], "item 0: the column 'b' is not in the first row; give schema="),
        ([{"a": 1}, {"a": "x"}], "the rows: the values of a column have no common type: "),
        ([{"a": 1}, batch(1)], "item 0 is of type dict"),
    ],
)
def test_rows_without_a_common_schema_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(hg.SourceError, match=f"^iterable: {message}"):
        hg.sources.iterable(rows)


def test_a_pandas_index_with_names_becomes_columns(read_source: Read) -> None:
    frame = pd.DataFrame({"a": [1, 2]}, index=pd.Index(["x", "y"], name="k"))
    two = frame.set_index("a", append=True)
    two["s"] = 1.5
    assert read_source(hg.sources.iterable(frame))[0].to_pylist() == [{"k": "x", "a": 1}, {"k": "y", "a": 2}]
    assert read_source(hg.sources.iterable([two]))[0].column_names == ["k", "a", "s"]
    assert read_source(hg.sources.iterable(frame, schema=SCHEMA))[0].to_pylist() == [{"a": 1}, {"a": 2}]
    keyed = pa.schema({"a": pa.int8(), "k": pa.string()})
    assert read_source(hg.sources.iterable(frame, schema=keyed))[0].schema == keyed
    numbered = pd.DataFrame({"a": [1]}, index=pd.RangeIndex(1, name="n"))
    assert hg.sources.iterable(numbered).schema.names == ["n", "a"]


def test_a_pandas_index_without_names_must_number_the_rows(read_source: Read) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    assert read_source(hg.sources.iterable(frame[frame.a > 1]))[0].to_pylist() == [{"a": 2}, {"a": 3}]
    assert hg.sources.iterable(pd.DataFrame({"a": []}, index=[])).schema.names == ["a"]
    days = frame.set_index(pd.date_range("2024-01-01", periods=3))
    for given in (days, [days, frame]):
        with pytest.raises(
            hg.SourceError, match=r"index of datetime64\[ns\] has no name; .*rename_axis\('name'\).*drop"
        ):
            hg.sources.iterable(given)
    assert read_source(hg.sources.iterable(days.rename_axis("day")))[0].column_names == ["day", "a"]
    assert hg.sources.iterable(days, schema=SCHEMA).schema == SCHEMA
    with pytest.raises(hg.SourceError, match=r"a DataFrame, cannot become Arrow's: .*already exists"):
        hg.sources.iterable(frame.set_index("a", drop=False))


def test_a_large_frame_is_cut_for_several_subtasks(read_source: Read) -> None:
    parts = read_source(hg.sources.iterable(pl.DataFrame({"a": range(20_000)})), 2)
    assert [part.num_rows for part in parts] == [8192 + 20_000 - 2 * 8192, 8192]


def test_a_schema_turns_pandas_floats_into_integers(read_source: Read) -> None:
    frames = [pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [3, None]})]
    assert read_source(hg.sources.iterable(frames, schema=SCHEMA))[0]["a"].to_pylist() == [1, 2, 3, None]
    with pytest.raises(hg.SourceError, match="item 1, a DataFrame, does not fit the schema: .*Float value 0.5"):
        hg.sources.iterable([frames[0], pd.DataFrame({"a": [0.5]})])


HALF = datetime(2020, 1, 1, 12)
LOSSES: list[tuple[Any, pa.DataType]] = [
    (1.5, pa.int64()),
    (1e300, pa.float32()),
    (5, pa.bool_()),
    (HALF, pa.date32()),
    (HALF.replace(microsecond=1), pa.timestamp("s")),
    (1.55, pa.decimal128(5, 1)),
    (Decimal("1.25"), pa.int64()),
    ([1e300], pa.list_(pa.float32())),
]


@pytest.mark.parametrize(("value", "data_type"), LOSSES, ids=str)
@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_value_of_a_frame_that_the_schema_cannot_hold_is_refused(
    kind: type[Any], value: Any, data_type: pa.DataType
) -> None:
    with pytest.raises(hg.SourceError, match=rf"does not fit the schema: column 'v' of {re.escape(str(data_type))}: "):
        hg.sources.iterable(kind({"v": [value]}), schema=pa.schema({"v": data_type}))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_frame_is_cast_to_the_schema(read_source: Read, kind: type[Any]) -> None:
    schema = pa.schema({"n": pa.int8(), "x": pa.float32(), "d": pa.date32(), "b": pa.bool_(), "p": pa.decimal128(5, 1)})
    frame = kind({"n": [1.0, None], "x": [0.1, 2], "d": [datetime(2020, 1, 1), None], "b": [1, 0], "p": [1.5, 2.0]})
    [first, second] = read_source(hg.sources.iterable(frame, schema=schema))[0].to_pylist()
    assert first == {"n": 1, "x": pytest.approx(0.1), "d": date(2020, 1, 1), "b": True, "p": Decimal("1.5")}
    assert second == {"n": None, "x": 2.0, "d": None, "b": False, "p": Decimal("2.0")}


def test_a_pandas_frame_must_have_each_column_of_the_schema_once() -> None:
    with pytest.raises(hg.SourceError, match=r"it must have one column 'v', but has 0; its columns are \['a'\]"):
        hg.sources.iterable(pd.DataFrame({"a": [1]}), schema=pa.schema({"v": pa.int64()}))
    never_null = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(hg.SourceError, match="column 'a' of int64: it is null in 1 of 2 rows, but the schema"):
        hg.sources.iterable(pd.DataFrame({"a": [1, None]}), schema=never_null)


def test_a_spark_dataframe_is_refused() -> None:
    kind = type(
        "DataFrame", (), {"__module__": "pyspark.sql.classic.dataframe", "__arrow_c_stream__": None, "columns": []}
    )
    for given, error in ((kind(), hg.ConfigError), ([kind()], hg.SourceError)):
        with pytest.raises(error, match=r"read a Spark DataFrame with hg.sources.dataframe\(df\)"):
            hg.sources.iterable(given)


def test_a_lazy_frame_is_refused() -> None:
    with pytest.raises(hg.ConfigError, match=r"a LazyFrame is not computed yet; give frame.collect\(\)"):
        hg.sources.iterable(pl.LazyFrame({"a": [1]}))
    with pytest.raises(hg.SourceError, match="a Series, cannot become Arrow's"):
        hg.sources.iterable([pl.Series([1])])


class Waker:
    """A reader with its task, which sleeps until the reader wakes it, and then reads."""

    def __init__(self, source: Any, reader_context: Callable[..., Any], subtask: int = 0, parallelism: int = 1) -> None:
        self.woken = threading.Event()
        self.reader: SourceReader = source.reader(reader_context(subtask, parallelism, wake=self.woken.set))

    def next(self) -> pa.RecordBatch | None:
        """Return the next batch; None at the end."""
        while True:
            self.woken.clear()
            batch = self.reader.read()
            if batch is not None or self.reader.finished:
                return batch
            assert self.reader.next_read() is None
            assert self.woken.wait(WAIT), "the reader did not wake the task"


def test_a_factory_is_called_with_subtask_and_subtasks(reader_context: Callable[..., Any]) -> None:
    def numbers(subtask: int, subtasks: int) -> Iterator[pa.RecordBatch]:
        return (batch(i) for i in range(subtask, 9, subtasks))

    source = hg.sources.iterable(numbers)
    assert (source.schema, source.bounded) == (SCHEMA, True)
    waker = Waker(source, reader_context, 1, 4)
    assert [waker.next() for _ in range(3)] == [batch(1), batch(5), None]
    assert waker.reader.finished
    waker.reader.close()


def test_a_factory_is_called_once_for_its_schema() -> None:
    closed = []

    def endless(subtask: int, subtasks: int) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield batch(subtask, subtasks)
        finally:
            closed.append((subtask, subtasks))

    source = hg.sources.iterable(endless, bounded=False)
    assert (source.schema, source.bounded, closed) == (SCHEMA, False, [(0, 1)])
    with pytest.raises(hg.ConfigError, match=r"factory\(0, 1\) returned no batch"):
        hg.sources.iterable(lambda *_: [])
    with pytest.raises(hg.UserFunctionError, match="the factory returned a int, not an iterator"):
        hg.sources.iterable(lambda *_: 7)


def test_a_blocking_iterator_does_not_block_the_reader(reader_context: Callable[..., Any]) -> None:
    gate, made = threading.Event(), []

    def slow(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        for number in range(100):
            gate.wait(WAIT)
            made.append(number)
            yield batch(number)

    waker = Waker(hg.sources.iterable(slow, SCHEMA), reader_context)
    assert (waker.reader.read(), waker.reader.finished) == (None, False)
    gate.set()
    assert [waker.next() for _ in range(20)] == [batch(number) for number in range(20)]
    assert len(made) <= 20 + 2 + 1  # two batches are ready, and the thread waits with one
    waker.reader.close()
    assert len(made) <= 20 + 2 + 2
    assert not fetchers()


def test_the_iterators_error_comes_after_its_batches(reader_context: Callable[..., Any]) -> None:
    def faulty(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        yield batch(1)
        raise ValueError("no more luck")

    waker = Waker(hg.sources.iterable(faulty, SCHEMA), reader_context)
    assert waker.next() == batch(1)
    with pytest.raises(hg.UserFunctionError, match=r"(?s)faulty raised ValueError: no more luck.*in faulty"):
        waker.next()
    assert not waker.reader.finished
    waker.reader.close()
    assert not fetchers()


def test_close_leaves_a_stuck_iterator_behind(
    reader_context: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.connectors.fetcher._CLOSE_WAIT", 0.01)
    gate = threading.Event()

    def stuck(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        gate.wait(WAIT)
        yield batch(1)

    waker = Waker(hg.sources.iterable(stuck, SCHEMA), reader_context)
    waker.reader.close()
    (thread,) = fetchers()
    assert thread.daemon
    gate.set()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert not waker.woken.is_set()


def test_close_ends_an_iterator_of_empty_batches(reader_context: Callable[..., Any]) -> None:
    given = threading.Event()

    def idle(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        yield batch(1)
        while True:
            yield batch(1).slice(0, 0)
            given.set()

    waker = Waker(hg.sources.iterable(idle, SCHEMA, bounded=False), reader_context)
    assert waker.next() == batch(1)
    assert given.wait(WAIT)
    assert waker.reader.read() is None
    waker.reader.close()
    assert not fetchers()


def fetchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("headgate-fetcher-")]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), 1.5), (pa.int64(), Decimal("1.5")), (pa.date32(), datetime(2024, 1, 1, 12, 30)),
        (pa.float32(), 1e300), (pa.list_(pa.int64()), [1.5]), (pa.struct([("a", pa.int64())]), {"a": 1.5}),
    ],
)  # fmt: skip
def test_rows_as_dicts_lose_nothing(kind: pa.DataType, value: object) -> None:
    schema = pa.schema([("v", kind)])
    with pytest.raises(hg.SourceError, match=r"item 0: does not fit the schema: column 'v' is "):
        hg.sources.iterable([[{"v": value}]], schema=schema)
    with pytest.raises(hg.SourceError, match=r"item 1: .*come from the first item"):
        hg.sources.iterable([[{"v": 1}], [{"v": 1.5}]])
