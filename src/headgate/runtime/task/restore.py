"""Reads the state and the in-flight rows that a task restores from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from headgate.errors import ExchangeError, UnusableState
from headgate.exchange.selectors import KeyGroups
from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import JobEdge, JobGraph, JobVertex
from headgate.plan.node_keys import exchange_key, node_key, schema_in_flight
from headgate.records.arrow import BatchCodec
from headgate.records.hashing import key_group_range
from headgate.records.spanning import SpanningDeserializer
from headgate.state import shapes
from headgate.state.checkpoint_files import read_state
from headgate.state.checkpoint_metadata import (
    METADATA_FILE,
    CheckpointMetadata,
    ExchangeDescription,
    Finished,
    TaskState,
)
from headgate.state.in_flight_file import ChannelPart, decode_in_flight
from headgate.state.snapshot import Snapshot, checkpoint_errors, decode

_VALUES: Final = shapes.mapping(shapes.plain)


def snapshots(
    metadata: CheckpointMetadata, nodes: Collection[str], groups: range, max_parallelism: int
) -> dict[str, list[Snapshot]]:
    """Return, by node key, the snapshots of these nodes from all subtasks of the checkpoint, in order.

    At the checkpoint, the nodes may have been chained with other nodes. The tables of the snapshots contain only the
    rows of the key groups `groups`, of `max_parallelism` key groups in all. The function waits for the storage. Raises
    CheckpointError for a damaged file.
    """
    by_node: dict[str, list[Snapshot]] = {}
    for state in metadata.vertices:
        for task in state.tasks if state.has_any(nodes) else ():
            for key, snapshot in _snapshots_of(task, METADATA_FILE):
                with checkpoint_errors(snapshot.origin):
                    snapshot.check_groups(max_parallelism)
                    by_node.setdefault(key, []).append(snapshot.of_key_groups(groups))
    return by_node


def ended_groups(metadata: CheckpointMetadata, nodes: Collection[str]) -> dict[str, list[range]]:
    """Return, by node key, the key groups of the subtasks that had ended before the checkpoint. They wrote no
    snapshot."""
    groups: dict[str, list[range]] = {}
    for state in metadata.vertices:
        ended = [
            key_group_range(subtask, len(state.tasks), state.max_parallelism)
            for subtask, task in enumerate(state.tasks)
            if isinstance(task, Finished)
        ]
        if ended:
            groups.update((key, ended) for key in {state.key, *state.nodes}.intersection(nodes))
    return groups


def _snapshots_of(task: TaskState, metadata: str) -> Iterator[tuple[str, Snapshot]]:
    if isinstance(task, Finished):
        for key, values in task.positions.items():
            with checkpoint_errors(metadata):
                _VALUES(values, f"the position of {key!r}")
            yield key, Snapshot(values=values, origin=metadata)
        return
    with checkpoint_errors(task.path):
        decoded = decode(read_state(task))
    yield from ((key, replace(snapshot, origin=task.path)) for key, snapshot in decoded.items())


def input_in_flight(
    metadata: CheckpointMetadata,
    plan: ExecutionPlan,
    *,
    vertex: JobVertex,
    subtask: int,
    codecs: Sequence[BatchCodec],
    keyed: Callable[[JobEdge, int], KeyGroups],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows in flight that a subtask restores: batches, each with the number of its channel.

    Channels are numbered over all gates. A batch of a channel that no longer exists gets another channel of the same
    gate. `codecs` has the codec of each gate. `keyed` creates the selector of a keyed exchange, for a number of
    channels.
    """
    first, nodes = 0, set(map(node_key, vertex.nodes))
    groups = {state.max_parallelism for state in metadata.vertices if state.has_any(nodes)}
    for edge, codec in zip(plan.job.inputs(vertex), codecs, strict=True):
        selector = keyed(edge, vertex.parallelism) if edge.partitioning.kind == "key_group" else None
        groups_stay = selector is None or groups == {selector.max_parallelism}
        target = RestoreTarget(exchange_key(edge, plan.job), subtask, vertex.parallelism, selector, groups_stay)
        producers = [channel.producer for channel in plan.channels(edge, subtask)]
        for producer, rows in rows_in_flight(metadata, target, _stored_codec(metadata, edge, plan.job) or codec):
            number = producers.index(producer) if producer in producers else producer % len(producers)
            yield first + number, rows.select(codec.schema.names)
        first += len(producers)


