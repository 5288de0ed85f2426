"""What a completed checkpoint consists of, and how its file `_metadata` says so.

The file is JSON: the format's name and version, a checksum of the rest, and the rest. Tasks' bytes are in files beside
it, which it names without their folder, so that a checkpoint can be moved or copied as a whole. Where a job keeps its
checkpoints it names its savepoints, too: there `_metadata` stands alone, and says in which folder the files are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

import xxhash

from headgate.errors import CheckpointError
from headgate.state import shapes
from headgate.state.shapes import MOST_JSON

#: The file whose presence makes a checkpoint complete.
METADATA_FILE: Final = "_metadata"
_FORMAT: Final = "headgate checkpoint"
_VERSION: Final = 2
#: What this Headgate reads: version 1 does not name the run.
_READ: Final = (1, 2)
#: Savepoints are asked for, and kept until the user removes them.
Kind: TypeAlias = Literal["checkpoint", "savepoint"]
#: The largest id of a checkpoint: what every reader of JSON has exactly.
LAST_ID: Final = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Where a file is (a path or URI), how many bytes it has, and their xxh3 (64 bits, hexadecimal)."""

    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class InFlightFile(WrittenFile):
    """What was under way from and to one task, of these exchanges (by key)."""

    exchanges: Sequence[str]


@dataclass(frozen=True, slots=True)
class StateFile(WrittenFile):
    """What one task wrote: its state, and in a file of its own what was under way."""

    in_flight: InFlightFile | None = None

    @property
    def in_flight_bytes(self) -> int:
        return 0 if self.in_flight is None else self.in_flight.size

    @staticmethod
    def of(values: Mapping[str, Any]) -> StateFile:
        """From what `asdict` made of it."""
        in_flight = values["in_flight"]
        return StateFile(**{**values, "in_flight": None if in_flight is None else InFlightFile(**in_flight)})


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that had ended by then holds no state. `positions` are those its source readers ended at, by node key."""

    positions: Mapping[str, Any] = field(default_factory=dict)


TaskState = StateFile | Finished


@dataclass(frozen=True, slots=True)
class VertexState:
    """The tasks of one vertex, in the order of subtasks. `key` is the node key of its head, `nodes` those of all."""

    key: str
    name: str
    max_parallelism: int
    tasks: tuple[TaskState, ...]
    nodes: tuple[str, ...] = ()

    def has_any(self, keys: Collection[str]) -> bool:
        """Whether one of these nodes was in its tasks."""
        return self.key in keys or any(node in keys for node in self.nodes)


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node that has something in the checkpoint. `kind` is source, sink or the operator's; `schema` that of its rows,
    as text."""

    key: str
    name: str
    kind: str
    schema: str


