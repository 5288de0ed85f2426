"""The sink into Delta tables, read back by deltalake."""

from __future__ import annotations

import datetime
import decimal
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.tables.data_file_writer import converted
from headgate.connectors.tables.table_columns import check_columns
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


def test_a_store_where_nobody_can_own_the_results() -> None:
    with pytest.raises(hg.SinkError, match="is in gs://; the sink writes only to"):
        write("gs://lake/t", [numbers(0, 3)])  # type: ignore[arg-type]


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


_STOP = pa.struct([pa.field("code", pa.string()), pa.field("at", pa.timestamp("us", "UTC"), nullable=False)])


@pytest.mark.parametrize("options", [{}, {"new_columns": "add"}])
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"s": pa.struct({"code": pa.string()})}, "the rows have no field 's.at', which the table needs"),
        ({"s": pa.struct([*_STOP, pa.field("n", pa.int64())])}, "the table has no field 's.n'. Leave it out"),
        ({"l": pa.list_(pa.struct({"code": pa.string()}))}, "the rows have no field 'l.element.at'"),
        ({"m": pa.map_(pa.string(), pa.struct({"code": pa.string()}))}, "the rows have no field 'm.value.at'"),
        ({"s": pa.struct({"code": pa.int64(), "at": _STOP.field("at").type})}, "column 's.code' is int64, and string"),
        ({"m": pa.list_(_STOP)}, "column 'm' is list<"),
        ({"f": pa.list_(pa.float64())}, "column 'f.element' is double, and float"),
        ({"f": pa.list_(pa.decimal128(9, 2))}, "column 'f.element' is decimal128"),
        ({"f": pa.list_view(pa.float32())}, "column 'f' is list_view"),
    ],
)
def test_fields_within_columns_must_fit(tmp_path: Path, given: Any, error: str, options: Any) -> None:
    """Arrow would leave out their values, fill in nulls, or round numbers."""
    columns = {"s": _STOP, "l": pa.list_(_STOP), "m": pa.map_(pa.string(), _STOP), "f": pa.list_(pa.float32())}
    deltalake.DeltaTable.create(str(tmp_path / "t"), pa.schema(columns))
    with pytest.raises(hg.PlanError, match=error):
        hg.sinks.delta(tmp_path / "t", **options).prepare("job", pa.schema({**columns, **given}))


def test_fields_within_columns_are_converted(tmp_path: Path) -> None:
    columns = {"s": _STOP, "l": pa.list_(_STOP), "m": pa.map_(pa.string(), _STOP)}
    deltalake.DeltaTable.create(str(tmp_path / "t"), pa.schema(columns))
    stop = pa.struct({"at": pa.timestamp("ms", "Europe/Rome"), "code": pa.dictionary(pa.int32(), pa.large_string())})
    schema = pa.schema({"s": stop, "l": pa.large_list(stop), "m": pa.map_(pa.large_string(), stop)})
    value = {"code": "a", "at": datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC)}
    row = {"s": value, "l": [value, None], "m": [("k", value)]}
    write(tmp_path / "t", [pa.RecordBatch.from_pylist([row], schema)])
    assert read(tmp_path / "t") == [row]


def test_numbers_and_times_within_columns_are_converted_and_missing_fields_are_null(tmp_path: Path) -> None:
    types = {"n": pa.float64(), "i": pa.int32(), "d": pa.int64(), "at": pa.timestamp("us", "UTC"), "new": pa.string()}
    columns = {"l": pa.list_(pa.struct({**types, "day": pa.timestamp("us", "UTC")}))}
    deltalake.DeltaTable.create(str(tmp_path / "t"), pa.schema(columns))
    given = {"n": pa.int64(), "i": pa.float64(), "d": pa.decimal128(9, 2), "at": pa.timestamp("ns"), "day": pa.date32()}
    day = datetime.datetime(2024, 5, 1)
    row = {"n": 3, "i": 4.0, "d": decimal.Decimal("5.00"), "at": day, "day": day.date()}
    schema = pa.schema({"l": pa.list_(pa.struct(given))})
    sink = hg.sinks.delta(tmp_path / "t")
    sink.prepare("job", schema)
    sink.resume("job", schema, sink.prepared())
    write(tmp_path / "t", [pa.RecordBatch.from_pylist([{"l": [row, None]}], schema)])
    midnight = day.replace(tzinfo=datetime.UTC)
    found = {"n": 3.0, "i": 4, "d": 5, "at": midnight, "new": None, "day": midnight}
    assert read(tmp_path / "t") == [{"l": [found, None]}]


@pytest.mark.parametrize(
    ("given", "wanted", "value"),
    [
        (pa.int64(), pa.float64(), 2**53 + 1),
        (pa.int64(), pa.int8(), 128),
        (pa.float64(), pa.int64(), 1.5),
        (pa.float64(), pa.int64(), 1e300),
        (pa.decimal128(9, 2), pa.int64(), decimal.Decimal("1.50")),
        (pa.timestamp("ns"), pa.timestamp("us", "UTC"), 1),
        (pa.time64("ns"), pa.time64("us"), 1),
    ],
)
def test_a_number_or_time_within_a_column_that_does_not_fit_is_refused(given: Any, wanted: Any, value: Any) -> None:
    rows, table = pa.schema({"l": pa.list_(given)}), pa.schema({"l": pa.list_(wanted)})
    check_columns("t", rows, table, "refuse")
    array = pa.array([value]).cast(given)
    batch = pa.RecordBatch.from_arrays([pa.ListArray.from_arrays([0, 1], array)], ["l"])
    with pytest.raises(hg.SinkError, match="t: column 'l'"):
        converted(batch, table, "t")
