"""The sink that calls a function with DataFrames: each row is in one call after any failure, and slots are checked."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import headgate as hg
from headgate.connectors.connector import Claim, SinkWriter
from headgate.ownership import Program
from headgate.spark.dataframe_sink import _takes_run
from headgate.state.checkpoint_storage import load_checkpoint
from headgate.testing import check_sink
from tests.connectors.conftest import writer_context
from tests.runtime.jobs import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("master", ["local[3]"], indirect=True)]
SCHEMA = pa.schema({"v": pa.int64()})


def numbers() -> Callable[[int, int], pa.RecordBatch]:
    def rows(start: int, n: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(range(start, start + n), pa.int64())], names=["v"])

    return rows


class Table:
    """A table to which a user's function writes. Its first `failures` calls write the rows, then raise."""

    def __init__(self, folder: Path, failures: int = 0) -> None:
        self.folder = folder
        self.calls: list[int] = []
        self._failures = failures

    def write(self, rows: DataFrame, checkpoint_id: int) -> None:
        self.calls.append(checkpoint_id)
        rows.write.mode("overwrite").parquet(str(self.folder / str(checkpoint_id)))
        if self._failures:
            self._failures -= 1
            raise OSError("the table is away")

    def rows(self, spark: SparkSession) -> list[int]:
        return sorted(row.v for folder in self.folder.iterdir() for row in spark.read.parquet(str(folder)).collect())


def environment(spark: SparkSession, folder: Path, parallelism: int = 2, **options: Any) -> hg.StreamEnvironment:
    (folder / "spill").mkdir(exist_ok=True)
    config = hg.Config(spill_dir=folder / "spill", **options)
    return hg.StreamEnvironment(spark, parallelism=parallelism, config=config)


def checkpointed(spark: SparkSession, folder: Path, **options: Any) -> hg.StreamEnvironment:
    checkpoints = folder / "checkpoints"
    return environment(spark, folder, checkpoint_dir=checkpoints, checkpoint_interval="100 ms", **options)


