"""From blocks of whole lines to batches, and finding the lines that are to blame when that fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from headgate.compat import concat_batches

#: What is kept of a reason, characters: Arrow repeats a value that does not fit, however long it is.
_LONGEST_REASON = 500
#: After so many tries to parse a part of a block whoever wants its good lines may do something else.
_TRIES = 64


class BadLine(Exception):
    """A line that cannot be parsed: where it begins in its block (bytes), its text and what is wrong with it."""

    def __init__(self, position: int, line: bytes, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."
        self.text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")


class LineParser(ABC):
    """Parses blocks of whole lines of one file into batches of `schema`."""

    schema: pa.Schema

    def parse(self, lines: bytes) -> pa.RecordBatch:
        """The rows of whole lines. Raises BadLine for the first that does not fit."""
        try:
            return self._parse(lines)
        except pa.ArrowInvalid:
            raise self._first_bad(lines) from None

    def parse_good(self, lines: bytes) -> Iterator[tuple[pa.RecordBatch, list[BadLine]]]:
        """The rows of the lines that fit, and the lines that do not, each in their order; in pieces, none of which
        takes long, however many lines are bad. Halves what does not parse until such lines stand alone."""
        good: list[pa.RecordBatch] = []
        bad: list[BadLine] = []
        tries, parts = 0, [(0, len(lines))]
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
            tries += 1
            if tries % _TRIES == 0 or not parts:
                yield concat_batches(good) if good else pa.RecordBatch.from_pylist([], self.schema), bad
                good, bad = [], []

    @abstractmethod
    def _parse(self, lines: bytes) -> pa.RecordBatch:
        """The rows of whole lines. Raises pa.ArrowInvalid if one of them does not fit."""

    def _reason(self, error: pa.ArrowInvalid) -> str:
        """What is wrong, in the file's terms."""
        return str(error)

    def _first_bad(self, block: bytes) -> BadLine:
        """Bisect for the first line with which the lines up to it do not parse."""
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
        try:
            self._parse(lines)
        except pa.ArrowInvalid as error:
            return self._reason(error)
        return None
