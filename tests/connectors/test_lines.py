"""Adjoining byte ranges together have every line once, wherever they meet and however the file is read."""

from __future__ import annotations

import io
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.connectors.file_sources import lines
from headgate.connectors.file_sources.lines import LongLine, first_line, line_blocks

TEXTS = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r\n", b"dddddddd"]), max_size=12).map(b"".join)


def lines_of(text: bytes, start: int, end: int) -> list[tuple[int, bytes]]:
    file = io.BytesIO(text)
    file.seek(start)
    lines = []
    for offset, block in line_blocks(file.read, start, end):
        assert block.endswith(b"\n")
        for line in block.splitlines(keepends=True):
            lines.append((offset, line))
            offset += len(line)
    return lines


@pytest.fixture(autouse=True, params=[1, 3, 1 << 20])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", request.param)


@example(b"a\nbc\n\ndddddddd\na", [2, 5])
@given(TEXTS, st.lists(st.integers(0, 60), max_size=4))
def test_every_line_belongs_to_one_range(text: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    found = [line for start, end in pairwise(bounds) for line in lines_of(text, start, end)]
    whole = text if text.endswith(b"\n") or not text else text + b"\n"
    assert b"".join(line for _, line in found) == whole
    assert all(whole[offset:].startswith(line) for offset, line in found)


def test_a_range_ends_with_the_line_that_holds_its_last_byte() -> None:
    text = b"aa\nbb\ncc\n"
    assert [lines_of(text, 0, end) for end in (1, 2, 3)] == [
        [(0, b"aa\n")],
        [(0, b"aa\n")],
        [(0, b"aa\n"), (3, b"bb\n")],
    ]
    assert [lines_of(text, start, 9) for start in (2, 3)] == [[(3, b"bb\n"), (6, b"cc\n")], [(6, b"cc\n")]]


LONG = st.lists(st.sampled_from([b"\n", b"a\n", b"bc", b"x" * 25, b"y" * 70 + b"\n"]), max_size=12).map(b"".join)


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(lines, "LONGEST_LINE", max(60, lines.BLOCK_BYTES))
    return lines.LONGEST_LINE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LONG, st.lists(st.integers(0, 400), max_size=4), st.integers(1, 3))
def test_long_lines_are_marked_and_all_others_are_whole(longest: int, text: bytes, cuts: list[int], many: int) -> None:
    """Whether a line is long depends on the line alone, and not on where reading began."""
    text = text.replace(b"x", b"x" * (longest * many // 50))
    bounds = [0, *sorted(cut for cut in cuts if 0 < cut < len(text)), len(text)]
    found = []
    for start, end in pairwise(bounds):
        file = io.BytesIO(text)
        file.seek(start)
        for offset, block in line_blocks(file.read, start, end):
            if isinstance(block, LongLine):
                assert text[offset:].startswith(block)
                assert 0 < len(block) <= 1000
                found.append((offset, None))
                continue
            for line in block.splitlines(keepends=True):
                found.append((offset, line))  # type: ignore[arg-type]
                offset += len(line)
    whole = text if text.endswith(b"\n") or not text else text + b"\n"
    expected, at = [], 0
    for line in whole.splitlines(keepends=True):
        expected.append((at, None if len(line) > longest + 1 else line))
        at += len(line)
    assert found == expected


def test_a_file_without_line_breaks_takes_little_memory() -> None:
    """The reader reads the file once, and frees what it has read."""
    asked = []

    def read(most: int) -> bytes:
        asked.append(most)
        return b"x" * most if len(asked) < 5 * lines.LONGEST_LINE // lines.BLOCK_BYTES else b""

    lines.LONGEST_LINE, before = 8 * lines.BLOCK_BYTES, lines.LONGEST_LINE
    try:
        tracemalloc.start()
        blocks = [(offset, len(block)) for offset, block in line_blocks(read, 0, 1 << 40)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        lines.LONGEST_LINE = before
    assert blocks[0][1] > 0
    assert set(blocks[1:]) == {(0, 0)}
    assert peak < 30 * lines.BLOCK_BYTES + 100_000


def test_first_line_ends_with_its_newline() -> None:
    assert first_line(io.BytesIO(b"a,b\n1,2\n").read) == b"a,b\n"
    assert first_line(io.BytesIO(b"a,b").read) == b"a,b\n"
    assert first_line(io.BytesIO(b"").read) == b""
