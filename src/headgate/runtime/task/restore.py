"""What a task resumes from: the part of a checkpoint that its subtasks of then wrote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from headgate.errors import ExchangeError, UnusableState
from headgate.exchange.selectors import KeyGroups
from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import JobEdge, JobVertex
from headgate.plan.node_keys import exchange_key, node_key
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
    """By node key those of all subtasks that had one of these nodes, whatever it was chained with, in their order; of
    their tables the rows of these key groups, of `max_parallelism` that there are. Waits for the storage. Raises
    CheckpointError for a file that is not as it was written."""
    found: dict[str, list[Snapshot]] = {}
    for state in metadata.vertices:
        for task in state.tasks if state.has_any(nodes) else ():
            for key, snapshot in _of(task, METADATA_FILE):
                with checkpoint_errors(snapshot.origin):
                    snapshot.check_groups(max_parallelism)
                    found.setdefault(key, []).append(snapshot.of_key_groups(groups))
    return found


def ended_groups(metadata: CheckpointMetadata, nodes: Collection[str]) -> dict[str, list[range]]:
    """By node key the key groups of those subtasks that had ended: they left no snapshot."""
    found: dict[str, list[range]] = {}
    for state in metadata.vertices:
        ended = [
            key_group_range(subtask, len(state.tasks), state.max_parallelism)
            for subtask, task in enumerate(state.tasks)
            if isinstance(task, Finished)
        ]
        if ended:
            found.update((key, ended) for key in {state.key, *state.nodes}.intersection(nodes))
    return found


def _of(task: TaskState, metadata: str) -> Iterator[tuple[str, Snapshot]]:
    if isinstance(task, Finished):
        for key, values in task.positions.items():
            with checkpoint_errors(metadata):
                _VALUES(values, f"the position of {key!r}")
            yield key, Snapshot(values=values, origin=metadata)
        return
    with checkpoint_errors(task.path):
        found = decode(read_state(task))
    yield from ((key, replace(snapshot, origin=task.path)) for key, snapshot in found.items())


def input_in_flight(
    metadata: CheckpointMetadata,
    plan: ExecutionPlan,
    *,
    vertex: JobVertex,
    subtask: int,
    codecs: Sequence[BatchCodec],
    keyed: Callable[[JobEdge, int], KeyGroups],
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows that were on their way to a subtask, each batch with the number of the channel that it came by, over all
    its gates; where there is no such channel any more, of another one of that gate. `codecs` are those of its gates;
    `keyed` makes the selector of a keyed exchange to so many channels."""
    first, nodes = 0, set(map(node_key, vertex.nodes))
    groups = {state.max_parallelism for state in metadata.vertices if state.has_any(nodes)}
    for edge, codec in zip(plan.job.inputs(vertex), codecs, strict=True):
        selector = keyed(edge, vertex.parallelism) if edge.partitioning.kind == "key_group" else None
        groups_stay = selector is None or groups == {selector.max_parallelism}
        target = RestoreTarget(exchange_key(edge, plan.job), subtask, vertex.parallelism, selector, groups_stay)
        producers = [channel.producer for channel in plan.channels(edge, subtask)]
        for producer, rows in rows_in_flight(metadata, target, codec):
            number = producers.index(producer) if producer in producers else producer % len(producers)
            yield first + number, rows
        first += len(producers)


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """A subtask, of `subtasks`, at the end of an exchange. `selector` distributes the rows of a keyed exchange: each
    target takes its share by itself, so it must give the same rows the same way everywhere. Else whole channels are
    distributed. `groups_stay` says whether keys have the key groups that they had."""

    exchange: str
    subtask: int
    subtasks: int
    selector: KeyGroups | None
    groups_stay: bool


def rows_in_flight(
    metadata: CheckpointMetadata, target: RestoreTarget, codec: BatchCodec
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows that were on their way to the target, of each channel that there was in order, with the producer's
    number. Waits for the storage. Raises CheckpointError for data that are not as they were written."""
    there = [exchange for exchange in metadata.exchanges if exchange.key == target.exchange]
    if not there:
        return
    as_before = there[0].consumers == target.subtasks and target.groups_stay
    parts = _parts(metadata, there[0])
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
                    f"{_named(channel, parts)}: rows in flight from subtask {producer} to {consumer} of "
                    f"{target.exchange!r} have keys of other subtasks; start from another checkpoint"
                )
            yield from ((producer, rows) for subtask, rows in shares if subtask == target.subtask)


@dataclass(frozen=True, slots=True)
class _Part:
    content: memoryview
    file: str


def _named(channel: list[ChannelPart], parts: dict[ChannelPart, _Part]) -> str:
    """The files that have something of a channel."""
    return " or ".join(dict.fromkeys(parts[part].file for part in channel if part in parts))


def _parts(metadata: CheckpointMetadata, exchange: ExchangeDescription) -> dict[ChannelPart, _Part]:
    """All that there is of an exchange."""
    found: dict[ChannelPart, _Part] = {}
    for file in (state.in_flight for state in metadata.states):
        if file is None or exchange.key not in file.exchanges:
            continue
        with checkpoint_errors(file.path):
            for part, content in decode_in_flight(read_state(file)).items():
                if part.exchange == exchange.key:
                    if part in found or part.producer >= exchange.producers or part.consumer >= exchange.consumers:
                        raise UnusableState(f"{part} is there twice, or of no such channel; start from another one")
                    found[part] = _Part(content, file.path)
    return found


def _decoded(
    channel: list[ChannelPart], parts: dict[ChannelPart, _Part], codec: BatchCodec
) -> Iterator[pa.RecordBatch]:
    """The batches of one channel: a row may begin in what the consumer had received and end in what was still at the
    producer."""
    deserializer = SpanningDeserializer(codec)
    there = [parts[part] for part in channel if part in parts]
    with checkpoint_errors(*(part.file for part in there)):
        try:
            elements = deserializer.feed(part.content for part in there)
        except ExchangeError as error:
            raise UnusableState(
                f"what was in flight cannot be read: {error.message}; start from another checkpoint"
            ) from error
        if deserializer.partial:
            raise UnusableState(f"what was in flight from subtask {channel[0].producer} to {channel[0].consumer} of "
                                  f"{channel[0].exchange!r} ends in the midst of an element")  # fmt: skip
    return (element for element in elements if isinstance(element, pa.RecordBatch))
