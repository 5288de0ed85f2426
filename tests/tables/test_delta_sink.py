"""The sink into Delta tables, read back by deltalake."""

from __future__ import annotations

import datetime
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.tables.table_sink import Epoch
from headgate.testing import check_sink
from headgate.testing.sink_program import SinkProgram, StoredJob
from tests.exchange.test_gathering import file_size_limit
from tests.runtime import jobs
from tests.runtime.faults import behind_gate, open_gate

deltalake = pytest.importorskip("deltalake")

LOCAL = hg.LocalDeployment(processes=False)


def read(path: str | Path) -> list[dict[str, Any]]:
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return []
    rows: list[dict[str, Any]] = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def write(path: Path, given: Any, **options: Any) -> None:
    env = hg.StreamEnvironment(deployment=LOCAL)
    env.from_source(hg.sources.iterable(given)).sink_to(hg.sinks.delta(path, **options))
    env.execute()


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


@pytest.mark.parametrize("lines", [8, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_it_keeps_the_contract(tmp_path: Path, lines: int) -> None:
    (tmp_path / "file").touch()
    check_sink(
        lambda name: hg.sinks.delta(tmp_path / name), lambda name: read(tmp_path / name),
        broken=lambda: hg.sinks.delta(tmp_path / "file" / "x"), lines=lines,
    )  # fmt: skip


def test_a_table_is_created_and_appended_to(tmp_path: Path) -> None:
    schema = pa.schema(
        {
            "n": pa.uint32(), "t": pa.timestamp("ns", "Europe/Rome"), "s": pa.dictionary(pa.int32(), pa.string()),
            "d": pa.date32(), "l": pa.list_(pa.int64()),
        }
    )  # fmt: skip
    time = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC)
    row = {"n": 7, "t": time, "s": "a", "d": datetime.date(2024, 5, 1), "l": [1, 2]}
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], schema)
    write(tmp_path / "t", [batch])
    write(tmp_path / "t", [batch])
    assert sorted(read(tmp_path / "t"), key=str) == sorted([row, dict.fromkeys(row)] * 2, key=str)


def test_partitions_are_folders_and_values_of_the_log(tmp_path: Path) -> None:
    rows = [{"city": city, "n": n} for n, city in enumerate(["Rome", "a/b %=c", None, "Rome"])]
    write(tmp_path / "t", rows, partition_by="city")
    assert sorted(read(tmp_path / "t"), key=lambda row: row["n"]) == rows
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["city"]
    rome = table.to_pyarrow_table(partitions=[("city", "=", "Rome")])
    assert sorted(rome["n"].to_pylist()) == [0, 3]
    write(tmp_path / "t", [{"city": "Rome", "n": 9}])  # the table knows its partitions
    assert len(read(tmp_path / "t")) == 5


def test_files_have_the_limits_of_their_values(tmp_path: Path) -> None:
    day = datetime.date(2024, 5, 1)
    write(tmp_path / "t", [{"n": n, "d": day, "s": None} for n in (5, 3, None)])
    actions = pa.table(deltalake.DeltaTable(str(tmp_path / "t")).get_add_actions(flatten=True)).to_pylist()
    [found] = actions
    assert (found["num_records"], found["min.n"], found["max.n"], found["null_count.n"]) == (3, 3, 5, 1)
    assert (found["min.d"], found["max.d"]) == (day, day)


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        ([{"n": 1, "x": 2}], {}, "the table has no column 'x'; it has: n, s.*new_columns=\"add\""),
        ([{"n": "a"}], {}, "column 'n' is string, and int64 in the table"),
        ([{"n": 1.5}], {}, "column 'n' is double, and int64 in the table"),
        ([{"n": 1}], {"partition_by": "n"}, "the table is partitioned by .*, not by"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, given: Any, options: Any, error: str) -> None:
    write(tmp_path / "t", [{"n": 1, "s": "a"}])
    with pytest.raises(hg.PlanError, match=error):
        write(tmp_path / "t", given, **options)
    assert deltalake.DeltaTable(str(tmp_path / "t")).version() == 1, "nothing has changed"