def test_without_checkpoints_it_is_called_once(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(spark, tmp_path)
    table = Table(tmp_path / "table")
    env.from_source(hg.sources.generate(numbers(), rows=20_000)).sink_to(hg.sinks.foreach_dataframe(table.write))
    env.execute()
    assert (table.calls, table.rows(spark)) == ([0], list(range(20_000)))
    env.from_source(hg.sources.generate(numbers(), rows=0)).sink_to(hg.sinks.foreach_dataframe(table.write))
    env.execute()
    assert table.calls == [0], "there were no rows"
    assert os.listdir(tmp_path / "spill") == []


@pytest.mark.parametrize("lines", [2, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_it_keeps_the_contract(spark: SparkSession, tmp_path: Path, lines: int) -> None:
    """A function that replaces the rows of a run and checkpoint has each row once, and none too early."""
    written: dict[str, dict[tuple[str, int], list[Any]]] = {}
    config = hg.Config(spill_dir=tmp_path, checkpoint_dir=tmp_path / "checkpoints")

    def make(name: str) -> hg.Sink:
        def write(rows: DataFrame, checkpoint: int, run: str) -> None:
            written.setdefault(name, {})[run, checkpoint] = [row.asDict() for row in rows.collect()]

        sink = hg.sinks.foreach_dataframe(write)
        sink.configure(config, spark)
        return sink

    def read(name: str) -> list[Any]:
        rows = [row for each in written.get(name, {}).values() for row in each]
        assert len(rows) == len({row["n"] for row in rows}), "each row once"
        return rows

    check_sink(make, read, lines=lines)


def test_each_row_counts_once_when_tasks_and_the_function_fail(spark: SparkSession, tmp_path: Path) -> None:
    written, failed = tmp_path / "written", tmp_path / "failed"

    def fails_once_written(batch: pa.RecordBatch) -> pa.RecordBatch:
        if written.exists() and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return batch

    def write(rows: DataFrame, checkpoint_id: int) -> None:
        table.write(rows, checkpoint_id)
        written.touch()

    env = checkpointed(spark, tmp_path)
    table = Table(tmp_path / "table", failures=1)
    stream = env.from_source(hg.sources.generate(numbers(), rows=20_000, rate=10_000))
    failing = stream.map_batches(fails_once_written, schema=stream.schema)
    failing.sink_to(hg.sinks.foreach_dataframe(write))
    assert env.execute().restarts == 2
    assert table.calls[0] == table.calls[1], table.calls
    assert sorted(set(table.calls)) == table.calls[1:], table.calls
    assert table.rows(spark) == list(range(20_000))
    assert row_files(tmp_path / "spill") == []


def test_a_resumed_job_calls_the_function_with_the_rows_that_it_did_not_get(
    spark: SparkSession, tmp_path: Path
) -> None:
    def build(table: Table, **options: Any) -> hg.StreamEnvironment:
        env = checkpointed(spark, tmp_path, **options)
        stream = env.from_source(hg.sources.generate(numbers(), rows=6_000, rate=6_000))
        stream.sink_to(hg.sinks.foreach_dataframe(table.write))
        return env

    first = Table(tmp_path / "first", failures=1)
    with pytest.raises(hg.UserFunctionError, match=r"(?s)foreach_dataframe: .*write raised OSError: .*Traceback"):
        build(first, restart=hg.restart.none()).execute()
    second = Table(tmp_path / "second")
    build(second).execute(resume="latest")
    assert first.calls == second.calls[:1]
    assert second.rows(spark) == list(range(6_000))
    build(second).execute(resume="latest")  # which had ended
    assert second.rows(spark) == list(range(6_000))


def test_repeated_rows_come_with_the_run_that_took_their_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    calls: list[tuple[int, str]] = []

    def write(_rows: DataFrame, checkpoint_id: int, run: str) -> None:
        calls.append((checkpoint_id, run))
        if len(calls) == 1:
            raise OSError("the table is away")

    def build() -> hg.StreamEnvironment:
        env = checkpointed(spark, tmp_path, restart=hg.restart.none())
        # Some rows must not be due before the first checkpoint, which a slow machine takes late.
        env.from_source(hg.sources.generate(numbers(), rows=18_000, rate=6_000)).sink_to(
            hg.sinks.foreach_dataframe(write)
        )
        return env

    with pytest.raises(hg.UserFunctionError, match="the table is away"):
        build().execute()
    [first] = calls
    [folder] = (tmp_path / "checkpoints").iterdir()
    assert load_checkpoint(folder / f"chk-{first[0]}").run == first[1]
    build().execute(resume="latest")
    assert calls[1] == first
    [run] = {run for _, run in calls[2:]}
    assert run not in ("", first[1])


@pytest.mark.parametrize(
    ("fn", "takes_run"),
    [
        (lambda rows, checkpoint_id: None, False),
        (lambda rows, checkpoint_id, of: None, True),
        (lambda rows, checkpoint_id, run="": None, True),
        (lambda rows, checkpoint_id, mode="append": None, False),
        (lambda rows, checkpoint_id, *rest: None, False),
        (lambda rows, checkpoint_id, **options: None, False),
        (partial(lambda table, rows, checkpoint_id: None, "table"), False),
        (partial(lambda table, rows, checkpoint_id, run: None, "table"), True),
        (print, False),
        (dict.fromkeys, False),
    ],
)
def test_the_run_goes_only_to_a_parameter_that_is_meant_for_it(  # every test of this module is run for a master
    master: str,  # noqa: ARG001
    fn: Callable[..., object],
    takes_run: bool,
) -> None:
    """A third parameter of any other purpose has a default, and keeps it."""
    assert _takes_run(fn) == takes_run


def test_a_job_that_leaves_no_slot_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(spark, tmp_path, parallelism=3)
    env.from_source(hg.sources.generate(numbers(), rows=1)).sink_to(hg.sinks.foreach_dataframe(print))
    why = r"needs 4 Spark task slots .*\(3 for its TaskManagers and 1 for the Spark jobs of foreach_dataframe\)"
    with pytest.raises(hg.NotEnoughSlots, match=rf"{why}, but local\[3\] has 3; set parallelism to 2 or less"):
        env.execute()
    beside = hg.StreamEnvironment(
        spark, parallelism=3, config=env.config, deployment=hg.LocalDeployment(processes=False)
    )
    table = Table(tmp_path / "table")
    beside.from_source(hg.sources.generate(numbers(), rows=9)).sink_to(hg.sinks.foreach_dataframe(table.write))
    beside.execute()
    assert table.rows(spark) == list(range(9)), "a local job takes no slots"


def test_the_function_is_not_called_while_other_jobs_hold_all_slots(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def waits(batch: pa.RecordBatch) -> pa.RecordBatch:
        import time

        while not gate.exists():
            time.sleep(0.01)
        return batch

    env = environment(spark, tmp_path, parallelism=1)
    rows = env.from_source(hg.sources.generate(numbers(), rows=1))
    rows.map_batches(waits, schema=SCHEMA).sink_to(hg.sinks.foreach_dataframe(print))
    job = env.execute_async()
    eventually(lambda: job.status() == "RUNNING", 90)
    others = hg.StreamEnvironment(spark, parallelism=2)
    others.from_source(hg.sources.generate(numbers(), rate=100)).sink_to(hg.sinks.null())
    endless = others.execute_async("endless")
    try:
        eventually(lambda: endless.status() == "RUNNING", 90)
        gate.touch()
        with pytest.raises(hg.NotEnoughSlots, match=r"TaskManagers hold 3 of the 3 on local\[3\]"):
            job.wait(90)
    finally:
        gate.touch()
        endless.cancel()
    assert os.listdir(tmp_path / "spill") == []


def test_a_function_may_cancel_its_job(spark: SparkSession, tmp_path: Path) -> None:
    env = checkpointed(spark, tmp_path)
    started = threading.Event()

    def cancel(_rows: DataFrame, _checkpoint_id: int) -> None:
        started.wait()
        job.cancel()

    env.from_source(hg.sources.generate(numbers(), rate=1_000)).sink_to(hg.sinks.foreach_dataframe(cancel))
    job = env.execute_async()
    started.set()
    with pytest.raises(hg.JobCancelled):
        job.wait(90)


def prepared(spark: SparkSession, folder: Path, calls: list[Any], resumed: Any = None) -> Any:
    def note(rows: DataFrame, checkpoint_id: int) -> None:
        calls.append((sorted(row.v for row in rows.collect()), checkpoint_id))

    sink = hg.sinks.foreach_dataframe(note)
    sink.configure(hg.Config(spill_dir=folder), spark)
    sink.prepare("job", SCHEMA) if resumed is None else sink.resume("job", SCHEMA, json.loads(json.dumps(resumed)))
    claim = Claim(program=Program.this("run"), epoch=1 + sink.newest_owner(), check=lambda: None)
    assert sink.claim(claim)
    sink.begin(claim)
    return sink


def row_files(folder: Path) -> list[Path]:
    """Return all files except for the ledger's."""
    return [path for path in folder.rglob("*") if path.is_file() and ".headgate" not in path.parts]


def written(writer: SinkWriter, *values: int) -> Any:
    writer.write(pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["v"]))
    return writer.flush(1)


def test_a_program_that_died_while_it_removed_files_has_called_the_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls: list[Any] = []
    sink = prepared(spark, tmp_path, calls)
    writers = [sink.writer(writer_context(SCHEMA, subtask=subtask, checkpoint=1)) for subtask in range(2)]
    pending = [written(writer, value) for writer, value in zip(writers, [1, 2], strict=True)]
    after = written(writers[0], 3)
    folder = tmp_path / os.listdir(tmp_path)[0]
    other = prepared(spark, tmp_path, calls, sink.prepared())
    other.rollback([*pending, None], 7)
    other.rollback(pending, 7)
    assert (calls, row_files(folder)) == ([([1, 2], 7)], []), "the rows after the checkpoint are gone"
    assert not set(after) & {name for names in pending for name in names}
    again = written(other.writer(writer_context(SCHEMA, checkpoint=8)), 3)
    (folder / sorted(again)[0]).unlink()
    third = prepared(spark, tmp_path, calls, sink.prepared())
    third.rollback([again], 8)
    assert len(calls) == 1
    with pytest.raises(hg.SinkError, match=r"is gone; spill_dir must be a folder that all machines share"):
        third.commit([again], 8)
    with pytest.raises(hg.Superseded):
        other.commit([again], 8)
    third.finish()
    assert row_files(folder) == []


def test_a_folder_that_is_gone_with_its_rows_is_named(spark: SparkSession, tmp_path: Path) -> None:
    sink = prepared(spark, tmp_path, calls := [])
    state = sink.prepared()
    pending = [written(sink.writer(writer_context(SCHEMA, checkpoint=1)), 1)]
    second = [*pending, written(sink.writer(writer_context(SCHEMA, subtask=1, checkpoint=1)), 2)]
    (tmp_path / os.listdir(tmp_path)[0] / second[1][0]).unlink()
    with pytest.raises(hg.SinkError, match=r"part-.*parquet: is gone, and with it rows that foreach_dataframe must"):
        sink.rollback(second, 1)
    sink.abort(pending, 1)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1, "a job that resumes calls the function with it"
    gone = Path(state["folder"])
    gone.rename(tmp_path / "away")
    with pytest.raises(hg.SinkError, match=r"part-.*parquet: is gone, and with it rows that foreach_dataframe must"):
        prepared(spark, tmp_path, calls, state).rollback(pending, 1)
    prepared(spark, tmp_path, calls, state).rollback([None], 1)
    assert calls == []
    assert row_files(gone) == [], "where nothing is wanted of it, it is made again"


def test_files_that_the_sink_did_not_write_are_not_touched(spark: SparkSession, tmp_path: Path) -> None:
    sink = prepared(spark, tmp_path, calls := [])
    folder = tmp_path / os.listdir(tmp_path)[0]
    (folder / "theirs").touch()
    with pytest.raises(hg.SinkError, match=rf"{tmp_path}: was not made by foreach_dataframe"):
        prepared(spark, tmp_path, calls, {**sink.prepared(), "folder": str(tmp_path)})
    for wrong in ("../x", str(folder / "theirs"), "theirs", 5):
        with pytest.raises(hg.SinkError, match="is not a file of this sink"):
            sink.rollback([[wrong]], 1)
    sink.rollback([], 1)
    sink.abort()
    assert os.listdir(folder) == ["theirs"]
    assert calls == []


def test_impossible_functions_and_types_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(hg.PlanError, match=r"foreach_dataframe: the first argument must be a function"):
        hg.sinks.foreach_dataframe(1)  # type: ignore[arg-type]
    local = hg.StreamEnvironment().from_source(hg.sources.generate(numbers(), rows=1))
    with pytest.raises(hg.PlanError, match=r"needs Spark: StreamEnvironment\(spark\)"):
        local.sink_to(hg.sinks.foreach_dataframe(print))
    env = environment(spark, tmp_path)
    env.from_source(hg.sources.generate(numbers())).sink_to(hg.sinks.foreach_dataframe(print))
    with pytest.raises(
        hg.PlanError, match=r"makes its rows visible when the job ends, and source 'generate' has no end"
    ):
        env.execute()
    for kind in (pa.uint8(), pa.duration("s"), pa.timestamp("ns", "UTC"), pa.time64("us"), pa.decimal256(50, 2)):
        env = environment(spark, tmp_path)  # the one before still has the sink that could not start
        stream = env.from_source(hg.sources.iterable([], schema=pa.schema({"x": kind})))
        stream.sink_to(hg.sinks.foreach_dataframe(print))
        with pytest.raises(hg.PlanError, match=r"column 'x' is .*, which Spark cannot read from Parquet"):
            env.execute()
    assert os.listdir(tmp_path / "spill") == []
