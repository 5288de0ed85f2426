"""`Snapshot`: the state of one operator, source reader or sink writer, as a checkpoint holds it: tables and values.

The encoded snapshots of a task begin with a head: magic, version, and CRC-32 of all bytes after the head. Then come the
length of an index, the index in JSON, and an Arrow IPC stream for each table. The index holds the values, and where
each table lies. Nothing is pickled.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import CheckpointError, HeadgateError, UnusableState, printable
from headgate.state import shapes

#: The first column (int32) of every table of keyed state: the key group of each row. A restored subtask gets the rows
#: of its own key groups, at any parallelism.
KEY_GROUP = "key_group"

#: The most files that an error names, and the most characters of another error that it quotes.
_MOST_NAMED = 3
_LONGEST_QUOTE = 500

#: How many rows of a table a thread computes at once. The number is small, so that other threads do not wait long.
_PIECE = 1 << 15

#: Magic, version, CRC-32 of all bytes after the head.
_HEAD = struct.Struct("<4sII")
#: The length of the index, in bytes.
_LENGTH = struct.Struct("<Q")
_PLACE = shapes.row(shapes.count, shapes.count)
_INDEX = shapes.mapping(shapes.fields({"values": shapes.mapping(shapes.plain), "tables": shapes.mapping(_PLACE)}))
_OF = shapes.mapping(shapes.plain)
_MAGIC = b"HGSS"
_VERSION = 1


class LazyTables(Mapping[str, pa.Table]):
    """Tables that are computed when a caller first reads them, on the caller's thread.

    `makers` has, by table name, the function that computes the table. Each function reads only a copy of the state,
    which does not change.
    """

    def __init__(self, makers: Mapping[str, Callable[[], pa.Table]]) -> None:
        self._makers = makers
        self._made: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def in_pieces(rows: int, some: Callable[[slice], pa.Table]) -> pa.Table:
    """Return a table of `rows` rows, computed piece by piece: `some` returns the rows of a slice."""
    begins = range(0, max(rows, 1), _PIECE)
    return pa.concat_tables([some(slice(begin, min(begin + _PIECE, rows))) for begin in begins])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of one operator, source reader or sink writer in one subtask, taken between two batches.

    `tables` holds the keyed state, by names that the operator chooses. The rows of a table have no order. `values`
    holds all other state as JSON values. A restored subtask gets the rows of its key groups, and the values of
    all former subtasks.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    #: The file that the snapshot was read from, for errors; "" for a new one.
    origin: str = field(default="", compare=False)

    def of_key_groups(self, groups: range) -> Snapshot:
        """Return a snapshot with the same values, and with the rows of these key groups."""
        return self.with_tables(lambda table: _of_key_groups(table, groups))

    def check_groups(self, max_parallelism: int) -> None:
        """Check that the key group of every row is below `max_parallelism`. Raises UnusableState.

        No subtask would restore a row of another key group.
        """
        for name, table in self.tables.items():
            least, greatest = _bounds(table)
            if least < 0 or greatest >= max_parallelism:
                raise UnusableState(
                    f"{name!r} has rows of key groups from {least} to {greatest}, and the last group is "
                    f"{max_parallelism - 1}; start from another checkpoint"
                )

    def with_tables(self, change: Callable[[pa.Table], pa.Table]) -> Snapshot:
        """Return a snapshot with the same values, and with each table replaced by what `change` returns for it."""
        tables = {name: change(table) for name, table in self.tables.items()}
        return Snapshot(tables, self.values, self.origin)

    def check_same(self, other: Snapshot) -> None:
        """Check that `other`, read from a checkpoint, is state of the same operator as this snapshot.

        Both snapshots must have the same values["of"], and tables with the same name must have the same columns.
        `other` may lack tables, because a subtask that had ended has none. Raises CheckpointError, which names the
        differences. Raises ValueError if values["of"] of `other` has a form that no operator writes.
        """
        of = other.values.get("of", {})
        _OF(of, "of")
        differences = _differences(self.values.get("of", {}), of)
        for name, table in self.tables.items():
            if name in other.tables:
                theirs = other.tables[name]
                differences += _differences(_columns(table), _columns(theirs))
                if not differences and theirs.schema.names != table.schema.names:
                    differences = [f"the columns of {name!r} are in another order"]
        differences = list(dict.fromkeys(differences))  # tables have columns in common
        if differences:
            raise CheckpointError(
                f"the state in the checkpoint is that of another operator: {'; '.join(differences)}. Change the "
                "operator back, or start without the checkpoint"
            )


class ChangedWindows(CheckpointError):
    """The windows of an operator differ from its windows at the checkpoint. The caller puts the operator's name before
    the message."""


@contextmanager
def checkpoint_errors(*origins: str) -> Iterator[None]:
    """Turn exceptions that the use of restored state raises into a CheckpointError.

    The error names `origins`, the files of the state. ChangedWindows, and errors of Headgate that are not
    CheckpointErrors, pass unchanged.
    """
    try:
        yield
    except HeadgateError as error:
        is_named = isinstance(error, ChangedWindows) or any(origin in error.message for origin in origins)
        if isinstance(error, CheckpointError) and not is_named:
            error.message = printable(f"{_named(origins)}{error.message}")
        raise
    except Exception as error:
        quote = f"{type(error).__name__}: {error}"
        quote = quote if len(quote) <= _LONGEST_QUOTE else f"{quote[:_LONGEST_QUOTE]}..."
        raise UnusableState(
            f"{_named(origins)}is no state that this job can resume from: {quote}; start from another checkpoint"
        ) from error


def _named(origins: Sequence[str]) -> str:
    named = list(dict.fromkeys(filter(None, origins)))
    others = f" or {len(named) - _MOST_NAMED} others" if len(named) > _MOST_NAMED else ""
    return f"{' or '.join(named[:_MOST_NAMED])}{others}: " if named else ""


def encode(snapshots: Mapping[str, Snapshot]) -> bytes:
    """Encode a task's snapshots, by node key, as bytes."""
    return b"".join(encode_parts(snapshots))


