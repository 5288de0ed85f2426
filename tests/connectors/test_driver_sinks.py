"""The sinks that return rows to the program, print them, pass them to the user's function, or drop them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg

Write = Callable[..., list[Any]]
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"a": value, "b": f"x{value}"} for value in values], SCHEMA)


def test_collect_keeps_the_rows_of_one_run(write_sink: Write) -> None:
    sink = hg.sinks.collect()
    for _ in range(2):
        sink.prepare("job", SCHEMA)
        assert sink.to_table() == SCHEMA.empty_table()
        write_sink(sink, [[batch(1, 2)], [], [batch(3)]], SCHEMA)
        assert sink.to_table()["a"].to_pylist() == [1, 2, 3]
    assert not sink.full


def test_collect_has_no_table_before_the_first_job() -> None:
    with pytest.raises(hg.PlanError, match="no job has run with this sink; add it with stream.sink_to"):
        hg.sinks.collect().to_table()


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 9])
def test_collect_keeps_no_more_than_its_limit(write_sink: Write, limit: int) -> None:
    sink = hg.sinks.collect(limit)
    sink.prepare("job", SCHEMA)
    assert sink.full == (limit == 0)
    write_sink(sink, [[batch(1, 2, 3)], [batch(4), batch(5, 6)]], SCHEMA)
    assert sink.to_table()["a"].to_pylist() == [1, 2, 3, 4, 5, 6][:limit]
    assert sink.full == (limit <= 6)


def test_no_subtask_sends_more_than_the_limit(writer_context: Callable[..., Any]) -> None:
    sent: list[pa.RecordBatch] = []
    writer = hg.sinks.collect(3).writer(writer_context(SCHEMA, deliver=sent.append))
    for values in [(1, 2), (3, 4), (5,)]:
        writer.write(batch(*values))
    assert [rows.column("a").to_pylist() for rows in sent] == [[1, 2], [3]]


def test_printer_prints_a_line_per_row(write_sink: Write, capsys: pytest.CaptureFixture[str]) -> None:
    sink = hg.sinks.printer("> ", limit=3)
    for _ in range(2):
        sink.prepare("job", SCHEMA)
        write_sink(sink, [[batch(1, 2)], [batch(3, 4)]], SCHEMA)
        assert capsys.readouterr().out == "> a=1, b=x1\n> a=2, b=x2\n> a=3, b=x3\n"


def test_a_negative_limit_is_refused() -> None:
    for make in (hg.sinks.collect, hg.sinks.printer):
        with pytest.raises(hg.ConfigError, match="limit=-1 must be a number of rows, or None for all"):
            make(limit=-1)


def test_for_each_batch_calls_the_function_in_the_task(writer_context: Callable[..., Any]) -> None:
    seen = []
    sink = hg.sinks.for_each_batch(lambda rows, info: seen.append((rows, info.subtask, info.checkpoint_id)))
    sink.prepare("job", SCHEMA)
    writer = sink.writer(writer_context(SCHEMA, 2, parallelism=3))
    writer.write(batch(1))
    writer.write(batch(2))
    assert seen == [(batch(1), 2, 0), (batch(2), 2, 0)]
    assert writer.finish() is None


def test_an_error_of_the_function_names_it(writer_context: Callable[..., Any]) -> None:
    def save(_rows: pa.RecordBatch, _info: object) -> None:
        raise KeyError("gone")

    writer = hg.sinks.for_each_batch(save).writer(writer_context(SCHEMA))
    with pytest.raises(hg.UserFunctionError, match=r"(?s)save raised KeyError: 'gone'.*in save"):
        writer.write(batch(1))


def test_null_takes_all_rows(write_sink: Write) -> None:
    sink = hg.sinks.null()
    sink.prepare("job", SCHEMA)
    assert write_sink(sink, [[batch(1), batch(2)], []], SCHEMA) == [None, None]
