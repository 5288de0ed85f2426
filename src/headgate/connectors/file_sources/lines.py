"""Cuts a byte range of a text file into blocks of whole lines.

A line ends at every newline, even at a newline in quotes. A file can therefore be split at any byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: The most bytes of one read, and about the size of a block.
BLOCK_BYTES = 1 << 20
#: A line of more bytes is a bad line, because memory must stay bounded. It must be at least BLOCK_BYTES.
LONGEST_LINE = 64 << 20
#: How many bytes of a longer line are kept.
_KEPT_OF_LONG = 1000


class LongLine(bytes):
    """The beginning of a line that is longer than LONGEST_LINE. It takes the place of a block."""


def line_blocks(
    read: Callable[[int], bytes], start: int, end: int, *, at_line: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield the whole lines that belong to a byte range, in blocks. Each block comes with its byte offset.

    The first line begins after the first newline at or after `start`. If `start` is 0, it is the first line of the
    file. The last line ends with the first newline at or after `end`. If several ranges cover a file, each line
    therefore belongs to exactly one range. With `at_line`, the first line begins at `start` itself, which must be the
    offset of an earlier block.

    `read(n)` returns at most the next n bytes from `start` on, and no bytes at the end of the file. Every line ends
    with a newline: if the last line of a file has none, the function adds it. A line that is too long comes as a
    LongLine. The function then reads on to the end of this line, and discards what it reads. After each of these reads
    it yields an empty block with the offset of the long line.
    """
    offset, rest = start, b""
    held: list[bytes] = []  # the parts of the line at `offset` whose end is not read yet
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
    """Return the first line of a file with its newline, or b"" if the file is empty.

    `read(n)` returns at most the next n bytes, from the start of the file. If the line has more than LONGEST_LINE
    bytes, the result is its beginning, as a `LongLine`.
    """
    return next((block for _, block in line_blocks(read, 0, 0)), b"")
