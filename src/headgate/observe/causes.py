"""Find out why tasks are slow.

The possible causes are checked in the order of `_TESTS`, and the first that applies counts. If none applies, the cause
is the work of the busiest operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headgate.observe.durations import duration
from headgate.observe.finding import Cause
from headgate.observe.interpreter_lock import LONG_WAIT
from headgate.observe.metrics_window import OperatorWindow, TaskWindow, Window, mean, peers
from headgate.observe.own_work import empty_buffers, own_work
from headgate.observe.peer_rows import amounts_of_rows, peer_rows, with_most_rows
from headgate.observe.roots import SlowTasks, ThrottledSource

#: The least share of a task's time that makes the machine (processors, disks) or the task's own work the cause.
_BURDEN: Final = 0.25
#: Other programs take the machine if they use at least so many times the processors that the job uses.
_TAKES: Final = 0.5
#: The least share of a process's time that makes the garbage collector the cause. It stops all tasks of the process.
_COLLECTOR: Final = 0.20
#: A task whose thread uses a processor for less than this share of its busy time waits for something outside.
_WORKS: Final = 0.5
#: A process that reads and writes fewer bytes/s than this does not wait for a disk, however busy the disks are. This
#: limit counts only if no samples of threads show whether they wait for a disk.
_DISK_BYTES: Final = 1 << 20
#: A subtask has nothing to do if it waits for input for at least this share of the time.
_IDLE: Final = 0.9
#: A subtask has more rows, or is slower, than its peers by this factor (Heron's limit).
_UNLIKE: Final = 1.5
#: The threads of a process that use this many processors together are at the limit of one interpreter lock.
_ONE_PROCESSOR: Final = 0.8
#: A thread that uses more of a processor than this competes for the lock.
_COMPETES: Final = 0.1


def cause_of(windows: Sequence[Window], root: SlowTasks) -> Cause:
    """Return why the tasks of `root` are slow in the last of these windows."""
    for test in _TESTS:
        cause = test(windows, root)
        if cause is not None:
            return cause
    return _function(windows[-1], root)


def throttle_cause(window: Window, root: ThrottledSource) -> Cause:
    """Return the cause of a throttled source: its static throttle."""
    throttle = window.topology.vertices[root.vertex].operators[0].static_throttle
    rate = window.taken(root.vertex) / window.seconds
    return Cause(
        name="throttle",
        text=f"its throttle {throttle} lets {rate:,.0f} rows/s through, and holds it back {root.share:.0%} of the time",
        evidence={"throttled": root.share, "rows_per_s": rate},
    )


def cpu_share(tasks: Sequence[TaskWindow]) -> float | None:
    """Return the share of the tasks' busy time in which their threads used a processor, 0 to 1.

    The time for which they waited for other tasks of their process is not part of the busy time here.
    Returns None if the processor time of a task is unknown.
    """
    works = [(task.cpu, task.busy - task.kept_back) for task in tasks if task.cpu is not None]
    shares = [cpu / busy if busy > 0 else 0.0 for cpu, busy in works]
    return min(1.0, sum(shares) / len(shares)) if len(shares) == len(tasks) else None


def busiest(tasks: Sequence[TaskWindow]) -> int:
    """Return the id of the operator on which the tasks spend most of their time."""
    ids = tasks[0].operators
    return max(ids, key=lambda each: mean(tasks, lambda task: task.operators[each].busy))


def factor_text(factor: float) -> str:
    """Return a factor for a sentence, with a decimal if it is small.

    >>> factor_text(1.26), factor_text(796.4)
    ('1.3', '796')
    """
    return f"{factor:.1f}" if factor < 9.5 else f"{factor:.0f}"


def _collector(window: Window, root: SlowTasks) -> Cause | None:
    """Find a garbage collector that stops the tasks, unless they wait longer for something else."""
    share = _worst(window, root, "collection_s")
    if share is None or share < max(_COLLECTOR, _waits_outside(root) / 2):
        return None
    return Cause(
        name="garbage_collection",
        text=f"Python's garbage collector takes {share:.0%} of its process's time",
        evidence={"collection": share},
    )


def _waits_outside(root: SlowTasks) -> float:
    """Return the share of the time in which tasks neither compute nor wait for a processor, 0 if it is unknown."""
    known = [task for task in root.tasks if task.cpu is not None]
    waits = [task.busy - task.kept_back - (task.cpu or 0.0) - (task.run_delay or 0.0) for task in known]
    return sum(waits) / len(waits) if len(waits) == len(root.tasks) else 0.0


def _machine(windows: Sequence[Window], root: SlowTasks) -> Cause | None:
    """Find tasks that wait for a processor that the job does not get."""
    window, delay = windows[-1], _processor_wait(windows, root)
    if delay is None:
        return None
    # The kernel adds up the throttled time of all processors.
    throttled, steal = _worst(window, root, "throttled_s") or 0.0, _worst(window, root, "steal_s") or 0.0
    evidence = {"run_delay": delay, "throttled": throttled, "steal": steal, "own_cpu": window.cpu or 0.0}
    if throttled >= _BURDEN:
        return Cause(
            name="processor_quota",
            text=f"its control group has used up its processor quota for {min(1.0, throttled):.0%} of the time",
            evidence=evidence,
        )
    if steal >= _BURDEN:
        return Cause(
            name="stolen_processor", text=f"the host gives {steal:.1f} of its processors to others", evidence=evidence
        )
    busy, own = _worst(window, root, "machine_cpu_s"), _processes_cpu(window, root)
    others = None if busy is None else busy - own
    if others is not None and others >= max(_BURDEN, _TAKES * own):
        return Cause(
            name="machine_taken",
            text=f"it waits for a processor {delay:.0%} of the time, and other programs use {others:.1f} processors",
            evidence={**evidence, "others_cpu": others},
        )
    return None


def _out_of_cpu(windows: Sequence[Window], root: SlowTasks) -> Cause | None:
    """Find tasks that wait for a processor that other tasks of the job use."""
    delay = _processor_wait(windows, root)
    if delay is None:
        return None
    return Cause(
        name="out_of_cpu",
        text=f"it waits for a processor {delay:.0%} of the time: the job itself uses most of them",
        evidence={"run_delay": delay, "own_cpu": windows[-1].cpu or 0.0},
    )


def _processor_wait(windows: Sequence[Window], root: SlowTasks) -> float | None:
    """Return the share of the time in which tasks wait for a processor, if this makes them slow.

    Returns None if they are so much slower than their peers that this wait explains only a small part.
    """
    delays = [task.run_delay for task in root.tasks if task.run_delay is not None]
    off = [task.busy - task.kept_back - task.cpu for task in root.tasks if task.cpu is not None]
    if min(len(delays), len(off)) < len(root.tasks):
        return None
    delay = sum(delays) / len(delays)
    waits = sum(off) / len(off) - delay
    if delay < max(_BURDEN, waits) or _times_slower(windows, root) * (1 - delay) > _UNLIKE:
        return None
    return delay


def _interpreter_lock(window: Window, root: SlowTasks) -> Cause | None:
    """Find several busy tasks that share one interpreter lock.

    A task that waits for the lock gets its turns, and so a part of the processor time that the tasks use. A task that
    uses much less than an equal part sleeps, or waits for something outside. A task that uses 1.5 times an equal part,
    or more than twice as much as any other task, holds the lock and is slow by itself. So is a task that works longer
    for a row than its peers, the waits left out.
    """
    if _works_longer(window, root):
        return None
    waits = mean(root.tasks, lambda task: task.kept_back)
    if waits >= _BURDEN:
        return Cause(
            name="interpreter_lock",
            text=f"it waits {waits:.0%} of the time for other tasks of its process, which share one interpreter lock",
            evidence={"interpreter_wait": waits},
        )
    for task in root.tasks:
        wait = window.processes[task.taskmanager].lock_wait
        tasks = [other for other in window.tasks if other.taskmanager == task.taskmanager and not other.ended]
        used = [other.cpu for other in tasks if other.cpu is not None]
        if wait < LONG_WAIT or sum(used) < _ONE_PROCESSOR:
            continue
        if task.cpu is None or sum(cpu > max(_COMPETES, task.cpu / 2) for cpu in used) < 2:
            continue
        equal = sum(used) / sum(cpu > _COMPETES for cpu in used)
        if equal / 2 <= task.cpu < min(_UNLIKE * equal, (1 - _BURDEN) * task.busy):
            return Cause(
                name="interpreter_lock",
                text=f"{len(tasks)} tasks share one interpreter lock, and wait {wait * 1000:.0f} ms for it each time",
                evidence={"lock_wait_s": wait, "process_cpu": sum(used)},
            )
    return None


def _works_longer(window: Window, root: SlowTasks) -> bool:
    """Return whether hot subtasks work longer for a row than their peers, without waits for tasks of their process."""
    hot, _ = _hot_and_others(window, root)
    others = [task for task in window.of(root.vertex) if task.subtask not in hot]
    is_longer = _work_per_row(root.tasks) > _UNLIKE * _work_per_row(others)
    return not root.all and any(task.rows_in for task in others) and is_longer


def _work_per_row(tasks: Sequence[TaskWindow]) -> float:
    """Return the busy share of a window for each row, without waits for other tasks of the process."""
    return sum(task.busy - task.kept_back for task in tasks) / max(1, sum(task.rows_in for task in tasks))


def _skew(windows: Sequence[Window], root: SlowTasks) -> Cause | None:
    """Find hot subtasks that get more rows than their peers."""
    if not root.all and peer_rows(windows, root).are_old:
        return None
    amounts = amounts_of_rows(windows, root)
    hottest = with_most_rows(root, amounts)
    if hottest.all and len(hottest.tasks) > 1:
        return None
    hot, others = _hot_and_others(windows[-1], hottest)
    if not others:
        return None
    rows, usual = sum(amounts[each] for each in hot) / len(hot), max(1.0, peers([amounts[each] for each in others]))
    if rows < _UNLIKE * usual or _times_slower(windows, hottest) > _UNLIKE:
        return None
    share = sum(amounts[each] for each in hot) / sum(amounts.values())
    return Cause(
        name="data_skew",
        text=f"it gets {share:.0%} of the rows, {factor_text(rows / usual)} times as many as its peers",
        evidence={"share_of_rows": share, "times_peers": rows / usual},
    )


def _slow_instance(windows: Sequence[Window], root: SlowTasks) -> Cause | None:
    """Find hot subtasks that need longer for a row than their peers."""
    factor = _times_slower(windows, root)
    if factor <= _UNLIKE:
        return None
    return Cause(
        name="slow_instance",
        text=f"it needs {factor_text(factor)} times as long for a row as its peers",
        evidence={"times_peers": factor, **_cpu(root)},
    )


def _times_slower(windows: Sequence[Window], root: SlowTasks) -> float:
    """Return how many times as long as its peers the root needs for a row. Return 1 if it has no peers, or took no
    rows."""
    hot, others = _hot_and_others(windows[-1], root)
    if root.all or not others:
        return 1.0
    taken = peer_rows(windows, root)
    rate = taken.usual_rate(hot)
    return taken.usual_rate(others) / rate if rate > 0 else 1.0


def _hot_and_others(window: Window, root: SlowTasks) -> tuple[list[int], list[int]]:
    hot = [task.subtask for task in root.tasks]
    return hot, [task.subtask for task in window.of(root.vertex) if task.subtask not in hot]


def _disk(window: Window, root: SlowTasks) -> Cause | None:
    share, cpu = _disk_wait(window, root), cpu_share(root.tasks)
    if share < _BURDEN or cpu is None or cpu > _WORKS:
        return None
    return Cause(name="disk", text=f"it waits for a disk {share:.0%} of the time", evidence={"disk_wait": share})


def _disk_wait(window: Window, root: SlowTasks) -> float:
    """Return the share of the time in which the root waits for a disk: by samples of its threads if there are any."""
    sampled = [task.disk_wait for task in root.tasks if task.disk_wait is not None]
    return sum(sampled) / len(sampled) if sampled else _pressure_of_disks(window, root)


def _pressure_of_disks(window: Window, root: SlowTasks) -> float:
    """Return the share of the time in which some program waited for a disk, if the root's process uses disks."""
    pressure, delay = _worst(window, root, "io_pressure_s"), _worst(window, root, "block_delay_s")
    moved = sum(_worst(window, root, name) or 0.0 for name in ("disk_read_bytes", "disk_written_bytes"))
    return max(pressure or 0.0, delay or 0.0) if moved >= _DISK_BYTES else 0.0