def _stored_codec(metadata: CheckpointMetadata, edge: JobEdge, job: JobGraph) -> BatchCodec | None:
    """Return the codec of the rows in flight that the checkpoint has for an exchange, or None if it has none.

    Earlier versions sent all columns, so these rows may have more than the exchange sends now.
    """
    stored = [each for each in metadata.exchanges if each.key == exchange_key(edge, job)]
    schema = schema_in_flight(stored[0], edge, job) if stored else None
    return None if schema is None else BatchCodec(schema)


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """The subtask that restores rows in flight: number `subtask` of the `subtasks` consumers of `exchange`.

    `selector` says to which subtask each row of a keyed exchange belongs. Each target takes its own rows, so the
    selector must be the same for all targets. Without a selector, a target takes whole channels. `groups_stay` says
    whether each key has the key group that it had in the checkpoint.
    """

    exchange: str
    subtask: int
    subtasks: int
    selector: KeyGroups | None
    groups_stay: bool


def rows_in_flight(
    metadata: CheckpointMetadata, target: RestoreTarget, codec: BatchCodec
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows in flight that now belong to the target, each batch with the number of its old producer.

    The rows of each old channel keep their order. The function waits for the storage. Raises CheckpointError for
    damaged data.
    """
    exchanges = [exchange for exchange in metadata.exchanges if exchange.key == target.exchange]
    if not exchanges:
        return
    as_before = exchanges[0].consumers == target.subtasks and target.groups_stay
    parts = _parts(metadata, exchanges[0])
    for producer, consumer in sorted({(part.producer, part.consumer) for part in parts}):
        takes_all = consumer % target.subtasks == target.subtask
        if not takes_all and (as_before or target.selector is None):
            continue
        channel = [ChannelPart(target.exchange, producer, consumer, received) for received in (True, False)]
        for batch in _decoded(channel, parts, codec.checking()):
            shares = [(target.subtask, batch)]
            if target.selector is not None and batch.num_rows:
                shares = target.selector.select(batch)
            if as_before and any(subtask != target.subtask for subtask, _ in shares):
                raise UnusableState(
                    f"{_files_of(channel, parts)}: rows in flight from subtask {producer} to {consumer} of "
                    f"{target.exchange!r} have keys of other subtasks; start from another checkpoint"
                )
            yield from ((producer, rows) for subtask, rows in shares if subtask == target.subtask)


@dataclass(frozen=True, slots=True)
class _Part:
    content: memoryview
    file: str


def _files_of(channel: list[ChannelPart], parts: dict[ChannelPart, _Part]) -> str:
    """Return the names of the files that hold data of a channel."""
    return " or ".join(dict.fromkeys(parts[part].file for part in channel if part in parts))


def _parts(metadata: CheckpointMetadata, exchange: ExchangeDescription) -> dict[ChannelPart, _Part]:
    """Read all data in flight of an exchange: for each channel, what its consumer had received, and what its producer
    still had."""
    parts: dict[ChannelPart, _Part] = {}
    for file in (state.in_flight for state in metadata.states):
        if file is None or exchange.key not in file.exchanges:
            continue
        with checkpoint_errors(file.path):
            for part, content in decode_in_flight(read_state(file)).items():
                if part.exchange == exchange.key:
                    if part in parts or part.producer >= exchange.producers or part.consumer >= exchange.consumers:
                        raise UnusableState(
                            f"{part} occurs twice, or its channel does not exist; start from another checkpoint"
                        )
                    parts[part] = _Part(content, file.path)
    return parts


def _decoded(
    channel: list[ChannelPart], parts: dict[ChannelPart, _Part], codec: BatchCodec
) -> Iterator[pa.RecordBatch]:
    """Return the batches of one channel.

    A row may begin in the bytes that the consumer had received, and end in the bytes that the producer still had.
    """
    deserializer = SpanningDeserializer(codec)
    present = [parts[part] for part in channel if part in parts]
    with checkpoint_errors(*(part.file for part in present)):
        try:
            elements = deserializer.feed(part.content for part in present)
        except ExchangeError as error:
            raise UnusableState(
                f"the data in flight cannot be read: {error.message}; start from another checkpoint"
            ) from error
        if deserializer.partial:
            raise UnusableState(f"the data in flight from subtask {channel[0].producer} to {channel[0].consumer} of "
                                  f"{channel[0].exchange!r} end within an element; use another checkpoint")  # fmt: skip
    return (element for element in elements if isinstance(element, pa.RecordBatch))
