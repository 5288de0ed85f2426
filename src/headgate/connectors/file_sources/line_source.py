"""The base class of the sources that read files of lines.

A split is a byte range. The source reads it in blocks of whole lines. A bad line fails the job or goes to a side
output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.line_parser import BadLine, LineParser
from headgate.connectors.file_sources.lines import BLOCK_BYTES, LONGEST_LINE, LongLine, line_blocks
from headgate.connectors.file_sources.paths import Paths, absolute_all, expand, expand_again, known_by, reading
from headgate.connectors.file_sources.splits import MOST_SPLITS, SplitReader, check_split_size, prepared_files
from headgate.connectors.share import share_shape
from headgate.errors import SourceError
from headgate.state import shapes

BOM = b"\xef\xbb\xbf"
#: The tag of the side output for bad lines.
BAD = "bad"
#: The columns of this side output. `offset` is in bytes of the decompressed text; `line` counts from 1.
BAD_LINES = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
    ]
)
#: The most columns of a file, because each column needs about 10 KiB for every block that is parsed.
MOST_COLUMNS = 16_384
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
#: The most characters of a bad line that an error shows.
_LONGEST_SHOWN = 200
#: The most rows of a batch.
_MOST_ROWS = 65_536
#: The `end` of a split that is a whole file.
_NO_END = 1 << 62

#: A function that takes bad lines, as rows of `BAD_LINES`.
TakeBad = Callable[[pa.RecordBatch], None]
#: A place in a split: the offset of a block, and how many rows and bad lines from this offset on were emitted.
Place: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A split: the lines of `file` that `line_blocks` assigns to the bytes from `start` to `end`."""

    file: DataFile
    start: int
    end: int


