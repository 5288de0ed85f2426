"""What the user got wrong ends the job with one error that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from tests.ending import END, within
from tests.runtime.jobs import NUMBERS, counted, endless, environment, error_of, keyed, numbers


def failure(env: hg.StreamEnvironment, stream: hg.DataStream) -> hg.HeadgateError:
    """Runs the stream into a null sink; the error, which must come soon after the cause."""
    stream.sink_to(hg.sinks.null())
    job = env.execute_async("broken")
    error = error_of(job)
    assert job.status() == "FAILED"
    assert error.job == "broken"
    return error


def raising(*_: Any) -> Any:
    raise ZeroDivisionError("no such number")


def raise_here() -> Any:
    """The function as a closure: it travels by value."""

    def divide(*_: Any) -> Any:
        return 1 // 0

    return divide


FUNCTIONS = {
    "map_batches": lambda stream, fn: stream.map_batches(fn, schema=NUMBERS),
    "map": lambda stream, fn: stream.map(fn, schema=NUMBERS),
    "flat_map": lambda stream, fn: stream.flat_map(fn, schema=NUMBERS),
    "filter": lambda stream, fn: stream.filter(fn),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_function_that_raises(kind: str, processes: bool) -> None:
    env = environment(processes)
    error = failure(env, FUNCTIONS[kind](endless(env), raise_here()).name("half"))
    assert type(error) is hg.UserFunctionError
    assert (error.operator, error.subtask in (0, 1)) == ("half", True)
    first, *trace = error.message.splitlines()
    assert first.endswith("divide raised ZeroDivisionError: integer division or modulo by zero")
    assert trace[0] == "Traceback (most recent call last):"
    assert "in divide" in error.message
    assert "return 1 // 0" in error.message
    assert "headgate/operators" not in error.message, "only the user's frames"


@pytest.mark.parametrize("kind", ["map", "flat_map", "process", "printer"])
def test_a_time_that_python_does_not_have(processes: bool, kind: str) -> None:
    """A file may hold it; it was an internal error."""
    env = environment(processes)
    times = pa.record_batch({"n": [1, 2], "at": pa.array([0, 1 << 62], pa.timestamp("us"))})
    stream = env.from_source(hg.sources.iterable([times]))

    class Same(hg.KeyedProcessFunction):
        def process_element(self, row: dict[str, Any], ctx: Any) -> Any:
            yield row

    def same(row: Any) -> Any:
        return [row] if kind == "flat_map" else row

    if kind == "printer":
        stream.sink_to(hg.sinks.printer())
        error = error_of(env.execute_async("broken"))
    else:
        made = stream.key_by("n").process(Same(), schema=stream.schema) if kind == "process" else (
            getattr(stream, kind)(same, schema=stream.schema)
        )  # fmt: skip
        error = failure(env, made)
    assert type(error) is hg.DataError
    assert "column 'at' of type timestamp[us] has a value that Python does not have (OverflowError" in error.message


def test_an_error_with_a_value_of_any_size() -> None:
    """A row's, perhaps. A message larger than a frame of the control link cut the link: the TaskManager was lost."""

    def fail(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise KeyError("x" * (90 << 20))

    env = environment(processes=True)
    error = failure(env, endless(env).map_batches(fail, schema=NUMBERS).name("half"))
    assert type(error) is hg.UserFunctionError
    assert error.operator == "half"
    assert "fail raised KeyError" in error.message
    assert "characters left out" in error.message
    assert len(error.message) < 100_000


def test_an_error_whose_message_cannot_be_made(processes: bool) -> None:
    def fail(*_: Any) -> Any:
        class Unsayable(Exception):
            def __str__(self) -> str:
                raise ZeroDivisionError

        raise Unsayable

    env = environment(processes)
    error = failure(env, endless(env).map_batches(fail, schema=NUMBERS).name("half"))
    assert type(error) is hg.UserFunctionError
    assert error.operator == "half"
    assert "fail raised Unsayable: (its message cannot be shown: ZeroDivisionError)" in error.message


def test_a_function_of_a_sink_that_raises(processes: bool) -> None:
    env = environment(processes)
    keyed(endless(env)).sink_to(hg.sinks.for_each_batch(raise_here()))
    error = error_of(env.execute_async())
    assert type(error) is hg.UserFunctionError
    assert error.operator == "for_each_batch"
    assert error.subtask in (0, 1)
    assert "ZeroDivisionError" in error.message
    assert "in divide" in error.message


def test_a_generate_function_that_raises_later(processes: bool) -> None:
    def rows(start: int, n: int) -> pa.RecordBatch:
        if start >= 512:
            raise RuntimeError("no more")
        return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], names=["n"])

    env = environment(processes)
    error = failure(env, keyed(env.from_source(hg.sources.generate(rows, batch_rows=64)).name("rows")))
    assert type(error) is hg.UserFunctionError
    assert error.operator == "rows"
    assert "rows raised RuntimeError: no more" in error.message


def test_a_generate_function_that_makes_other_columns_later(processes: bool) -> None:
    def rows(start: int, n: int) -> pa.RecordBatch:
        name = "n" if start < 512 else "m"
        return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], names=[name])

    env = environment(processes, parallelism=1)
    error = failure(env, keyed(env.from_source(hg.sources.generate(rows, batch_rows=64))))
    assert type(error) is hg.UserFunctionError
    assert error.operator == "generate"
    assert error.subtask == 0
    assert error.message == "generate: fn(512, 64) returned columns (m int64), not (n int64)"