def encode_parts(snapshots: Mapping[str, Snapshot]) -> list[bytes | pa.Buffer]:
    """Encode a task's snapshots as a list of parts, so that a file can be written without joining the parts.

    Raises CheckpointError for more JSON than `decode` accepts.
    """
    streams: list[pa.Buffer] = []
    index: dict[str, Any] = {}
    end = 0
    for node, snapshot in snapshots.items():
        places = {}
        for name, table in snapshot.tables.items():
            streams.append(_stream(table))
            places[name] = (end, end := end + streams[-1].size)
        index[node] = {"values": dict(snapshot.values), "tables": places}
    text = json.dumps(index).encode()
    if len(text) > shapes.MOST_JSON:
        raise CheckpointError(
            f"the state of {', '.join(map(repr, index))} without its tables would have {len(text)} bytes of JSON, and "
            f"at most {shapes.MOST_JSON} are allowed; have a source that watches folders find fewer files, or raise "
            "its parallelism"
        )
    text += b" " * (-(_HEAD.size + _LENGTH.size + len(text)) % 8)  # Arrow's format wants multiples of 8 bytes
    parts: list[bytes | pa.Buffer] = [_LENGTH.pack(len(text)), text, *streams]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return [_HEAD.pack(_MAGIC, _VERSION, checksum), *parts]


def decode(data: bytes | pa.Buffer) -> dict[str, Snapshot]:
    """Decode bytes that `encode` returned. Returns the snapshots by node key. The tables are views of `data`.

    Raises CheckpointError for torn, damaged and foreign bytes, also for forged bytes with a right checksum.
    """
    if len(data) < (least := _HEAD.size + _LENGTH.size):
        raise CheckpointError(f"the state is incomplete: it has {len(data)} bytes, and at least {least} were written")
    magic, version, checksum = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CheckpointError(f"these bytes are no state of a checkpoint: they begin with {magic!r}")
    if version != _VERSION:
        raise CheckpointError(f"the state is of version {version}, and this Headgate reads version {_VERSION}")
    view = memoryview(data)
    if zlib.crc32(view[_HEAD.size :]) != checksum:
        raise CheckpointError(f"the state is incomplete or damaged: the checksum of its {len(data)} bytes is wrong")
    begin, length = _HEAD.size + _LENGTH.size, _LENGTH.unpack_from(data, _HEAD.size)[0]
    streams = begin + length
    try:
        shapes.check_length(length)
        index = json.loads(bytes(view[begin:streams]))
        _INDEX(index, "the index")
        return {node: _snapshot(fields, pa.py_buffer(data)[streams:]) for node, fields in index.items()}
    except (ValueError, RecursionError, OSError, MemoryError, pa.ArrowException) as error:
        raise UnusableState(f"the state cannot be read: {type(error).__name__}: {error}") from None


def _stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _snapshot(fields: Any, streams: pa.Buffer) -> Snapshot:
    tables = {}
    for name, (begin, end) in fields["tables"].items():
        if not begin <= end <= streams.size:
            raise ValueError(f"table {name!r} is at {begin} to {end} of {streams.size} bytes")
        with pa.ipc.open_stream(streams[begin:end]) as reader:
            tables[name] = _checked(name, reader.read_all())
    return Snapshot(tables, fields["values"])


def _checked(name: str, table: pa.Table) -> pa.Table:
    """Return the table if it is valid. Raises an error if not.

    Arrow does not check offsets when it uses them: a wrong offset reads other memory, or crashes the process.
    """
    table.validate(full=True)
    if len(set(table.schema.names)) < len(table.schema):
        raise ValueError(f"table {name!r} has two columns of one name")
    return table


def _of_key_groups(table: pa.Table, groups: range) -> pa.Table:
    least, greatest = _bounds(table)
    if greatest < least or (groups.start <= least and greatest < groups.stop):  # all rows: no copy is needed
        return table
    column = table.column(0)
    inside = pc.and_(pc.greater_equal(column, groups.start), pc.less(column, groups.stop))
    return table.filter(inside)


def _bounds(table: pa.Table) -> tuple[int, int]:
    """Return the lowest and the highest key group of the rows, or 0 and -1 if there are no rows."""
    names, column = table.schema.names, table.column(0) if table.num_columns else None
    if column is None or names[0] != KEY_GROUP or column.type != pa.int32() or column.null_count:
        raise UnusableState(f"a table of state does not begin with the key group of each row, but with {names[:1]}")
    least, greatest = pc.min_max(column).as_py().values()
    return (0, -1) if least is None else (least, greatest)


def _columns(table: pa.Table) -> dict[str, str]:
    return {f"column {column.name!r}": str(column.type) for column in table.schema}


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name} is {theirs.get(name, 'missing')} there and {ours.get(name, 'missing')} here"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]