class LineSource(Source):
    """The base class of the sources that read files of lines. A subclass implements `parser`, and sets `schema`."""

    sides = MappingProxyType({BAD: BAD_LINES})
    #: The advice to the user in the error about a bad line.
    remedy: str

    def __init__(self, paths: Paths, split_size: int | str) -> None:
        self._paths = absolute_all(paths)
        self._split_size = check_split_size(split_size)
        self._splits: list[ByteRange] = []

    def prepare(self) -> None:
        """List the files and cut them into splits. Raises SourceError."""
        self._splits = [split for file in expand(self._paths) for split in _cut(file, self._split_size)]

    def prepared(self) -> Any:
        """Return the files and the split size."""
        return {"files": known_by(split.file for split in self._splits), "split_size": self._split_size}

    def restore(self, prepared: Any) -> None:
        """Cut the files of the checkpoint's job into the same splits. Raises SourceError for a file that is gone or has
        changed."""
        self._split_size, known = prepared_files(prepared)
        files = expand_again(self._paths, known)
        self._splits = [split for file in files for split in _cut(file, self._split_size)]

    @property
    def place(self) -> shapes.Shape:
        """The shape of a `Place` in a checkpoint."""
        return shapes.row(shapes.count, shapes.count, shapes.count)

    def check_position(self, position: Any) -> None:
        """Raise ValueError if no reader of numbered splits can return `position`."""
        share_shape(self.place)(position, "the position")

    def files(self) -> list[DataFile]:
        """List the files that a job would read if it started now."""
        return expand(self._paths)

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's splits. Bad lines go to the side output if the job reads this side
        output."""
        bad = context.sides.get(BAD)
        return SplitReader(self._splits, lambda split, place: self.batches(split, place, bad), context)

    def batches(
        self, split: ByteRange, place: Place | None, bad: TakeBad | None
    ) -> Iterator[tuple[pa.RecordBatch, Place]]:
        """Yield the rows of a split from a place on (None: its start). Each batch comes with the place after it.

        A batch has the rows of about 1 MiB of text, at most 65,536 rows. Empty batches let the task do other work while
        the source passes text without new rows. Bad lines go to `bad`. Without `bad`, the first bad line raises
        SourceError.
        """
        parser = self.parser(split.file)
        numbers = LineNumbers(split.file)
        start, rows_given, bad_given = place or (None, 0, 0)
        rows, aside = _RowSkipper(rows_given), _RowSkipper(bad_given)
        for offset, lines in self.blocks(split, start):
            if not lines:  # the text is within a long line, or before the place
                yield self._no_rows(), (offset, rows.given, aside.given)
                continue
            rows.end_block()
            aside.end_block()
            if isinstance(lines, LongLine):
                take = None if bad is None else _rest_to(bad, aside)
                pieces = self._skip_long_line(split.file, offset, lines, numbers, take)
            elif bad is None:
                pieces = _slices(self._parsed(parser, lines, split.file, offset))
            else:
                pieces = self._sorted(
                    parser, split.file, offset=offset, lines=lines, numbers=numbers, bad=_rest_to(bad, aside)
                )
            for batch in pieces:
                rest = rows.take_rest(batch)
                yield rest, (offset, rows.given, aside.given)

    def _skip_long_line(
        self, file: DataFile, offset: int, beginning: LongLine, numbers: LineNumbers, bad: TakeBad | None
    ) -> Iterator[pa.RecordBatch]:
        """Pass a line that is longer than LONGEST_LINE to `bad`, and yield empty batches. Raises SourceError without
        `bad`."""
        line = BadLine(0, beginning, f"it is longer than {LONGEST_LINE} bytes")
        if bad is None:
            raise self._refused(file, offset, line)
        for _ in numbers.count_before(offset):
            yield self._no_rows()
        bad(_aside(file, offset, [line], [numbers.advance_to(b"", 0)]))
        numbers.skip_block(offset, b"\n")
        yield self._no_rows()

    def _no_rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], self.schema)

    def _sorted(
        self, parser: LineParser, file: DataFile, *, offset: int, lines: bytes, numbers: LineNumbers, bad: TakeBad
    ) -> Iterator[pa.RecordBatch]:
        """Yield the good rows of a block, and pass its bad lines to `bad`."""
        for batch, bad_lines in parser.parse_good(lines):
            if bad_lines:
                for _ in numbers.count_before(offset):
                    yield batch.slice(0, 0)
                bad(_aside(file, offset, bad_lines, [numbers.advance_to(lines, line.position) for line in bad_lines]))
            yield from _slices(batch)
        numbers.skip_block(offset, lines)

    def read_file(
        self, file: DataFile, place: Place | None, bad: TakeBad | None
    ) -> Iterator[tuple[pa.RecordBatch, Place]]:
        """Yield the rows of one file from a place on; see `batches`."""
        return self.batches(ByteRange(file, 0, _NO_END), place, bad)

    def blocks(self, split: ByteRange, start: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a split in blocks, each with its offset. The text before the first row of a file is left
        out.

        With `start`, the first block is the block at this offset. Empty blocks let the task do other work while the
        source decompresses the text before `start`, or skips a long line.
        """
        at = split.start if start is None else start
        with open_text(split.file, at) as read:
            if split.file.path.endswith(_COMPRESSED):
                yield from ((at, b"") for _ in _chunks(read, at))
            for offset, lines in line_blocks(read, at, split.end, at_line=start is not None):
                skip = self.header_bytes(lines) if offset == 0 else 0
                if isinstance(lines, LongLine):
                    yield offset, lines
                elif not lines or skip < len(lines):
                    yield offset + skip, lines[skip:]

    @abstractmethod
    def parser(self, file: DataFile) -> LineParser:
        """Return the parser of this file's lines. Raises SourceError for an unsuitable file."""

    def header_bytes(self, lines: bytes) -> int:
        """Return how many bytes of a file's first lines come before its rows. By default this is the byte order
        mark."""
        return len(BOM) * lines.startswith(BOM)

    def first_block(self, file: DataFile) -> bytes:
        """Return the first lines of the file, for guessing the types. Raises SourceError if the file has no lines."""
        for offset, lines in self.blocks(ByteRange(file, 0, BLOCK_BYTES)):
            if isinstance(lines, LongLine):
                raise SourceError(f"{file.path}: the line at byte {offset} is longer than {LONGEST_LINE} bytes")
            return lines
        raise SourceError(f"{file.path}: has no rows to guess the types from; give schema=")

    def first_file(self) -> DataFile:
        """Return the first file that is not empty. Raises SourceError if all files are empty."""
        file = next((file for file in expand(self._paths) if file.size), None)
        if file is None:
            raise SourceError(f"{', '.join(self._paths)}: all files are empty, so the types are unknown; give schema=")
        return file

    def _parsed(self, parser: LineParser, lines: bytes, file: DataFile, offset: int) -> pa.RecordBatch:
        try:
            return parser.parse(lines)
        except BadLine as bad:
            raise self._refused(file, offset, bad) from None

    def _refused(self, file: DataFile, offset: int, bad: BadLine) -> SourceError:
        text = bad.text if len(bad.text) <= _LONGEST_SHOWN else bad.text[:_LONGEST_SHOWN] + "..."
        return SourceError(
            f"{file.path}: bad line at byte {offset + bad.position}: {bad.reason}. The line is: {text!r}. "
            f"Correct it, {self.remedy}, or read such lines with side_output({BAD!r})"
        )


