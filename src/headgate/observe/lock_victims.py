"""Find slow tasks that only wait for the interpreter lock, because other tasks of their process compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.observe.metrics_window import TaskWindow, Window

#: A task that uses a processor for less than this share of its busy time waits for something.
_WORKS: Final = 0.5
#: The least mean wait for the lock, in seconds. The interpreter hands over the lock after at most 5 ms.
_LONG_WAIT: Final = 0.002
#: A batch takes the lock so many times at most. What it waits beyond that, it waits for something else.
_TURNS: Final = 10
#: Other tasks compute if they use so much of a processor together.
_COMPUTE: Final = 0.5


def wait_for_the_lock(window: Window, tasks: Sequence[TaskWindow]) -> bool:
    """Return whether the waits of all these tasks can be waits for the lock, which others of their process hold."""
    return all(_waits(window, task) for task in tasks)


def _waits(window: Window, task: TaskWindow) -> bool:
    process = window.processes[task.taskmanager]
    probes, waited = process.rate("lock_probes"), process.rate("lock_wait_s")
    if not probes or waited is None or task.cpu is None or task.cpu >= _WORKS * task.busy:
        return False
    others = [each for each in window.tasks if each.taskmanager == task.taskmanager and each is not task]
    if waited / probes < _LONG_WAIT or sum(each.cpu or 0.0 for each in others) < _COMPUTE:
        return False
    off = (task.busy - task.cpu) * window.seconds / max(1, task.batches_in)
    return off <= _TURNS * waited / probes
