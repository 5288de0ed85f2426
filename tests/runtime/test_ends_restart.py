"""Sources and sinks of a job that starts again: every row and every bad line goes where it should, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from tests.runtime.jobs import eventually

SCHEMA = pa.schema({"a": pa.int64()})
ROWS = 10


def put(folder: Path, number: int) -> None:
    """A file of rows, with a bad line among them."""
    values = [str(row) for row in range(number * ROWS, (number + 1) * ROWS)]
    (folder / f"_{number}.csv").write_text("\n".join(["a", *values[:5], "oops", *values[5:]]) + "\n")
    (folder / f"_{number}.csv").rename(folder / f"{number}.csv")


def fails_once(flag: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Raises at the second file."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not flag.exists() and batch["a"][-1].as_py() >= ROWS:
            flag.touch()
            raise ValueError("once")
        return batch

    return function


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_watched_folder_to_files_and_to_the_program(tmp_path: Path, processes: bool) -> None:
    (tmp_path / "in").mkdir()
    config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="30 ms")
    env = hg.StreamEnvironment(parallelism=2, config=config, deployment=hg.LocalDeployment(2, processes))
    stream = env.from_source(
        hg.sources.files(tmp_path / "in", format="csv", schema=SCHEMA, watch=True, interval="20 ms")
    )
    rows, bad = hg.sinks.collect(), hg.sinks.collect()
    good = stream.map_batches(fails_once(tmp_path / "failed"), schema=SCHEMA)
    good.sink_to(rows)
    good.sink_to(hg.sinks.csv(tmp_path / "out"))
    stream.side_output("bad").sink_to(bad)

    def shown() -> list[int]:
        return sorted(ds.dataset(tmp_path / "out", format="csv", schema=SCHEMA).to_table()["a"].to_pylist())

    job = env.execute_async()
    try:
        for number in range(3):
            put(tmp_path / "in", number)
            expected = list(range((number + 1) * ROWS))
            eventually(lambda: shown() == expected, timeout=60)  # noqa: B023
    finally:
        job.cancel()
    assert (tmp_path / "failed").exists()
    assert sorted(rows.to_table()["a"].to_pylist()) == shown() == expected
    assert sorted(Path(name).name for name in bad.to_table()["file"].to_pylist()) == ["0.csv", "1.csv", "2.csv"]
    assert not list((tmp_path / "out").glob("_*"))
