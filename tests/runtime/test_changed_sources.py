"""A job goes on with a source that does not count, or name, as its checkpoint does: refused before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from tests.exactly_once import build, committed, environment, expected, rows
from tests.runtime.jobs import eventually


def job(folder: Path, **options: Any) -> hg.StreamEnvironment:
    return build(environment(folder, hg.LocalDeployment(1, processes=False)), folder, source=rows(**options))


def test_generated_rows_in_other_blocks(tmp_path: Path) -> None:
    job(tmp_path, rate=None, batch_rows=1000).execute()
    with pytest.raises(hg.CheckpointError, match="the checkpoint counts blocks of 1000 rows, not 500; resume with"):
        job(tmp_path, rate=None, batch_rows=500).execute(resume="latest")
    assert job(tmp_path, rate=None, batch_rows=1000).execute(resume="latest").restarts == 0
    assert committed(tmp_path) == expected()


@pytest.mark.parametrize(
    "path", ["{}/in/*.csv", "file://{}/in", "{}/link", "{}/moved"], ids=["glob", "uri", "link", "moved"]
)
def test_a_watched_folder_under_another_name(tmp_path: Path, path: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("n\n1\n2\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")

    def watch(watched: str) -> hg.JobHandle:
        env = environment(tmp_path, hg.LocalDeployment(1, processes=False))
        schema = pa.schema({"n": pa.int64()})
        source = hg.sources.files(watched, format="csv", schema=schema, watch=True, interval="10 ms")
        env.from_source(source).sink_to(hg.sinks.csv(tmp_path / "out"))
        return env.execute_async(resume="latest-if-any")

    first = watch(f"{tmp_path}/in")
    eventually(lambda: list((tmp_path / "out").glob("part-*")), 60)
    first.stop(drain=False)
    if "moved" in path:
        (tmp_path / "in").rename(tmp_path / "moved")
    with pytest.raises(hg.SourceError, match="the job of the checkpoint watched .*/in, and knows files by"):
        watch(path.format(tmp_path)).wait(60)
    assert "".join(file.read_text() for file in (tmp_path / "out").glob("part-*")).split() == ['"n"', "1", "2"]