def _few_splits(window: Window, root: SlowTasks) -> Cause | None:
    """Find a source with more subtasks than splits: some subtasks are slow, and all others have nothing to read."""
    vertex = window.topology.vertices[root.vertex]
    if vertex.operators[0].kind != "source":
        return None
    tasks = [task for task in window.tasks if task.vertex == root.vertex]
    without = [task for task in tasks if task.ended or (not task.rows_in and task.idle >= _IDLE)]
    if not without or len(without) + len(root.tasks) < len(tasks):
        return None
    return Cause(
        name="few_splits",
        text=f"only {len(root.tasks)} of its {len(tasks)} subtasks have rows to read",
        evidence={"reading": float(len(root.tasks)), "subtasks": float(len(tasks))},
    )


_Test = Callable[[Sequence[Window], SlowTasks], Cause | None]


def _in_the_last(test: Callable[[Window, SlowTasks], Cause | None]) -> _Test:
    """Return a test that calls `test` with the last window."""
    return lambda windows, root: test(windows[-1], root)


#: The tests in their order: causes outside of the job come before causes inside. Data skew comes before the processor,
#: because no machine makes a subtask get more rows. So do nearly empty buffers before a lack of processors: to send
#: them is what the job uses its processors for.
_TESTS: Final[tuple[_Test, ...]] = (
    _in_the_last(_collector),
    _in_the_last(_few_splits),
    _skew,
    _machine,
    _in_the_last(empty_buffers),
    _out_of_cpu,
    _in_the_last(_interpreter_lock),
    _in_the_last(_disk),
    _in_the_last(own_work),
    _slow_instance,
)


