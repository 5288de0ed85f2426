"""Byte ranges that meet share out all lines, wherever they meet and however the file is read."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.connectors import lines
from headgate.connectors.lines import first_line, line_blocks

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


def test_first_line() -> None:
    assert first_line(io.BytesIO(b"a,b\n1,2\n").read) == b"a,b\n"
    assert first_line(io.BytesIO(b"a,b").read) == b"a,b\n"
    assert first_line(io.BytesIO(b"").read) == b""
