"""mode="overwrite" never removes what the job itself reads, nor anything for a job that cannot start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headgate as hg

TABLE = pa.table({"n": [1, 2, 3], "m": [4, 5, 6]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(TABLE, folder / "a.parquet")
    pyarrow.csv.write_csv(TABLE, folder / "a.csv")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def numbers(env: hg.StreamEnvironment) -> hg.DataStream:
    return env.from_source(hg.sources.iterable(TABLE.select(["n"]).to_batches()))


def in_threads(**options: Any) -> hg.StreamEnvironment:
    deployment = hg.LocalDeployment(1, processes=False)
    return hg.StreamEnvironment(parallelism=1, config=hg.Config(**options), deployment=deployment)


def parquet(env: hg.StreamEnvironment, folder: Path) -> hg.DataStream:
    return env.from_source(hg.sources.parquet(folder / "*.parquet"))


def csv(env: hg.StreamEnvironment, folder: Path) -> hg.DataStream:
    return env.from_source(hg.sources.csv(folder / "a.csv"))


def lookup(env: hg.StreamEnvironment, folder: Path) -> hg.DataStream:
    return numbers(env).lookup(folder / "a.parquet", on="n")


def through_a_link(env: hg.StreamEnvironment, folder: Path) -> hg.DataStream:
    link = folder.parent / "link"
    link.symlink_to(folder)
    return parquet(env, link)


@pytest.mark.parametrize("read", [parquet, csv, lookup, through_a_link])
@pytest.mark.parametrize("above", [False, True], ids=["the folder", "above it"])
def test_a_job_must_not_empty_a_folder_that_it_reads(
    folder: Path, read: Callable[[hg.StreamEnvironment, Path], hg.DataStream], above: bool
) -> None:
    env = hg.StreamEnvironment()
    read(env, folder).sink_to(hg.sinks.parquet(folder.parent if above else folder, mode="overwrite"))
    with pytest.raises(
        hg.PlanError, match=r"sink 'parquet.*' empties .* reads .*/a\.(csv|parquet), which is in this folder"
    ):
        env.execute()
    assert names(folder) == ["a.csv", "a.parquet"]


def test_a_job_may_append_to_what_it_reads_and_overwrite_other_folders(folder: Path) -> None:
    env = hg.StreamEnvironment()
    stream = parquet(env, folder)
    stream.sink_to(hg.sinks.parquet(folder, mode="append"))
    stream.sink_to(hg.sinks.parquet(f"{folder}2", mode="overwrite"))
    env.execute()
    assert sum(pq.read_table(path).num_rows for path in folder.glob("*.parquet")) == 6
    assert pq.read_table(f"{folder}2").num_rows == 3


def test_a_job_that_cannot_start_removes_nothing(folder: Path, tmp_path: Path) -> None:
    later = tmp_path / "later.csv"
    later.write_text("n\n1\n")
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").touch()
    env = hg.StreamEnvironment()
    numbers(env).sink_to(hg.sinks.parquet(folder, mode="overwrite"))
    numbers(env).sink_to(hg.sinks.parquet(full))
    with pytest.raises(hg.SinkError, match="not empty"):
        env.execute()
    assert names(folder) == ["a.csv", "a.parquet"]
    env = hg.StreamEnvironment()
    numbers(env).sink_to(hg.sinks.parquet(folder, mode="overwrite"))
    env.from_source(hg.sources.csv(later)).sink_to(hg.sinks.null())
    later.unlink()
    with pytest.raises(hg.SourceError, match="no such file"):
        env.execute()
    assert names(folder) == ["a.csv", "a.parquet"]


@pytest.mark.parametrize(
    ("mode", "below"), [("overwrite", ""), ("append", ""), ("append", "below"), ("overwrite", "below")]
)
def test_a_job_must_not_empty_a_folder_that_it_writes_to_elsewhere(folder: Path, mode: str, below: str) -> None:
    (folder / "below").mkdir()
    link = folder.with_name("link")
    link.symlink_to(folder)
    env = hg.StreamEnvironment()
    numbers(env).sink_to(hg.sinks.parquet(link / below, mode=mode)).name("first")  # type: ignore[arg-type]
    numbers(env).sink_to(hg.sinks.parquet(folder, mode="overwrite")).name("second")
    with pytest.raises(hg.PlanError, match="empties .*; give each a folder of its own") as caught:
        env.execute()
    assert "'first'" in str(caught.value)
    assert "'second'" in str(caught.value)
    assert names(folder) == ["a.csv", "a.parquet", "below"]


@pytest.mark.parametrize("mode", ["overwrite", "append"])
@pytest.mark.parametrize(
    "sink", ["", "checkpoints", "checkpoints/flights", "checkpoints/flights/chk-1", "link/flights"]
)
def test_a_job_must_not_write_among_its_checkpoints(tmp_path: Path, sink: str, mode: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "checkpoints")
    checkpoint = tmp_path / "checkpoints/flights/chk-1"
    checkpoint.mkdir(parents=True)
    env = hg.StreamEnvironment(parallelism=1, config=hg.Config(checkpoint_dir=tmp_path / "checkpoints"))
    numbers(env).sink_to(hg.sinks.parquet(tmp_path / sink, mode=mode))  # type: ignore[arg-type]
    with pytest.raises(
        hg.PlanError, match="the job's checkpoints are in .*/checkpoints/flights; give the checkpoints a folder of"
    ):
        env.execute("flights")
    assert list(checkpoint.parent.iterdir()) == [checkpoint]


def test_a_job_may_write_beside_its_checkpoints(tmp_path: Path) -> None:
    env = in_threads(checkpoint_dir=tmp_path)
    numbers(env).sink_to(hg.sinks.parquet(tmp_path / "flights2", mode="overwrite"))
    env.execute("flights")
    assert pq.read_table(tmp_path / "flights2").num_rows == 3


@pytest.mark.parametrize("sink", ["saved", "saved/flights", ""])
def test_a_job_must_not_empty_the_folder_of_the_savepoint_that_it_resumes_from(tmp_path: Path, sink: str) -> None:
    env = in_threads()
    numbers(env).sink_to(hg.sinks.parquet(tmp_path / sink, mode="overwrite"))
    with pytest.raises(
        hg.PlanError, match="the job resumes from .*/sp-1-ab, which is in this folder; move the checkpoint"
    ):
        env.execute("flights", resume=str(tmp_path / "saved/flights/sp-1-ab"))


@pytest.mark.parametrize("sink", ["", "other", "other/chk-1"])
def test_a_sink_must_not_empty_a_folder_with_checkpoints_of_another_job(tmp_path: Path, sink: str) -> None:
    env = in_threads(checkpoint_dir=tmp_path / "saved")
    numbers(env).sink_to(hg.sinks.null())
    env.execute("other")
    [metadata] = tmp_path.glob("saved/other/chk-*/_metadata")
    again = in_threads()
    numbers(again).sink_to(hg.sinks.parquet(tmp_path / "saved" / sink, mode="overwrite"))
    with pytest.raises(hg.SinkError, match=r'holds the checkpoint .*/other/chk-1, which mode="overwrite" would remove'):
        again.execute("flights")
    assert metadata.exists()


def test_a_file_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "out") + b"/\xff")).touch()
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    numbers(env).sink_to(hg.sinks.parquet(tmp_path / "out", mode="append"))
    with pytest.raises(hg.SinkError, match="the file name .* is not UTF-8; rename it"):
        env.execute()


def test_a_partition_whose_folder_readers_would_skip_is_refused(tmp_path: Path) -> None:
    env = hg.StreamEnvironment(parallelism=1)
    hidden = numbers(env).with_columns(_k="n")
    hidden.sink_to(hg.sinks.parquet(tmp_path / "out", partition_by="_k"))
    with pytest.raises(hg.PlanError, match="readers skip folders whose names begin like '_k'"):
        env.execute()