def test_an_iterable_factory_that_raises(processes: bool) -> None:
    def batches(subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"n": [1, 2]}, schema=pa.schema({"n": pa.int64()}))
        if subtask == 1:
            raise LookupError("the tape tore")

    env = environment(processes)
    error = failure(env, keyed(env.from_source(hg.sources.iterable(batches, schema=NUMBERS))))
    assert type(error) is hg.UserFunctionError
    assert (error.operator, error.subtask) == ("iterable", 1)
    assert "batches raised LookupError: the tape tore" in error.message


def test_rows_that_are_not_of_the_declared_schema(processes: bool) -> None:
    def wrong(_batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"m": [1.5]})

    env = environment(processes)
    error = failure(env, endless(env).map_batches(wrong, schema=NUMBERS))
    assert type(error) is hg.UserFunctionError
    assert error.operator == "map_batches"
    assert "wrong returned other columns than schema= declares" in error.message


def test_sys_exit_in_a_function(processes: bool) -> None:
    def leave(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise SystemExit(0)

    env = environment(processes)
    error = failure(env, endless(env).map_batches(leave, schema=NUMBERS))
    assert type(error) is hg.UserFunctionError
    assert "leave raised SystemExit: 0" in error.message


def test_a_bad_line(tmp_path: Path, processes: bool) -> None:
    (tmp_path / "bad.csv").write_text("n\n1\n2\nthree\n4\n")
    env = environment(processes)
    error = failure(env, env.from_source(hg.sources.csv(str(tmp_path / "bad.csv"), schema=NUMBERS)))
    assert type(error) is hg.SourceError
    assert (error.operator, error.subtask) == ("csv", 0)
    assert f"{tmp_path}/bad.csv: bad line at byte 6" in error.message
    assert "'three'" in error.message


def test_a_missing_file(tmp_path: Path, processes: bool) -> None:
    env = environment(processes)
    env.from_source(hg.sources.csv(str(tmp_path / "none.csv"), schema=NUMBERS)).sink_to(hg.sinks.null())
    with pytest.raises(hg.SourceError, match="none.csv") as caught:
        env.execute("broken")
    assert (caught.value.job, caught.value.operator, caught.value.subtask) == ("broken", "csv", None)


def test_a_file_that_vanishes_after_the_start(tmp_path: Path, processes: bool) -> None:
    """It is there when the job is prepared, and gone when a subtask opens it."""
    (tmp_path / "first.csv").write_text("n\n" + "1\n" * 1000)
    (tmp_path / "second.csv").write_text("n\n1\n")
    gone = str(tmp_path / "second.csv")

    def remove(batch: pa.RecordBatch) -> pa.RecordBatch:
        Path(gone).unlink(missing_ok=True)
        return batch

    env = environment(processes, taskmanagers=1, parallelism=1)
    stream = env.from_source(hg.sources.csv(str(tmp_path / "*.csv"), schema=NUMBERS))
    error = failure(env, stream.map_batches(remove, schema=NUMBERS))
    assert type(error) is hg.SourceError
    assert (error.operator, error.subtask) == ("csv", 0)
    assert "second.csv" in error.message


def test_wrong_columns_and_options_raise_where_they_are_written() -> None:
    env = environment()
    with pytest.raises(hg.PlanError, match="'m'"):
        counted(env).select("m")
    with pytest.raises(hg.PlanError, match="'m'"):
        counted(env).key_by("m")
    with pytest.raises(hg.PlanError, match="m"):
        counted(env).filter("m > 1")
    with pytest.raises(hg.ConfigError, match="unknown option 'buffer_size'"):
        hg.Config(buffer_size=1)
    with pytest.raises(hg.ConfigError, match=r"'checkpoint_intervall'; did you mean checkpoint_interval\?$"):
        hg.Config(checkpoint_intervall=1)
    with pytest.raises(TypeError, match="'schema'"):
        counted(env).map_batches(raising)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'buffer_size'"):
        hg.sources.generate(numbers, buffer_size=1)  # type: ignore[call-arg]


def test_an_operator_that_fails_in_open(tmp_path: Path, processes: bool) -> None:
    """A lookup loads its table when its task starts."""
    import pyarrow.parquet as pq

    table = pa.table({"n": [1, 1], "name": ["a", "b"]})
    pq.write_table(table, tmp_path / "names.parquet")
    env = environment(processes)
    error = failure(env, endless(env).lookup(str(tmp_path / "names.parquet"), on="n"))
    assert type(error) is hg.DataError
    assert error.operator == "lookup"
    assert error.subtask in (0, 1)
    assert "1" in error.message


@pytest.mark.alone
def test_the_first_error_counts_and_the_others_end(processes: bool) -> None:
    """Every subtask fails at once; one of them is told."""
    env = environment(processes, parallelism=4)
    with within(END + 25 * processes):
        error = failure(env, keyed(endless(env).map_batches(raise_here(), schema=NUMBERS)))
    assert error.operator == "map_batches"
    assert error.subtask in range(4)


def test_two_waits_raise_the_same_error() -> None:
    env = environment()
    endless(env).map_batches(raising, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    first, second = error_of(job), error_of(job)
    assert first is second
    assert len(str(first)) == len(str(second))
