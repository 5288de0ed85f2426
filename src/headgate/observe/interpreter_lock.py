"""Find the tasks that wait for the interpreter lock, and the tasks of their process that compute and hold the lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from headgate.observe.metrics_window import TaskWindow, Window

#: A task that uses a processor for less than this share of its busy time waits for something. A task that waits for
#: the lock uses less than this share of the processor time of the task that holds the lock.
_WORKS: Final = 0.5
#: The least mean wait for the lock, in seconds, that slows a task. The interpreter hands over the lock after at most
#: 5 ms.
LONG_WAIT: Final = 0.002
#: Where no samples show waits for the lock, a task waits for it at most this many times per batch. If it waits longer,
#: it waits for something else.
_TURNS: Final = 10
#: A task waits for the lock if it does so for this share of the time in which it does not work.
_MOSTLY: Final = 0.5
#: The tasks of a vertex compute if they use at least this many processors together.
_COMPUTE: Final = 0.5


def wait_for_the_lock(window: Window, tasks: Sequence[TaskWindow]) -> bool:
    """Return whether all these tasks wait for the lock, which other tasks of their process hold, or may be waiting."""
    return all(_waits(window, task) for task in tasks)


def holder_of_the_lock(window: Window, tasks: Sequence[TaskWindow]) -> tuple[TaskWindow, ...]:
    """Return the tasks that hold the lock for which `tasks` wait.

    These are the computing tasks of the vertex that uses most processor time in the processes of `tasks`. The result is
    empty if no vertex computes. Tasks that have ended hold no lock.
    """
    processes = {task.taskmanager for task in tasks}
    used: dict[int, float] = defaultdict(float)
    for task in window.tasks:
        if task.taskmanager in processes and not task.ended:
            used[task.vertex] += task.cpu or 0.0
    vertex = max(used, key=lambda each: used[each])
    if used[vertex] < _COMPUTE:
        return ()
    most = max(task.cpu or 0.0 for task in window.of(vertex))
    return tuple(task for task in window.of(vertex) if (task.cpu or 0.0) >= _WORKS * most)


def off_per_batch(window: Window, task: TaskWindow) -> float:
    """Return the seconds for which a busy task is off the processor for each batch."""
    return (task.busy - (task.cpu or 0.0)) * window.seconds / max(1, task.batches_in)


def _waits(window: Window, task: TaskWindow) -> bool:
    if task.cpu is None:
        return False
    most = max(each.cpu or 0.0 for each in window.tasks if each.taskmanager == task.taskmanager)
    if task.cpu >= _WORKS * min(task.busy, most):
        return False
    if task.lock is not None:
        return task.lock >= _MOSTLY * (task.busy - task.interpreter - task.cpu - (task.run_delay or 0.0))
    wait = window.processes[task.taskmanager].lock_wait
    return wait >= LONG_WAIT and off_per_batch(window, task) <= _TURNS * wait
