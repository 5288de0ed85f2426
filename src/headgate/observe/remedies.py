"""Choose what to do about a cause, and estimate how much the job would gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headgate.observe.causes import busiest, cpu_share
from headgate.observe.finding import Cause, Remedy
from headgate.observe.gains import (
    PACE,
    Gain,
    next_limit,
    subtasks_for,
    with_full_buffers,
    with_more_processes,
    with_more_subtasks,
)
from headgate.observe.metrics_window import Window, mean, peers
from headgate.observe.roots import SlowDriver, SlowTasks, ThrottledSource

#: A gain with a smaller factor counts as no gain.
_WORTH: float = 1.05


def remedy_for(windows: Sequence[Window], root: SlowTasks, cause: Cause) -> Remedy:
    """Return what to do about slow tasks in the last of these windows."""
    window = windows[-1]
    match cause.name:
        case "data_skew":
            return _spread(window, root, cause)
        case "slow_instance":
            return _like_its_peers(window, root)
        case "garbage_collection":
            return _fewer_objects(window, root, cause)
        case "out_of_cpu":
            return Remedy(text="more subtasks gain nothing; give the job more processors", gain=1.0,
                          limit="all processors are in use")  # fmt: skip
        case "machine_taken" | "stolen_processor" | "processor_quota":
            return _free_processors(window, root, cause)
        case "interpreter_lock":
            return _more_processes(window, root)
        case "nearly_empty_buffers":
            return _fuller_buffers(windows, root)
        case "large_rows":
            return _smaller_rows(window, root, cause)
        case "few_splits":
            return _more_splits(window, root, cause)
        case "burst":
            lasting = _more_subtasks(window, root)
            return replace(lasting, text=f"nothing if it is short, since its queue drains; if it lasts, {lasting.text}")
        case "disk":
            return _less_of_the_disk(window, root, cause)
        case "checkpoint":
            return _fewer_snapshots(window, root, cause)
        case _:
            return _more_subtasks(window, root)


def raise_rate(window: Window, root: ThrottledSource) -> Remedy:
    """Return what to do about a static throttle: the source could read in the time in which it waits."""
    further = next_limit(window, root.vertex)
    factor = 1 / max(1e-2, 1 - root.share)
    gain = Gain(factor, "") if factor < further.factor else further
    return gain.remedy(f"raise its rate, which would carry {_times(gain)}, or leave the throttle out")


def spare_the_driver(window: Window, root: SlowDriver, cause: Cause) -> Remedy:
    """Return what to do about a driver that takes rows slowly: the sink could write in the time in which it waits."""
    gain = _at_most(window, root, 1 / max(1e-2, 1 - cause.evidence["waits"]), "its operators are busy")
    return replace(gain, at_least=False).remedy(
        f"write to files, or collect fewer rows, which {gain.at_best}{_then(gain)}"
    )


def _more_subtasks(window: Window, root: SlowTasks) -> Remedy:
    vertex = window.topology.vertices[root.vertex]
    gain = with_more_subtasks(window, root.tasks, cpu_share(root.tasks))
    if gain.factor < _WORTH:
        return gain.remedy(f"more subtasks gain nothing: {gain.limit}")
    gain = replace(gain, at_least=False)  # it is the gain of this number of subtasks
    return gain.remedy(f"{subtasks_for(vertex.parallelism, gain)} subtasks would carry {_times(gain)}")


def _spread(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    factor = cause.evidence["share_of_rows"] * len(window.of(root.vertex)) / len(root.tasks)
    gain = _at_most(window, root, factor, "all its subtasks are busy")
    return gain.remedy(f"spread its hot keys, which would carry {_times(gain)}")


def _fuller_buffers(windows: Sequence[Window], root: SlowTasks) -> Remedy:
    """Return the remedy for nearly empty buffers."""
    gain = with_full_buffers(windows, root.vertex)
    if gain.limit != PACE and any(task.lock is None for task in windows[-1].tasks):
        gain = Gain(gain.factor, "", at_least=True)
    return gain.remedy(f"raise buffer_timeout, or use fewer subtasks behind it, which would carry {_times(gain)}")


def _more_processes(window: Window, root: SlowTasks) -> Remedy:
    text = "run the job in more processes (hg.LocalDeployment), with fewer tasks in each"
    gain = with_more_processes(window, root.tasks)
    if gain is None:
        return Remedy(text=text)
    if gain.factor < _WORTH:
        return gain.remedy(f"more processes gain nothing: {gain.limit}")
    return gain.remedy(f"{text}, which would carry {_times(gain)}")


def _smaller_rows(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    gain = _at_most(window, root, 1 / max(1e-2, 1 - _share_of_work(root, cause)), "its operators are busy")
    return replace(gain, at_least=False).remedy(
        "see which rows are large; select columns, or send the place of the content in place of it, which "
        f"{gain.at_best}{_then(gain)}"
    )


def _less_of_the_disk(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    """Return the remedy for a slow disk. More subtasks are no remedy: on the same machine they would share the disk."""
    gain = _at_most(window, root, 1 / max(1e-2, 1 - cause.evidence["disk_wait"]), "its operators are busy")
    return replace(gain, at_least=False).remedy(
        f"read and write in larger pieces, call fsync less often, or use a faster disk, which {gain.at_best}"
        f"{_then(gain)}"
    )


def _fewer_snapshots(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    """Return the remedy for snapshots that take the tasks' time. Fewer or smaller ones still take a part of it."""
    gain = _at_most(window, root, 1 / max(1e-2, 1 - _share_of_work(root, cause)), "its operators are busy")
    return replace(gain, at_least=False).remedy(
        f"take checkpoints less often (checkpoint_interval), or keep less state, which {gain.at_best}{_then(gain)}"
    )


