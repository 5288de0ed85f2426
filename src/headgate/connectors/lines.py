"""Cutting a byte range of a text file into blocks of whole lines.

Nothing here knows CSV: a line ends at a newline, quotes or not, which is what lets a file be split anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: How much is read at once, and about what a block holds.
BLOCK_BYTES = 1 << 20


def line_blocks(
    read: Callable[[int], bytes], start: int, end: int, *, at_line: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Blocks of the whole lines that belong to the byte range, each with its byte offset.

    The range begins after the first newline at or after `start` (at 0: with the first line) and ends with the first
    newline at or after `end`; so ranges that meet share out all lines, wherever they meet. `read(n)` gives the next
    at most n bytes from `start` on, none at the end of the file. Every line comes with a newline, also a last one that
    has none in the file. With `at_line` there is a line at `start` that belongs to the range: an offset that was given.
    """
    offset, held = start, b""
    skipping = start > 0 and not at_line
    while chunk := read(BLOCK_BYTES):
        if skipping:
            skip = chunk.find(b"\n") + 1
            skipping, skip = not skip, skip or len(chunk)
            offset, chunk = offset + skip, chunk[skip:]
            if offset > end:
                return
        held += chunk
        last = held.find(b"\n", max(end - offset, 0)) + 1
        whole = last or held.rfind(b"\n") + 1
        if whole:
            yield offset, held[:whole]
            offset, held = offset + whole, held[whole:]
        if last:
            return
    if held:
        yield offset, held + b"\n"


def first_line(read: Callable[[int], bytes]) -> bytes:
    """The first line with its newline; empty if there is none."""
    return next((block for _, block in line_blocks(read, 0, 0)), b"")