class LineNumbers:
    """A counter of line numbers in a file. The first block that it gets may be in the middle of the file.

    It counts the lines before this block only if the caller needs the number of a line.
    """

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._first: int | None = None
        self._before_first: int | None = None
        #: The number of line breaks from the first block to `_at`.
        self._passed = 0
        #: A position in the current block.
        self._at = 0

    def count_before(self, offset: int) -> Iterator[None]:
        """Count the lines before the first block. Exhaust this generator before `advance_to`. A step reads up to 1 MiB.

        `offset` is the offset of the current block.
        """
        if self._before_first is None:
            count = 0
            for breaks in _line_breaks(self._file, offset if self._first is None else self._first):
                count += breaks
                yield
            self._before_first = count

    def advance_to(self, lines: bytes, position: int) -> int:
        """Return the number of the line that begins at `position` of the current block. Positions must ascend."""
        assert self._before_first is not None, (
            f"{self._file.path}: the line at position {position} needs count_before first"
        )
        self._passed += lines.count(b"\n", self._at, position)
        self._at = position
        return self._before_first + self._passed + 1

    def skip_block(self, offset: int, lines: bytes) -> None:
        """Count the rest of the current block, which begins at `offset`, and leave this block."""
        self._first = offset if self._first is None else self._first
        self._passed += lines.count(b"\n", self._at)
        self._at = 0


class _RowSkipper:
    """A counter of the rows, or the bad lines, that were emitted since the beginning of a block. `given` is the count.

    A reader that resumes skips the first `given` rows, because they were emitted before the restart. These rows may
    span several blocks: the end of a block depends on the place where reading began.
    """

    def __init__(self, given: int) -> None:
        self.given = given
        self._seen = 0

    def take_rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the next rows of the block, without the rows that were emitted before the restart."""
        rest = batch.slice(max(self.given - self._seen, 0))
        self._seen += batch.num_rows
        self.given = max(self.given, self._seen)
        return rest

    def end_block(self) -> None:
        """Start to count again, from the beginning of the next block."""
        self.given -= self._seen
        self._seen = 0


def _rest_to(bad: TakeBad, given: _RowSkipper) -> TakeBad:
    """Return a function that passes bad lines to `bad`, without the lines that were emitted before the restart."""

    def take(batch: pa.RecordBatch) -> None:
        rest = given.take_rest(batch)
        if rest.num_rows:
            bad(rest)

    return take


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices of at most `_MOST_ROWS` rows. Yields at least once, so that the task can do other
    work."""
    for start in range(0, max(1, batch.num_rows), _MOST_ROWS):
        yield batch.slice(start, _MOST_ROWS)


def _aside(file: DataFile, offset: int, bad: list[BadLine], numbers: list[int]) -> pa.RecordBatch:
    """Return bad lines of the block at `offset` as rows of `BAD_LINES`. `numbers` are their line numbers."""
    columns = [
        [file.path] * len(bad),
        [offset + line.position for line in bad],
        numbers,
        [line.text for line in bad],
        [line.reason for line in bad],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, BAD_LINES, strict=True)], schema=BAD_LINES
    )


def _line_breaks(file: DataFile, end: int) -> Iterator[int]:
    """Yield the number of line breaks in each block of the first `end` bytes of a file's text."""
    with open_text(file, 0) as read:
        for chunk in _chunks(read, end):
            yield chunk.count(b"\n")


def _chunks(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes, up to 1 MiB at a time."""
    while size and (chunk := read(min(size, BLOCK_BYTES))):
        yield chunk
        size -= len(chunk)


def _cut(file: DataFile, split_size: int) -> list[ByteRange]:
    """Cut a file into byte ranges of `split_size`. A compressed file is one range: it can only be read from its
    beginning."""
    if file.path.endswith(_COMPRESSED):
        return [ByteRange(file, 0, _NO_END)]
    if file.size > MOST_SPLITS * split_size:
        raise SourceError(
            f"{file.path}: has {file.size} bytes, and split_size={split_size} makes more than {MOST_SPLITS} splits; "
            "give a larger split_size"
        )
    return [ByteRange(file, at, min(at + split_size, file.size)) for at in range(0, file.size, split_size)]


@contextmanager
def open_text(file: DataFile, start: int) -> Iterator[Callable[[int], bytes]]:
    """Open a file, and yield a function `read(n)` that returns the next bytes of its text, at most `n`.

    `read` begins at byte `start`, and ends at the size that the file had when the source found it. In a compressed
    file, `read` ignores `start`: it begins at the first byte of the text, and ends at the last one. Raises SourceError
    if the file is shorter than `start`, or becomes shorter.
    """
    with reading(file.path):
        if file.path.endswith(_COMPRESSED):
            with file.filesystem.open_input_stream(file.path) as stream:
                yield stream.read
            return
        if start > file.size:
            raise SourceError(
                f"{file.path}: has {file.size} bytes, and the checkpoint says that {start} of them were read; "
                "start from another checkpoint"
            )
        with file.filesystem.open_input_file(file.path) as stream:
            stream.seek(start)

            def read(most: int) -> bytes:
                wanted = min(most, file.size - stream.tell())
                data: bytes = stream.read(wanted)
                if wanted and not data:
                    raise SourceError(
                        f"{file.path}: became shorter while the job ran, to {stream.tell()} bytes from "
                        f"{file.size}; run the job again on files that do not change"
                    )
                return data

            yield read
