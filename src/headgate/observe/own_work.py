"""Find tasks that spend more time on the exchange, or on snapshots, than on any of their operators."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from headgate.observe.edge_window import EdgeWindow
from headgate.observe.finding import Cause
from headgate.observe.metrics_window import Window, mean
from headgate.observe.roots import SlowTasks

#: The least share of a task's time that makes its own work the cause.
_BURDEN: Final = 0.25
#: The least share of its tasks' work that nearly empty buffers take in a process that mostly handles such buffers.
_MOSTLY: Final = 0.5
#: A buffer is nearly empty if its data take less than this share of its size.
_NEARLY_EMPTY: Final = 0.10


def own_work(window: Window, root: SlowTasks) -> Cause | None:
    """Return the work besides operators that takes most time. None: it takes little, or an operator takes more."""
    shares = {
        ("checkpoint", "it takes its state for checkpoints"): mean(root.tasks, lambda task: task.snapshot),
        ("deserialisation", "it takes and deserialises rows"): mean(root.tasks, lambda task: task.input),
        ("serialisation", "it partitions and serialises rows"): mean(root.tasks, lambda task: task.output),
    }
    share, (name, text) = max((share, cause) for cause, share in shares.items())
    if share < _BURDEN or share < mean(root.tasks, lambda task: task.busiest.busy):
        return None
    evidence = {"share": share}
    edges = [] if name == "checkpoint" else _edges(window, root.vertex, incoming=name == "deserialisation")
    large, empty = large_row(window, edges), nearly_empty(window, edges)
    if large is not None:
        return Cause(
            name="large_rows",
            text=f"{text} {share:.0%} of the time, and a row has {large / 1e6:.2g} MB",
            evidence={**evidence, "bytes_per_row": large},
        )
    if empty is not None:
        return Cause(
            name="nearly_empty_buffers",
            text=f"{text} {share:.0%} of the time, in buffers that leave {empty:.1%} full",
            evidence={**evidence, "fill": empty},
        )
    return Cause(name=name, text=f"{text} {share:.0%} of the time", evidence=evidence)


def empty_buffers(window: Window, root: SlowTasks) -> Cause | None:
    """Return the work on nearly empty buffers, if that is the work besides operators that takes most time.

    It is also the cause if the root waits for other tasks of its process, and this work takes most of their time.
    """
    cause = own_work(window, root)
    if cause is not None and cause.name == "nearly_empty_buffers":
        return cause
    kept_back = mean(root.tasks, lambda task: task.kept_back)
    edges = _edges(window, root.vertex, incoming=False) + _edges(window, root.vertex, incoming=True)
    fill, share = nearly_empty(window, edges), _on_nearly_empty(window, {task.taskmanager for task in root.tasks})
    if kept_back < _BURDEN or fill is None or share < _MOSTLY:
        return None
    return Cause(
        name="nearly_empty_buffers",
        text=f"it waits {kept_back:.0%} of the time for other tasks of its process, which spend {share:.0%} of their "
        f"work on buffers that leave {fill:.1%} full",
        evidence={"fill": fill, "kept_back": kept_back, "share": share},
    )


def _on_nearly_empty(window: Window, processes: Set[int]) -> float:
    """Return the share of the busy time of these processes' tasks that goes to nearly empty buffers."""
    tasks = [task for task in window.tasks if task.taskmanager in processes]
    busy = sum(task.busy for task in tasks)
    empty = sum(
        task.input * _part_nearly_empty(window, task.vertex, incoming=True)
        + task.output * _part_nearly_empty(window, task.vertex, incoming=False)
        for task in tasks
    )
    return empty / busy if busy > 0 else 0.0


def _part_nearly_empty(window: Window, vertex: int, *, incoming: bool) -> float:
    """Return the part, 0 to 1, of the buffers that come to a vertex, or leave it, that are nearly empty.

    It is also the part of the work: a buffer costs about the same time whether it is full or nearly empty.
    """
    known = _edges(window, vertex, incoming=incoming)
    empty = sum(edge.buffers or 0 for edge in known if nearly_empty(window, [edge]) is not None)
    every = sum(edge.buffers or 0 for edge in _edges(window, vertex, incoming=incoming, broadcast=True))
    return empty / every if every else 0.0


def _edges(window: Window, vertex: int, *, incoming: bool, broadcast: bool = False) -> list[EdgeWindow]:
    """Return the exchanges that end, or begin, at a vertex.

    `broadcast` says whether to include broadcasts: their bytes count once for each channel, but their rows only once.
    """
    names = [
        edge.name
        for edge in window.topology.edges
        if (edge.target if incoming else edge.source) == vertex and (broadcast or edge.partitioning != "broadcast")
    ]
    return [window.edges[name] for name in names if name in window.edges]


def large_row(window: Window, edges: Sequence[EdgeWindow]) -> float | None:
    """Return the mean row size, in bytes, of the exchange with the largest rows.

    Returns None if a row fits into a network buffer.
    """
    sizes = [size for edge in edges if (size := edge.bytes_per_row) is not None]
    is_large = sizes and window.segment_size is not None and max(sizes) >= window.segment_size
    return max(sizes) if is_large else None


def nearly_empty(window: Window, edges: Sequence[EdgeWindow]) -> float | None:
    """Return the mean fill of the buffers, 0 to 1, of the exchange that sent most buffers.

    Returns None if these buffers are not nearly empty.
    """
    known = [edge for edge in edges if edge.bytes_per_buffer is not None]
    if not known or not window.segment_size:
        return None
    most = max(known, key=lambda edge: edge.buffers or 0)
    fill = (most.bytes_per_buffer or 0.0) / window.segment_size
    return fill if fill < _NEARLY_EMPTY else None