def _share_of_work(root: SlowTasks, cause: Cause) -> float:
    """Return the share of the tasks' busy time that the cause takes."""
    return min(1.0, cause.evidence["share"] / max(1e-3, mean(root.tasks, lambda task: task.busy)))


def _more_splits(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    room = with_more_subtasks(window, root.tasks, cpu_share(root.tasks))
    factor = cause.evidence["subtasks"] / cause.evidence["reading"]
    gain = Gain(factor, "all its subtasks read", if_free=room.if_free) if factor <= room.factor else room
    return gain.remedy(
        f"give it more splits (files, partitions), which would carry {_times(gain)}; more subtasks gain nothing"
    )


def _like_its_peers(window: Window, root: SlowTasks) -> Remedy:
    others = [task for task in window.of(root.vertex) if task not in root.tasks]
    busy = peers([task.busy for task in others])
    gain = _at_most(window, root, 1 / max(busy, 1e-3), "its peers are busy, too")
    return gain.remedy(
        f"look at its machine and at what it waits for; as fast as its peers it would carry {_times(gain)}"
    )


def _fewer_objects(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    gain = _at_most(window, root, 1 / max(1e-2, 1 - cause.evidence["collection"]), "")
    operator = window.topology.operator(busiest(root.tasks)).name
    return gain.remedy(f"make fewer Python objects in {operator!r}, which would carry {_times(gain)}")


def _free_processors(window: Window, root: SlowTasks, cause: Cause) -> Remedy:
    gain = _at_most(window, root, 1 / max(1e-2, 1 - cause.evidence["run_delay"]), "")
    what = {
        "machine_taken": "stop the other programs, or move the job",
        "stolen_processor": "move the job to a host with free processors",
        "processor_quota": "raise the quota of its container",
    }[cause.name]
    return gain.remedy(f"{what}, which would carry {_times(gain)}")


def _at_most(window: Window, root: SlowTasks | SlowDriver, factor: float, limit: str) -> Gain:
    further = next_limit(window, root.vertex)
    return Gain(factor, limit) if factor <= further.factor else further


def _times(gain: Gain) -> str:
    return f"{gain.times}{_then(gain)}"


def _then(gain: Gain) -> str:
    return f" (then {gain.limit})" if gain.limit else ""