@dataclass(frozen=True, slots=True)
class ExchangeDescription:
    """An exchange of which data are in the checkpoint: its key, how it distributes rows, their columns as text, and how
    many subtasks it has at either end."""

    key: str
    partitioning: str
    schema: str
    producers: int
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """A completed checkpoint or savepoint."""

    id: int
    #: When it was triggered, seconds since the epoch, and how many seconds it took.
    timestamp: float
    duration: float
    job: str
    attempt: int
    vertices: tuple[VertexState, ...]
    nodes: tuple[NodeDescription, ...]
    #: What `Sink.commit` is to be given, by node key.
    pending: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: What sources found out on the driver when the job started, by node key; JSON values.
    prepared: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "checkpoint"
    #: Where the files are, if not beside this: among its checkpoints a job names its savepoints, too.
    folder: str | None = None
    #: Those of which data are in it; none in a checkpoint that was aligned everywhere.
    exchanges: tuple[ExchangeDescription, ...] = ()
    #: The run that took it; "" in checkpoints of version 1.
    run: str = ""

    @property
    def is_of_version_1(self) -> bool:
        """Whether an earlier version wrote it, which did not name the run."""
        return not self.run

    @property
    def states(self) -> Iterator[StateFile]:
        """Of all tasks that had something to write."""
        return (task for vertex in self.vertices for task in vertex.tasks if isinstance(task, StateFile))

    @property
    def files(self) -> Iterator[WrittenFile]:
        """All there are beside the metadata."""
        for state in self.states:
            yield state
            if state.in_flight is not None:
                yield state.in_flight

    @property
    def size(self) -> int:
        """Bytes of all tasks' state, and of what was in flight."""
        return sum(file.size for file in self.files)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of what was in flight."""
        return sum(state.in_flight_bytes for state in self.states)

    def to_bytes(self) -> bytes:
        """The content of its `_metadata`. Raises CheckpointError for what JSON does not have, and for more than anybody
        reads."""
        try:
            made = {**asdict(self), "vertices": [_vertex_to_json(vertex) for vertex in self.vertices]}
            body = json.loads(json.dumps(made))  # JSON makes strings of other keys, and lists of tuples
            checksum = _checksum(body)
            _SHAPE(body, "checkpoint")
        except (TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"checkpoint {self.id}: what a source or sink keeps is not plain: {error}") from error
        content = {"format": _FORMAT, "version": _VERSION, "checksum": checksum, "checkpoint": body}
        found = (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()
        if len(found) > MOST_JSON:
            raise CheckpointError(
                f"checkpoint {self.id}: {METADATA_FILE} would have {len(found)} bytes, and {MOST_JSON} is the most; "
                "read fewer, larger files, have sinks finish fewer of them (fewer folders of partition_by, shorter "
                "intervals), or lower the parallelism"
            )
        return found

    @staticmethod
    def from_bytes(content: bytes, folder: str) -> CheckpointMetadata:
        """The inverse; `folder` is where the files are. Raises CheckpointError, which names the file."""
        place = f"{folder}/{METADATA_FILE}"
        try:
            whole = json.loads(content)
            body: Any = whole.get("checkpoint") if isinstance(whole, dict) else None
            checksum = _checksum(body)
        except (ValueError, RecursionError):
            raise CheckpointError(f"{place}: is torn, or no metadata of a checkpoint; {OTHER}") from None
        if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
            raise CheckpointError(f"{place}: is no metadata of a checkpoint; {OTHER}")
        if (version := whole.get("version")) not in _READ:
            raise CheckpointError(
                f"{place}: has version {version}, this Headgate reads 1 to {_VERSION}; use that which wrote it"
            )
        if whole.get("checksum") != checksum:
            raise CheckpointError(f"{place}: was changed after it was written; {OTHER}")
        try:
            _SHAPE(body, "checkpoint")
        except ValueError as error:
            raise CheckpointError(f"{place}: is no metadata of a checkpoint: {error}; {OTHER}") from None
        folder = body.get("folder") or folder
        vertices = tuple(_vertex_from_json(vertex, folder) for vertex in body["vertices"])
        nodes = tuple(NodeDescription(**node) for node in body["nodes"])
        exchanges = tuple(ExchangeDescription(**exchange) for exchange in body.get("exchanges", ()))
        return CheckpointMetadata(**{**body, "vertices": vertices, "nodes": nodes, "exchanges": exchanges})


#: What to do when a checkpoint is of no use.
OTHER: Final = "start from another checkpoint"

# --- what the JSON looks like; what sources and sinks put in is theirs

_COUNT: Final = shapes.whole(1, 1 << 31)
_YEAR_9999: Final = 253_000_000_000.0
_FILE: Final = {"file": shapes.file_name, "size": shapes.whole(0, (1 << 63) - 1), "checksum": shapes.text}
_IN_FLIGHT: Final = shapes.fields({**_FILE, "exchanges": shapes.items(shapes.text)})
_TASK: Final = shapes.either(
    "finished",
    shapes.fields({"finished": shapes.mapping(shapes.plain)}),
    shapes.fields(_FILE, {"in_flight": shapes.optional(_IN_FLIGHT)}),
)
_VERTEX: Final = shapes.fields(
    {
        "key": shapes.text,
        "name": shapes.text,
        "max_parallelism": _COUNT,
        "tasks": shapes.items(_TASK, least=1),
        "nodes": shapes.items(shapes.text),
    }
)
_NODE: Final = shapes.fields(dict.fromkeys(("key", "name", "kind", "schema"), shapes.text))
_EXCHANGE: Final = shapes.fields(
    {**dict.fromkeys(("key", "partitioning", "schema"), shapes.text), "producers": _COUNT, "consumers": _COUNT}
)
_SHAPE: Final = shapes.fields(
    {
        "id": shapes.whole(1, LAST_ID),
        "timestamp": shapes.number(_YEAR_9999),
        "duration": shapes.number(_YEAR_9999),
        "job": shapes.text,
        "attempt": shapes.whole(0, LAST_ID),
        "vertices": shapes.items(_VERTEX, least=1),
        "nodes": shapes.items(_NODE),
    },
    {
        "pending": shapes.mapping(shapes.items(shapes.plain)),
        "prepared": shapes.mapping(shapes.plain),
        "kind": shapes.one_of(*get_args(Kind)),
        "folder": shapes.folder,
        "exchanges": shapes.items(_EXCHANGE),
        "run": shapes.text,
    },
)


def _checksum(body: Any) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return xxhash.xxh3_64_hexdigest(text.encode())


def _vertex_to_json(vertex: VertexState) -> dict[str, Any]:
    return {**asdict(vertex), "tasks": [_task_to_json(task) for task in vertex.tasks]}


def _task_to_json(task: TaskState) -> dict[str, Any]:
    if isinstance(task, Finished):
        return {"finished": task.positions}
    entry = _file_to_json(task)
    if task.in_flight is not None:
        entry["in_flight"] = {**_file_to_json(task.in_flight), "exchanges": list(task.in_flight.exchanges)}
    return entry


def _file_to_json(file: WrittenFile) -> dict[str, Any]:
    return {"file": file.path.rpartition("/")[2], "size": file.size, "checksum": file.checksum}


def _vertex_from_json(vertex: dict[str, Any], folder: str) -> VertexState:
    tasks = tuple(_task_from_json(task, folder) for task in vertex["tasks"])
    return VertexState(**{**vertex, "tasks": tasks, "nodes": tuple(vertex["nodes"])})


def _task_from_json(task: dict[str, Any], folder: str) -> TaskState:
    if "finished" in task:
        return Finished(task["finished"])
    flying = task.get("in_flight")
    in_flight = None if flying is None else InFlightFile(*_file_from_json(flying, folder), flying["exchanges"])
    return StateFile(*_file_from_json(task, folder), in_flight)


def _file_from_json(file: dict[str, Any], folder: str) -> tuple[str, int, str]:
    return f"{folder}/{file['file']}", file["size"], file["checksum"]
