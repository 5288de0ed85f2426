"""The threads of a TaskManager's tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from headgate.errors import HeadgateError
from headgate.runtime.running_operator import operator_of_thread
from headgate.runtime.task.task import Task
from headgate.runtime.task.task_thread import run_task

#: Seconds in which a cancelled task must end. After this time its function is reported as stuck.
CANCEL_TIMEOUT = 2.0


class TaskThreads:
    """Runs each task of a TaskManager in a thread of its own.

    When a task has ended, its thread calls `done` with the task, and with the task's error or None.
    """

    def __init__(self, done: Callable[[Task, HeadgateError | None], None]) -> None:
        self._done = done
        self._threads: dict[str, threading.Thread] = {}

    def start(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            thread = threading.Thread(
                target=run_task, args=(task, self._done), name=f"headgate-{task.name}", daemon=True
            )
            self._threads[task.name] = thread
            thread.start()

    def join(self) -> dict[str, str]:
        """Wait for the end of all tasks. The caller has cancelled the tasks.

        Returns the tasks that did not end in time: task name to the operator whose function does not return.
        """
        deadline = time.monotonic() + CANCEL_TIMEOUT
        stuck = {}
        for name, thread in self._threads.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                stuck[name] = operator_of_thread(thread) or name
        return stuck


class StuckTasks(HeadgateError):
    """An error: user functions did not return after a cancel."""

    def __init__(self, operators: Sequence[str]) -> None:
        super().__init__(f"a user function of {', '.join(operators)} did not return within {CANCEL_TIMEOUT:g} s")