def test_a_table_with_rows_is_refused_on_request(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(str(tmp_path / "t"), pa.schema({"n": pa.int64()}))
    for path in ("t", "new"):
        write(tmp_path / path, [{"n": 1}], mode="error")
        with pytest.raises(hg.SinkError, match=f'/{path}: the table has rows; choose another, .* or mode="append"'):
            write(tmp_path / path, [{"n": 2}], mode="error")
        assert read(tmp_path / path) == [{"n": 1}]


def test_a_resumed_job_may_add_to_its_own_rows(tmp_path: Path) -> None:
    rows, stored = pa.table({"n": range(6)}), StoredJob()
    for _ in range(2):
        sink = hg.sinks.delta(tmp_path / "t", mode="error")
        program = SinkProgram(sink, stored, rows, home=str(tmp_path), subtasks=1)
        program.start()
        for step in (program.write, program.flush, program.store, program.commit):
            step()
    assert sorted(row["n"] for row in read(tmp_path / "t")) == [0, 1, 3, 4]


def test_a_number_that_is_too_wide_fails_the_job(tmp_path: Path) -> None:
    write(tmp_path / "t", [pa.record_batch({"n": pa.array([1], pa.int8())})])
    with pytest.raises(hg.SinkError, match="column 'n': Integer value 300 not in range"):
        write(tmp_path / "t", [{"n": 300}])
    assert read(tmp_path / "t") == [{"n": 1}]


def test_new_columns_are_added_on_request(tmp_path: Path) -> None:
    write(tmp_path / "t", [{"n": 1, "s": "a"}])
    write(tmp_path / "t", [{"x": 2.5, "n": 2}], new_columns="add")
    rows = sorted(read(tmp_path / "t"), key=lambda row: row["n"])
    assert rows == [{"n": 1, "s": "a", "x": None}, {"n": 2, "s": None, "x": 2.5}]


def test_no_table_can_be_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(hg.SinkError, match="delta: .*file/t"):
        write(tmp_path / "file" / "t", [{"n": 1}])


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    write(tmp_path / "t", [{"n": 1}])
    sink = hg.sinks.delta(tmp_path / "t")
    sink.prepare("job", pa.schema({"n": pa.int64()}))
    with file_size_limit(0), pytest.raises(hg.SinkError, match=r"LocalFileSystem error: .*: File too large \(os error"):
        sink.add(Epoch(run="a", owner=1, checkpoint=1, taken_by="b"), [])  # type: ignore[attr-defined]
    assert read(tmp_path / "t") == [{"n": 1}]


def test_a_type_that_delta_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hg.PlanError, match=r"column 't' is time64\[us\], and Delta has no such type; convert"):
        write(tmp_path / "t", [pa.record_batch({"t": pa.array([1], pa.time64("us"))})])
    assert not (tmp_path / "t").exists()


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(hg.ConfigError, match="new_columns='maybe' must be one of 'refuse', 'add'"):
        hg.sinks.delta("x", new_columns="maybe")  # type: ignore[arg-type]
    with pytest.raises(hg.ConfigError, match="mode='overwrite' must be one of 'append', 'error'"):
        hg.sinks.delta("x", mode="overwrite")  # type: ignore[arg-type]
    with pytest.raises(hg.ConfigError, match="storage_options= must be a dict of strings"):
        hg.sinks.delta("x", storage_options={"a": 1})  # type: ignore[dict-item]
    with pytest.raises(hg.ConfigError, match="credentials|password"):
        hg.sinks.delta("s3://key:secret@bucket/x")


