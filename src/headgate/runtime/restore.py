"""What a task goes on from: the part of a checkpoint that its subtasks of then wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headgate.state.checkpoint_files import read_state
from headgate.state.checkpoint_metadata import CheckpointMetadata, Finished, TaskState
from headgate.state.snapshot import Snapshot, decode


def snapshots(metadata: CheckpointMetadata, nodes: Collection[str], groups: range) -> dict[str, list[Snapshot]]:
    """By node key those of all subtasks that had one of these nodes, whatever it was chained with, in their order; of
    their tables the rows of these key groups. Waits for the storage. Raises CheckpointError for a file that is not as
    it was written."""
    found: dict[str, list[Snapshot]] = {}
    for state in metadata.vertices:
        for task in state.tasks if state.has_any(nodes) else ():
            for key, snapshot in _of(task):
                found.setdefault(key, []).append(snapshot.of_key_groups(groups))
    return found


def _of(task: TaskState) -> Iterator[tuple[str, Snapshot]]:
    if isinstance(task, Finished):
        yield from ((key, Snapshot(values=values)) for key, values in task.positions.items())
    else:
        yield from decode(read_state(task).to_pybytes()).items()