#: By the kind of an operator: the name of the cause, and the subject of its sentence. For other kinds, the cause is the
#: operator's function.
_KINDS: Final = {
    "source": ("slow_source", "its reader"),
    "sink": ("slow_sink", "its sink"),
    "lookup": ("slow_lookup", "its lookup"),
}


def _function(window: Window, root: SlowTasks) -> Cause:
    """Return the cause that remains if no test matches: the work of the busiest operator."""
    operator = window.topology.operator(busiest(root.tasks))
    cpu = cpu_share(root.tasks)
    waits = cpu is not None and cpu < _WORKS
    name, subject = _KINDS.get(operator.kind, ("waiting_function" if waits else "slow_function", "its function"))
    batch = _seconds_per_batch([task.operators[operator.id] for task in root.tasks])
    takes = "has not returned from a batch" if batch is None else f"takes {duration(batch)} a batch"
    off = f", and its thread is off the processor for {1 - (cpu or 0.0):.0%} of it" if waits else ""
    asking = mean(root.tasks, lambda task: task.operators[operator.id].lookup_wait)
    if asking:
        off = f", and it waits for the lookup's answers for {asking:.0%} of the time"
    return Cause(
        name=name,
        text=f"{subject} {takes}{off}",
        evidence={
            **_cpu(root),
            **({"lookup_wait": asking} if asking else {}),
            "seconds_per_batch": batch or 0.0,
            "busy": mean(root.tasks, lambda task: task.busy),
        },
    )


def _cpu(root: SlowTasks) -> dict[str, float]:
    """Return the evidence about the processor, or an empty dict if the processor time is unknown."""
    cpu = cpu_share(root.tasks)
    return {} if cpu is None else {"cpu": cpu}


def _seconds_per_batch(operators: Sequence[OperatorWindow]) -> float | None:
    times = [each.seconds_per_batch for each in operators]
    known = [time for time in times if time is not None]
    return sum(known) / len(known) if known else None


def _worst(window: Window, root: SlowTasks, name: str) -> float | None:
    """Return the largest rate of a counter among the processes of the root's tasks, or None if no rate is known."""
    rates = [window.processes[task.taskmanager].rate(name) for task in root.tasks]
    known = [rate for rate in rates if rate is not None]
    return max(known) if known else None


def _processes_cpu(window: Window, root: SlowTasks) -> float:
    """Return the processors that the job's processes use on the machines of the root's tasks."""
    hosts = {window.processes[task.taskmanager].host for task in root.tasks}
    return sum(process.rate("cpu_s") or 0.0 for host in hosts for process in window.processes_on(host))
