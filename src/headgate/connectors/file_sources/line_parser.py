"""Parses blocks of whole lines into batches, and finds the bad lines of a block that does not parse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from headgate.compat import concat_batches

#: The most characters of the reason in an error, because Arrow repeats the whole value that does not fit.
_LONGEST_REASON = 500
#: After this many attempts to parse a part of a block, `parse_good` yields, so that the task can do other work.
_ATTEMPTS = 64


class BadLine(Exception):
    """A line that cannot be parsed: its position in its block in bytes, its text, and the reason."""

    def __init__(self, position: int, line: bytes, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."
        self.text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")


class LineParser(ABC):
    """A parser of blocks of whole lines of one file. It makes batches of `schema`."""

    schema: pa.Schema

    def parse(self, lines: bytes) -> pa.RecordBatch:
        """Return the rows of a block of whole lines. Raises BadLine for the first line that does not parse."""
        try:
            return self._parse(lines)
        except pa.ArrowInvalid:
            raise self._first_bad(lines) from None

    def parse_good(self, lines: bytes) -> Iterator[tuple[pa.RecordBatch, list[BadLine]]]:
        """Yield the rows of the good lines, and the bad lines, both in the order of the block.

        The function halves a part that does not parse until it has found the bad line. Each step takes a bounded time,
        even if many lines are bad.
        """
        good: list[pa.RecordBatch] = []
        bad: list[BadLine] = []
        attempts, parts = 0, [(0, len(lines))]
        while parts:
            start, end = parts.pop()
            try:
                good.append(self._parse(lines[start:end]))
            except pa.ArrowInvalid as error:
                middle = lines.rfind(b"\n", start, (start + end) // 2) + 1 or lines.find(b"\n", start) + 1
                if middle == end:
                    bad.append(BadLine(start, lines[start:end], self._reason(error)))
                else:
                    parts += [(middle, end), (start, middle)]
            attempts += 1
            if attempts % _ATTEMPTS == 0 or not parts:
                yield concat_batches(good) if good else pa.RecordBatch.from_pylist([], self.schema), bad
                good, bad = [], []

    @abstractmethod
    def _parse(self, lines: bytes) -> pa.RecordBatch:
        """Return the rows of a block of whole lines. Raises pa.ArrowInvalid if a line does not parse."""

    def _reason(self, error: pa.ArrowInvalid) -> str:
        """Return the reason of an error in words that fit the file."""
        return str(error)

    def _first_bad(self, block: bytes) -> BadLine:
        """Find the first bad line by bisection."""
        lines = [line + b"\n" for line in block.removesuffix(b"\n").split(b"\n")]
        good, bad = 0, len(lines)
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._why_not(b"".join(lines[good:middle])) is None:
                good = middle
            else:
                bad = middle
        return BadLine(sum(map(len, lines[:good])), lines[good], str(self._why_not(lines[good])))

    def _why_not(self, lines: bytes) -> str | None:
        """Return the reason why lines do not parse, or None if they parse."""
        try:
            self._parse(lines)
        except pa.ArrowInvalid as error:
            return self._reason(error)
        return None
