"""Cutting a byte range of a text file into blocks of whole lines.

Nothing here knows CSV: a line ends at a newline, quotes or not, which is what lets a file be split anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: How much is read at once, and about what a block holds.
BLOCK_BYTES = 1 << 20
#: A line of more bytes is a bad line: what has no line breaks is no text, and memory is bounded. At least BLOCK_BYTES.
LONGEST_LINE = 64 << 20
#: What is kept of such a line, bytes.
_KEPT_OF_LONG = 1000


class LongLine(bytes):
    """In place of a block: the beginning of a line that is longer than LONGEST_LINE."""


def line_blocks(
    read: Callable[[int], bytes], start: int, end: int, *, at_line: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Blocks of the whole lines that belong to the byte range, each with its byte offset.

    The range begins after the first newline at or after `start` (at 0: with the first line) and ends with the first
    newline at or after `end`; so ranges that meet share out all lines, wherever they meet. `read(n)` gives the next
    at most n bytes from `start` on, none at the end of the file. Every line comes with a newline, also a last one that
    has none in the file. With `at_line` there is a line at `start` that belongs to the range: an offset that was given.

    A line that is too long is a LongLine. Its rest is passed over: each step gives an empty block at its offset.
    """
    offset, rest = start, b""
    held: list[bytes] = []  # of the line at `offset`, which has not ended
    length = 0
    skipping, long_line = start > 0 and not at_line, -1
    while chunk := rest or read(BLOCK_BYTES):
        rest = b""
        if skipping:
            skip = chunk.find(b"\n") + 1
            skipping, skip = not skip, skip or len(chunk)
            offset, chunk = offset + skip, chunk[skip:]
            if offset > end:
                return
            if skipping and long_line >= 0:
                yield long_line, b""
        newline = chunk.find(b"\n")
        if length + (len(chunk) if newline < 0 else newline) > LONGEST_LINE:
            yield offset, LongLine(b"".join([*held, chunk])[:_KEPT_OF_LONG])
            skipping, long_line = True, offset
            offset, rest, held, length = offset + length, chunk, [], 0
            continue
        last = chunk.find(b"\n", max(end - offset - length, 0)) + 1
        whole = last or chunk.rfind(b"\n") + 1
        if whole:
            yield offset, b"".join([*held, chunk[:whole]])
            offset, held, chunk, length = offset + length + whole, [], chunk[whole:], 0
        if last:
            return
        held.append(chunk)
        length += len(chunk)
    if length:
        yield offset, b"".join([*held, b"\n"])


def first_line(read: Callable[[int], bytes]) -> bytes:
    """The first line with its newline; empty if there is none, a LongLine if it is too long."""
    return next((block for _, block in line_blocks(read, 0, 0)), b"")
