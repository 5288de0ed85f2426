"""Files of lines as a source: byte-range splits, read in blocks of whole lines; bad lines fail the job or go aside."""

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
#: The tag of the side output for bad lines, and its columns; `offset` is in bytes of the decompressed text, `line`
#: counts from 1.
BAD = "bad"
BAD_LINES = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
    ]
)
#: A file with more columns is refused: each takes some 10 KiB of every block that is parsed.
MOST_COLUMNS = 16_384
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_LONGEST_SHOWN = 200
_MOST_ROWS = 65_536
_NO_END = 1 << 62

TakeBad = Callable[[pa.RecordBatch], None]
Place: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A split: the lines of `file` from `start` to `end` (bytes), as `line_blocks` deals them."""

    file: DataFile
    start: int
    end: int


class LineSource(Source):
    """Base of the sources that read files of lines; a subclass says how lines are parsed, and sets `schema`."""

    sides = MappingProxyType({BAD: BAD_LINES})
    #: What to do about a bad line, in its error.
    remedy: str

    def __init__(self, paths: Paths, split_size: int | str) -> None:
        self._paths = absolute_all(paths)
        self._split_size = check_split_size(split_size)
        self._splits: list[ByteRange] = []

    def prepare(self) -> None:
        """List the files and cut them into splits. Raises SourceError."""
        self._splits = [split for file in expand(self._paths) for split in _cut(file, self._split_size)]

    def prepared(self) -> Any:
        """The files, and how they are cut."""
        return {"files": known_by(split.file for split in self._splits), "split_size": self._split_size}

    def restore(self, prepared: Any) -> None:
        """Raises SourceError for a file that is gone or was changed."""
        self._split_size, known = prepared_files(prepared)
        files = expand_again(self._paths, known)
        self._splits = [split for file in files for split in _cut(file, self._split_size)]

    @property
    def place(self) -> shapes.Shape:
        """What a place looks like in a checkpoint."""
        return shapes.row(shapes.count, shapes.count, shapes.count)

    def check_position(self, position: Any) -> None:
        """Raises ValueError."""
        share_shape(self.place)(position, "the position")

    def files(self) -> list[DataFile]:
        """What a job that starts now reads."""
        return expand(self._paths)

    def reader(self, context: ReaderContext) -> SourceReader:
        """Reads this subtask's splits. Bad lines go to the side output where that is read."""
        bad = context.sides.get(BAD)
        return SplitReader(self._splits, lambda split, place: self.batches(split, place, bad), context)

    def batches(
        self, split: ByteRange, place: Place | None, bad: TakeBad | None
    ) -> Iterator[tuple[pa.RecordBatch, Place]]:
        """The split's rows from a place on, some 1 MiB of text or 65,536 rows at a time; none where there are only bad
        lines. Raises SourceError for the first bad line, if nobody takes them.

        A place is the offset of a block, and how many rows and bad lines from there on were given.
        """
        parser = self.parser(split.file)
        numbers = LineNumbers(split.file)
        start, rows_given, bad_given = place or (None, 0, 0)
        rows, aside = _RowSkipper(rows_given), _RowSkipper(bad_given)
        for offset, lines in self.blocks(split, start):
            if not lines:  # within a long line, or before the place
                yield self._no_rows(), (offset, rows.given, aside.given)
                continue
            rows.end_block()
            aside.end_block()
            if isinstance(lines, LongLine):
                take = None if bad is None else _rest_to(bad, aside)
                pieces = self._passed_over(split.file, offset, lines, numbers, take)
            elif bad is None:
                pieces = _slices(self._parsed(parser, lines, split.file, offset))
            else:
                pieces = self._sorted(
                    parser, split.file, offset=offset, lines=lines, numbers=numbers, bad=_rest_to(bad, aside)
                )
            for batch in pieces:
                rest = rows.take_rest(batch)
                yield rest, (offset, rows.given, aside.given)

    def _passed_over(
        self, file: DataFile, offset: int, beginning: LongLine, numbers: LineNumbers, bad: TakeBad | None
    ) -> Iterator[pa.RecordBatch]:
        """No rows; the line goes to `bad`. Raises SourceError if nobody takes it."""
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
        """A block's good rows; its bad lines go to `bad`."""
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
        """The rows of one file from a place on."""
        return self.batches(ByteRange(file, 0, _NO_END), place, bad)

    def blocks(self, split: ByteRange, start: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The split's lines, each block with its offset, without what stands before the first row; from the block on
        that was at `start`. The first ones may be empty, to let whoever reads do something else."""
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
        """What parses this file's lines. Raises SourceError."""

    def header_bytes(self, lines: bytes) -> int:
        """How much of a file's first lines comes before its rows: a byte order mark."""
        return len(BOM) * lines.startswith(BOM)

    def first_block(self, file: DataFile) -> bytes:
        """Some lines to guess the types from. Raises SourceError if there are none."""
        for offset, lines in self.blocks(ByteRange(file, 0, BLOCK_BYTES)):
            if isinstance(lines, LongLine):
                raise SourceError(f"{file.path}: the line at byte {offset} is longer than {LONGEST_LINE} bytes")
            return lines
        raise SourceError(f"{file.path}: has no rows to guess the types from; give schema=")

    def first_file(self) -> DataFile:
        """The first file with anything in it. Raises SourceError if there is none."""
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
    """The numbers of lines in a file that is read from some block on. Lines before the first block are counted only
    when one is asked for."""

    def __init__(self, file: DataFile) -> None:
        self._file = file
        self._first: int | None = None
        self._before_first: int | None = None
        #: Line breaks from the first block on up to a place in the current one.
        self._passed = 0
        self._at = 0

    def count_before(self, offset: int) -> Iterator[None]:
        """To be exhausted before the first line of the block at `offset` is asked for; a step reads up to 1 MiB."""
        if self._before_first is None:
            count = 0
            for breaks in _line_breaks(self._file, offset if self._first is None else self._first):
                count += breaks
                yield
            self._before_first = count

    def advance_to(self, lines: bytes, position: int) -> int:
        """The number of the line that begins at `position` of the current block, where lines are asked for in order."""
        assert self._before_first is not None  # it was counted
        self._passed += lines.count(b"\n", self._at, position)
        self._at = position
        return self._before_first + self._passed + 1

    def skip_block(self, offset: int, lines: bytes) -> None:
        """The current block, which is at `offset`, is done with."""
        self._first = offset if self._first is None else self._first
        self._passed += lines.count(b"\n", self._at)
        self._at = 0


class _RowSkipper:
    """Counts what is given (rows, or bad lines) from a block's beginning on. When reading goes on from a place, so many
    were given before; a block may have fewer, since where it ends depends on where reading began."""

    def __init__(self, given: int) -> None:
        self.given = given
        self._seen = 0

    def take_rest(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The next of the block, without what was given before."""
        rest = batch.slice(max(self.given - self._seen, 0))
        self._seen += batch.num_rows
        self.given = max(self.given, self._seen)
        return rest

    def end_block(self) -> None:
        self.given -= self._seen
        self._seen = 0


def _rest_to(bad: TakeBad, given: _RowSkipper) -> TakeBad:
    """Gives `bad` what was not given before."""

    def take(batch: pa.RecordBatch) -> None:
        rest = given.take_rest(batch)
        if rest.num_rows:
            bad(rest)

    return take


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """At least one, if only to let whoever reads do something else."""
    for start in range(0, max(1, batch.num_rows), _MOST_ROWS):
        yield batch.slice(start, _MOST_ROWS)


def _aside(file: DataFile, offset: int, bad: list[BadLine], numbers: list[int]) -> pa.RecordBatch:
    """Bad lines of a block as rows of `BAD_LINES`."""
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
    """Line breaks in the first `end` bytes of a file's text, block by block."""
    with open_text(file, 0) as read:
        for chunk in _chunks(read, end):
            yield chunk.count(b"\n")


def _chunks(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """The next `size` bytes, up to 1 MiB at a time."""
    while size and (chunk := read(min(size, BLOCK_BYTES))):
        yield chunk
        size -= len(chunk)


def _cut(file: DataFile, split_size: int) -> list[ByteRange]:
    """Byte ranges of `split_size`; a compressed file cannot be entered in the middle and is one."""
    if file.path.endswith(_COMPRESSED):
        return [ByteRange(file, 0, _NO_END)]
    if file.size > MOST_SPLITS * split_size:
        raise SourceError(
            f"{file.path}: has {file.size} bytes, and split_size={split_size} makes more than {MOST_SPLITS} splits of "
            "them; give a larger one"
        )
    return [ByteRange(file, at, min(at + split_size, file.size)) for at in range(0, file.size, split_size)]


@contextmanager
def open_text(file: DataFile, start: int) -> Iterator[Callable[[int], bytes]]:
    """Gives a `read(n)` of the file's text from byte `start` on, and no further than the size it had at first; of a
    compressed file's text from its beginning on."""
    with reading(file.path):
        if file.path.endswith(_COMPRESSED):
            with file.filesystem.open_input_stream(file.path) as stream:
                yield stream.read
            return
        if start > file.size:
            said = f"has {file.size} bytes, and {start} of them were read, the checkpoint says"
            raise SourceError(f"{file.path}: {said}; start from another checkpoint")
        with file.filesystem.open_input_file(file.path) as stream:
            stream.seek(start)

            def read(most: int) -> bytes:
                wanted = min(most, file.size - stream.tell())
                data: bytes = stream.read(wanted)
                if wanted and not data:
                    raise SourceError(f"{file.path}: became shorter while the job ran; run it again on files at rest")
                return data

            yield read