def test_a_table_that_is_made_anew_gets_the_next_rows(tmp_path: Path) -> None:
    """Somebody replaces the table between two commits of a job. The new table has a higher version at the second."""
    schema = pa.schema({"n": pa.int64()})
    rows = pa.table({"n": range(6)}, schema=schema)
    program = SinkProgram(hg.sinks.delta(tmp_path / "t"), StoredJob(), rows, home=str(tmp_path), subtasks=1)
    program.start()
    for step in (program.write, program.flush, program.store, program.commit, program.write, program.flush):
        step()
    program.store()
    shutil.rmtree(tmp_path / "t/_delta_log")
    table = deltalake.DeltaTable.create(str(tmp_path / "t"), schema)
    for _ in range(3):
        deltalake.write_deltalake(table, pa.table({"n": [9]}), mode="append")
    program.commit()
    program.close()
    assert sorted(row["n"] for row in read(tmp_path / "t")) == [1, 4, 9, 9, 9]


def test_other_writers_do_not_disturb(tmp_path: Path) -> None:
    """Another program appends between all commits of a job with checkpoints."""
    config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="20 ms")
    env = hg.StreamEnvironment(deployment=LOCAL, config=config)
    source = behind_gate(hg.sources.generate(numbers, rows=1000, rate=2000.0, batch_rows=50), tmp_path, before=800)
    env.from_source(source).sink_to(hg.sinks.delta(tmp_path / "t"))
    job = env.execute_async()
    others = 0
    while job.status() in ("CREATED", "RUNNING"):
        if deltalake.DeltaTable.is_deltatable(str(tmp_path / "t")):
            deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"n": [-1]}), mode="append")
            others += 1
        if others == 5:
            open_gate(tmp_path)
    job.wait()
    found = sorted(row["n"] for row in read(tmp_path / "t"))
    assert others >= 5
    assert found == [-1] * others + list(range(1000))


def test_files_of_the_size_that_is_wanted(tmp_path: Path) -> None:
    batches = [numbers(start, 65_536) for start in range(0, 4 * 65_536, 65_536)]
    write(tmp_path / "small", batches, target_file_size="100 kb")
    write(tmp_path / "large", batches)
    small, large = (deltalake.DeltaTable(str(tmp_path / name)).file_uris() for name in ("small", "large"))
    assert (len(small), len(large)) == (4, 1)
    assert all(Path(uri).stat().st_size > 100_000 for uri in small)
    assert sorted(row["n"] for row in read(tmp_path / "small")) == list(range(4 * 65_536))
    with pytest.raises(hg.ConfigError, match="target_file_size=0 must be at least 1 byte"):
        hg.sinks.delta("x", target_file_size=0)


def test_files_are_joined_while_a_job_writes(tmp_path: Path) -> None:
    """Another program compacts the table between all commits of a job with checkpoints."""
    config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="20 ms")
    env = hg.StreamEnvironment(parallelism=1, deployment=LOCAL, config=config)
    env.from_source(hg.sources.generate(numbers, rate=2000.0, batch_rows=50)).sink_to(hg.sinks.delta(tmp_path / "t"))
    job = env.execute_async()
    removed = 0
    while removed < 5:  # several commits come between
        if deltalake.DeltaTable.is_deltatable(str(tmp_path / "t")):
            with suppress(deltalake.exceptions.CommitFailedError):  # the sink was faster
                removed += deltalake.DeltaTable(str(tmp_path / "t")).optimize.compact()["numFilesRemoved"]
    job.stop()
    found = sorted(row["n"] for row in read(tmp_path / "t"))
    assert found == list(range(job.wait().rows_out))


def test_a_table_that_is_removed_while_it_is_written(tmp_path: Path) -> None:
    env = jobs.environment(checkpoint_dir=tmp_path / "c", checkpoint_interval="20 ms", restart=hg.restart.none())
    jobs.endless(env, rate=1000).sink_to(hg.sinks.delta(tmp_path / "t"))
    job = env.execute_async()
    jobs.eventually(lambda: read(tmp_path / "t"))
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    error = jobs.error_of(job)
    assert isinstance(error, hg.SinkError | hg.Superseded)  # a task finds it, or the driver before a commit
    assert str(tmp_path / "t") in str(error)
