"""The source of lines of text."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg

Read = Callable[..., list[pa.Table]]


def test_every_line_is_a_row(tmp_path: Path, read_source: Read) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\n  two \xc3\xa9\r\r\nlast")
    assert read_source(hg.sources.text(tmp_path))[0].to_pydict() == {"value": ["one", "", "  two é\r", "last"]}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_splits_of_every_size_give_the_same_lines(tmp_path: Path, read_source: Read, parallelism: int) -> None:
    lines = [f"line {number}" * (number % 4) for number in range(30)]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines) + "\n")
    for split_size in range(1, 60):
        parts = read_source(hg.sources.text(path, split_size=split_size), parallelism)
        assert sorted(pa.concat_tables(parts)["value"].to_pylist()) == sorted(lines), split_size


def test_compressed_and_empty_files_are_read(tmp_path: Path, read_source: Read) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\nb\n"))
    (tmp_path / "b.txt").touch()
    assert read_source(hg.sources.text(tmp_path, split_size=1), 2)[0].to_pydict() == {"value": ["a", "b"]}


def test_a_line_that_is_not_utf8_is_a_bad_line(tmp_path: Path, read_source: Read) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(hg.SourceError, match=r"bad line at byte 5: it is not UTF-8: .*convert the file"):
        read_source(hg.sources.text(path))
