"""Describes a completed checkpoint, and converts the description to and from its file `_metadata`.

The file is JSON. It holds the format's name and version, the description, and a checksum of the description. The
tasks' files lie in the same folder. `_metadata` names these files without their folder, so a user can move or copy a
checkpoint as a whole.

A job also lists its savepoints among its checkpoints. The checkpoint's folder then holds only a `_metadata` file, which
names the folder of the tasks' files.
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
#: The versions that this Headgate reads. Version 1 does not name the run.
_READ: Final = (1, 2)
#: The user asks for a savepoint and removes it; the job takes and removes checkpoints itself.
Kind: TypeAlias = Literal["checkpoint", "savepoint"]
#: The largest id of a checkpoint: the largest integer that every reader of JSON keeps exact.
LAST_ID: Final = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task wrote: its path or URI, its size in bytes, and its checksum (xxh3 of 64 bits, hexadecimal)."""

    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class InFlightFile(WrittenFile):
    """A file with the in-flight data of one task. `exchanges` holds the keys of the exchanges of these data."""

    exchanges: Sequence[str]


@dataclass(frozen=True, slots=True)
class StateFile(WrittenFile):
    """A file with the state of one task. `in_flight` is the file with the task's in-flight data, or None."""

    in_flight: InFlightFile | None = None

    @property
    def in_flight_bytes(self) -> int:
        return 0 if self.in_flight is None else self.in_flight.size

    @staticmethod
    def of(values: Mapping[str, Any]) -> StateFile:
        """Return the StateFile whose fields are `values`, as `dataclasses.asdict` wrote them."""
        in_flight = values["in_flight"]
        return StateFile(**{**values, "in_flight": None if in_flight is None else InFlightFile(**in_flight)})


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that had ended before the checkpoint, and therefore has no state.

    `positions` holds, by node key, the positions at which the task's source readers ended.
    """

    positions: Mapping[str, Any] = field(default_factory=dict)


TaskState = StateFile | Finished


@dataclass(frozen=True, slots=True)
class VertexState:
    """The tasks of one vertex, in the order of subtasks.

    `key` is the key of the vertex's first node; `nodes` are the keys of all its nodes.
    """

    key: str
    name: str
    max_parallelism: int
    tasks: tuple[TaskState, ...]
    nodes: tuple[str, ...] = ()

    def has_any(self, keys: Collection[str]) -> bool:
        """Return whether the vertex contained one of these nodes."""
        return self.key in keys or any(node in keys for node in self.nodes)


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A node that has data in the checkpoint.

    `kind` is "source", "sink" or the operator's kind. `schema` is the schema of the node's rows, as text.
    """

    key: str
    name: str
    kind: str
    schema: str


@dataclass(frozen=True, slots=True)
class ExchangeDescription:
    """An exchange that has in-flight data in the checkpoint.

    `partitioning` says how the exchange distributes rows. `schema` is the schema of the rows, as text. `producers` and
    `consumers` count the subtasks on each side.
    """

    key: str
    partitioning: str
    schema: str
    producers: int
    consumers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMetadata:
    """A completed checkpoint or savepoint."""

    id: int
    #: When the driver triggered the checkpoint, in Unix time, and how long the checkpoint took; both in seconds.
    timestamp: float
    duration: float
    job: str
    attempt: int
    vertices: tuple[VertexState, ...]
    nodes: tuple[NodeDescription, ...]
    #: What the driver passes to `Sink.commit`, by node key.
    pending: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    #: What each source prepared on the driver when the job started, by node key; JSON values.
    prepared: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "checkpoint"
    #: The folder of the tasks' files, or None if they lie beside `_metadata` (the module's docstring says more).
    folder: str | None = None
    #: The exchanges that have in-flight data in the checkpoint. A fully aligned checkpoint has none.
    exchanges: tuple[ExchangeDescription, ...] = ()
    #: The run that took the checkpoint; "" in checkpoints of version 1.
    run: str = ""

    @property
    def is_of_version_1(self) -> bool:
        """Whether the checkpoint has format version 1, which does not name the run."""
        return not self.run

    @property
    def states(self) -> Iterator[StateFile]:
        """The state files of all tasks that wrote one."""
        return (task for vertex in self.vertices for task in vertex.tasks if isinstance(task, StateFile))

    @property
    def files(self) -> Iterator[WrittenFile]:
        """All files of the checkpoint except `_metadata`."""
        for state in self.states:
            yield state
            if state.in_flight is not None:
                yield state.in_flight

    @property
    def size(self) -> int:
        """Bytes of all tasks' state and in-flight data."""
        return sum(file.size for file in self.files)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of all tasks' in-flight data."""
        return sum(state.in_flight_bytes for state in self.states)

    def to_bytes(self) -> bytes:
        """Return the content of `_metadata`.

        Raises CheckpointError for values that JSON cannot hold, and for more bytes than a reader accepts.
        """
        try:
            values = {**asdict(self), "vertices": [_vertex_to_json(vertex) for vertex in self.vertices]}
            # The checksum is of the body that a reader gets: JSON turns keys into strings, and tuples into lists.
            body = json.loads(json.dumps(values))
            checksum = _checksum(body)
            _SHAPE(body, "checkpoint")
        except (TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(
                f"checkpoint {self.id}: a source or sink keeps a value that JSON cannot hold: {error}"
            ) from error
        document = {"format": _FORMAT, "version": _VERSION, "checksum": checksum, "checkpoint": body}
        content = (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()
        if len(content) > MOST_JSON:
            raise CheckpointError(
                f"checkpoint {self.id}: {METADATA_FILE} would have {len(content)} bytes, and at most {MOST_JSON} are "
                "allowed; read fewer, larger files, have sinks finish fewer of them (fewer folders of partition_by, "
                "shorter intervals), or lower the parallelism"
            )
        return content

    @staticmethod
    def from_bytes(content: bytes, folder: str) -> CheckpointMetadata:
        """Return the checkpoint that the file `_metadata` in `folder` describes. `content` is the file's content.

        Raises CheckpointError, which names the file.
        """
        place = f"{folder}/{METADATA_FILE}"
        try:
            whole = json.loads(content)
            body: Any = whole.get("checkpoint") if isinstance(whole, dict) else None
            checksum = _checksum(body)
        except (ValueError, RecursionError):
            raise CheckpointError(f"{place}: is incomplete, or is not the metadata of a checkpoint; {OTHER}") from None
        if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
            raise CheckpointError(f"{place}: is not the metadata of a checkpoint; {OTHER}")
        if (version := whole.get("version")) not in _READ:
            raise CheckpointError(
                f"{place}: has version {version}, and this Headgate reads 1 to {_VERSION}; use the one that wrote it"
            )
        if whole.get("checksum") != checksum:
            raise CheckpointError(f"{place}: was changed after it was written; {OTHER}")
        try:
            _SHAPE(body, "checkpoint")
        except ValueError as error:
            raise CheckpointError(f"{place}: is not the metadata of a checkpoint: {error}; {OTHER}") from None
        folder = body.get("folder") or folder
        vertices = tuple(_vertex_from_json(vertex, folder) for vertex in body["vertices"])
        nodes = tuple(NodeDescription(**node) for node in body["nodes"])
        exchanges = tuple(ExchangeDescription(**exchange) for exchange in body.get("exchanges", ()))
        return CheckpointMetadata(**{**body, "vertices": vertices, "nodes": nodes, "exchanges": exchanges})


#: The advice when a checkpoint cannot be used.
OTHER: Final = "start from another checkpoint"

# --- the shape of the JSON; sources and sinks may add any JSON values of their own

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
