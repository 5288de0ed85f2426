"""Expansion of paths, globs and folders to lists of files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate import filesystems
from headgate.connectors.file_sources.paths import absolute_all, expand
from headgate.filesystems import absolute


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["a.csv", "b.csv", "c.txt", "_part.csv", ".x.csv", "odd[1].csv", "d/e.csv", "d/f/g.csv", "_h/i.csv"]:
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)


def names(*paths: str | Path) -> list[str]:
    root = os.path.join(os.getcwd(), "in")
    return [os.path.relpath(file.path, root) for file in expand(absolute_all(list(paths)))]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["in/a.csv"], ["a.csv"]),
        (["in/*.csv"], ["a.csv", "b.csv", "odd[1].csv"]),
        (["in/[bc].*"], ["b.csv", "c.txt"]),
        (["in/?.csv"], ["a.csv", "b.csv"]),
        (["in/odd[1].csv"], ["odd[1].csv"]),
        (["in/*/*.csv"], ["d/e.csv"]),
        (["in/*/f/g.csv"], ["d/f/g.csv"]),
        (["in/**/*.csv"], ["a.csv", "b.csv", "d/e.csv", "d/f/g.csv", "odd[1].csv"]),
        (["in/**/f/*"], ["d/f/g.csv"]),
        (["in/d/f"], ["d/f/g.csv"]),
        (["in/_part.csv", "in/_h/*"], ["_h/i.csv", "_part.csv"]),
        (["in/b.csv", "in/[ab].csv"], ["a.csv", "b.csv"]),
    ],
)
def test_paths_expand_to_files(paths: list[str], expected: list[str]) -> None:
    assert names(*paths) == expected


@pytest.mark.timeout(60)
def test_links_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    """Two links to their own folder make 2^40 paths."""
    for name, target in (
        ("x", "."),
        ("y", "."),
        ("z", ".."),
        ("twice", tmp_path / "out"),
        ("twice too", tmp_path / "out"),
    ):
        (tmp_path / "in" / "d" / name).symlink_to(target)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "far.csv").write_text("far")
    (tmp_path / "out" / "back").symlink_to(tmp_path / "in")
    found = [os.path.relpath(file.path, tmp_path) for file in expand(absolute_all("in/**/far.csv"))]
    assert found == ["in/d/twice/far.csv"]


def test_a_uri_expands_to_files_with_sizes(tmp_path: Path) -> None:
    (file,) = expand(absolute_all(f"file://{tmp_path}/in/?.txt"))
    assert (file.path, file.size) == (f"{tmp_path}/in/c.txt", 5)


@pytest.mark.parametrize("path", ["in/none.csv", "in/*.parquet", "nowhere/*", "nowhere", "in/a.csv/*"])
def test_a_path_without_a_file_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(hg.SourceError) as caught:
        names(path)
    assert str(caught.value).startswith(f"{tmp_path}/{path}: ")


def test_a_folder_with_subfolders_is_refused() -> None:
    with pytest.raises(hg.SourceError, match=r"in: has subfolders \(.*/in/d\); give a glob, for example .*/in/\*\*/\*"):
        names("in")


def test_relative_paths_start_at_the_drivers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = hg.sources.csv("in/a.csv", schema=pa.schema({"a": pa.int64()}))
    monkeypatch.chdir(tmp_path / "in")
    source.prepare()
    assert absolute("x") == str(tmp_path / "in" / "x")
    assert absolute("hdfs://name/x") == "hdfs://name/x"


def test_impossible_paths_are_refused() -> None:
    with pytest.raises(hg.ConfigError, match="list of paths is empty"):
        hg.sources.csv([])
    with pytest.raises(hg.ConfigError, match="'' is not a path"):
        hg.sources.csv("")
    with pytest.raises(hg.SourceError, match="ftp://x/y: cannot be read: .*Unrecognized filesystem"):
        hg.sources.csv("ftp://x/y")


def test_a_cloud_that_does_not_answer_fails_the_source_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow._gcsfs")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        monkeypatch.setenv("CLOUD_STORAGE_EMULATOR_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
    monkeypatch.setattr(filesystems, "_GCS_PATIENCE", 1)
    with pytest.raises(hg.SourceError, match="gs://anonymous@bucket/x: cannot be read: .*Retry policy exhausted"):
        hg.sources.parquet("gs://anonymous@bucket/x")


def test_hadoop_s_names_are_refused_with_the_right_one() -> None:
    with pytest.raises(hg.SourceError, match="s3a://bucket/x: cannot be read: s3a:// is a name of Hadoop; write s3://"):
        hg.sources.parquet("s3a://bucket/x")
    env = hg.StreamEnvironment(config=hg.Config(checkpoint_dir="s3a://bucket/x"))
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.null())
    with pytest.raises(hg.CheckpointError, match="s3a:// is a name of Hadoop; write s3://"):
        env.execute()
