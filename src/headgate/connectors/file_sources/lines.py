"""Cutting a byte range of a text file into blocks of whole lines.

A line ends at every newline, also at one in quotes. So a file can be split at any byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: The most bytes of one read, and about the size of a block.
BLOCK_BYTES = 1 << 20
#: A line of more bytes is a bad line: such a file is hardly text, and memory must stay bounded. At least BLOCK_BYTES.
LONGEST_LINE = 64 << 20
#: The bytes that are kept of such a line.
_KEPT_OF_LONG = 1000


class LongLine(bytes):
    """The beginning of a line that is longer than LONGEST_LINE, in place of a block."""


def line_blocks(
    read: Callable[[int], bytes], start: int, end: int, *, at_line: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of the whole lines that belong to a byte range, each with its byte offset.

    The range begins after the first newline at or after `start` (at 0: with the first line). It ends with the first
    newline at or after `end`. So each line of a file belongs to exactly one of adjoining ranges, wherever they meet.
    With `at_line` the range begins at `start` itself, which must be the offset of an earlier block.

    `read(n)` returns at most the next n bytes from `start` on, and none at the end of the file. Every line comes with a
    newline, also the last line of a file without one. A line that is too long comes as a LongLine. The function skips
    the rest of it, and yields an empty block at its offset for each read.
    """
    offset, rest = start, b""
    held: list[bytes] = []  # what was read of the line at `offset`, whose end was not
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
    """Return the first line with its newline; empty if there is none, a LongLine if it is too long."""
    return next((block for _, block in line_blocks(read, 0, 0)), b"")
