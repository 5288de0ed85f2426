"""Somebody changes the columns or partitions of a table while a job writes to it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.errors import ResultsGone
from headgate.testing.sink_program import SinkProgram, StoredJob
from tests.runtime import jobs
from tests.runtime.faults import behind_gate, open_gate
from tests.tables.test_delta_sink import read
from tests.tables.test_iceberg_sink import Lake

pytest.importorskip("pyiceberg.catalog.sql")
from pyiceberg.types import DecimalType, DoubleType, LongType

deltalake = pytest.importorskip("deltalake")
SCHEMA = pa.schema({"n": pa.int64(), "s": pa.string()})
ROWS = pa.table({"n": range(6), "s": [f"row {n}" for n in range(6)]}, schema=SCHEMA)
FIRST = [{"n": 0, "s": "row 0"}, {"n": 3, "s": "row 3"}]

Change = Callable[[str], None]


def replaced(schema: pa.Schema, **options: Any) -> Change:
    """Replace a Delta table by an empty one with other columns or partitions."""

    def change(path: str) -> None:
        deltalake.write_deltalake(path, schema.empty_table(), mode="overwrite", schema_mode="overwrite", **options)

    return change


def restored(path: str | Path) -> None:
    """Take the last change of a Delta table back."""
    table = deltalake.DeltaTable(str(path))
    table.restore(table.version() - 1)


def before_the_commit(sink: hg.Sink, home: Path, rows: pa.Table = ROWS) -> SinkProgram:
    """Return a program whose first checkpoint is complete, but not in the table."""
    program = SinkProgram(sink, StoredJob(), rows, home=str(home), subtasks=1)
    program.start()
    for step in (program.write, program.flush, program.store):
        step()
    return program


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (replaced(SCHEMA.set(0, pa.field("n", pa.string()))), "column 'n' is string in the table, and int64 in the"),
        (replaced(SCHEMA.set(0, pa.field("m", pa.int64()))), "the table has no column 'n', which the file"),
        (replaced(SCHEMA.append(pa.field("x", pa.int64(), nullable=False))), "the file .* has no column 'x', which"),
        (replaced(SCHEMA, partition_by="s"), r"the table is partitioned by \['s'\], and the file .* by \[\]"),
    ],
    ids=["type", "name", "required", "partitions"],
)
def test_a_delta_table_that_no_longer_takes_the_rows(tmp_path: Path, change: Change, error: str) -> None:
    """Delta adds such files, and readers see nulls in place of the rows. The sink refuses them, and loses none."""
    path = str(tmp_path / "t")
    program = before_the_commit(hg.sinks.delta(path), tmp_path)
    change(path)
    for _ in range(2):
        with pytest.raises(hg.SinkError, match=error):
            program.commit()
    assert read(path) == []
    restored(path)
    program.commit()
    program.close()
    assert read(path) == FIRST


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_that_are_gone_before_the_commit(tmp_path: Path, kind: str) -> None:
    """A clean-up of the table removes files that it does not list. Delta itself would list them all the same."""
    path = str(tmp_path / "t")
    lake = Lake(tmp_path)
    program = before_the_commit(hg.sinks.delta(path) if kind == "delta" else lake.sink("t"), tmp_path)
    [file] = (tmp_path if kind == "delta" else tmp_path / "lake").rglob("part*.parquet")
    moved = file.rename(tmp_path / "moved")
    with pytest.raises(ResultsGone, match="1 of 1 files of the last checkpoint are gone, such as part"):
        program.commit()
    moved.rename(file)
    program.commit()
    program.close()
    assert (read(path) if kind == "delta" else lake.read("t")) == FIRST


def test_a_delta_table_that_gets_a_column(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    program = before_the_commit(hg.sinks.delta(path), tmp_path)
    deltalake.DeltaTable(path).alter.add_columns([deltalake.Field("x", deltalake.schema.PrimitiveType("long"))])
    program.commit()
    program.go_on()
    assert sorted(read(path), key=lambda row: row["n"]) == [{**row, "x": None} for row in ROWS.to_pylist()]


@pytest.mark.parametrize(
    ("change", "back", "error"),
    [
        (lambda update: update.rename_column("n", "m"), lambda update: update.rename_column("m", "n"),
         "the table has no column 'n', which the file"),
        (lambda update: update.add_column("x", LongType(), required=True), lambda update: update.delete_column("x"),
         "the file .* has no column 'x', which the table needs"),
    ],
    ids=["name", "required"],
)  # fmt: skip
def test_an_iceberg_table_that_no_longer_takes_the_rows(
    tmp_path: Path, change: Callable[[Any], Any], back: Callable[[Any], Any], error: str
) -> None:
    lake = Lake(tmp_path)
    program = before_the_commit(lake.sink("t"), tmp_path)

    def update(how: Callable[[Any], Any]) -> None:
        with lake.catalog.load_table("lake.t").update_schema(allow_incompatible_changes=True) as update:
            how(update)

    update(change)
    for _ in range(2):
        with pytest.raises(hg.SinkError, match=error):
            program.commit()
    assert lake.read("t") == []
    update(back)
    program.commit()
    program.close()
    assert lake.read("t") == FIRST


def test_an_iceberg_table_that_gets_a_column(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    program = before_the_commit(lake.sink("t"), tmp_path)
    with lake.catalog.load_table("lake.t").update_schema() as update:
        update.add_column("x", LongType())
    program.commit()
    program.go_on()
    assert sorted(lake.read("t"), key=lambda row: row["n"]) == [{**row, "x": None} for row in ROWS.to_pylist()]


def test_an_iceberg_table_whose_columns_get_wider(tmp_path: Path) -> None:
    """Iceberg cannot take such a change back. Readers widen the values of older files."""
    lake = Lake(tmp_path)
    schema = pa.schema({"n": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 2)})
    rows = pa.table({"n": range(6), "f": [0.5] * 6, "d": [Decimal("1.25")] * 6}, schema=schema)
    program = before_the_commit(lake.sink("t"), tmp_path, rows)
    with lake.catalog.load_table("lake.t").update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("f", DoubleType())
        update.update_column("d", DecimalType(9, 2))
    program.commit()
    program.go_on()
    assert sorted(lake.read("t"), key=lambda row: row["n"]) == rows.to_pylist()


def test_a_job_restarts_and_then_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each restart looks at the table again. With its old columns, a resume adds the rows that were left."""
    path, checkpoints = tmp_path / "t", tmp_path / "checkpoints"

    def build(rows: int | None, **options: Any) -> hg.StreamEnvironment:
        env = jobs.environment(checkpoint_dir=checkpoints, checkpoint_interval="20 ms", **options)
        source = hg.sources.generate(jobs.numbers, rows=rows, rate=1000.0, batch_time="10 ms")
        env.from_source(behind_gate(source, tmp_path, before=1000)).sink_to(hg.sinks.delta(path))
        return env

    job = build(1500, restart=hg.restart.fixed(2, delay=0)).execute_async("job")
    jobs.eventually(lambda: read(path))
    replaced(pa.schema({"n": pa.string()}))(str(path))
    error = jobs.error_of(job)
    assert isinstance(error, hg.SinkError)
    assert "column 'n' is string in the table, and int64 in the" in str(error)
    assert len([line for line in caplog.messages if "starts again from checkpoint" in line]) == 2
    restored(path)
    open_gate(tmp_path)
    build(1500).execute("job", resume="latest")
    assert sorted(row["n"] for row in read(path)) == list(range(1500))
