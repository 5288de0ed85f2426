"""Drives a task of the runtime in virtual time. It replaces the task's thread and mailbox."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from headgate.errors import HeadgateError
from headgate.runtime.task.heads import END, MORE
from headgate.runtime.task.task import Task
from headgate.runtime.task.time_account import TASK
from headgate.simulation.virtual_thread import VirtualThread
from headgate.simulation.work import Work

#: Called with a task that has ended, and the error that ended it, if any.
Done = Callable[[Task, HeadgateError | None], None]


class TaskDriver(VirtualThread):
    """The thread and the mailbox of one task. `start` gives it the task. Its turns take time."""

    def __init__(self, work: Work, done: Done) -> None:
        super().__init__(work.world)
        self._work = work
        self._done = done
        self._mail: deque[Callable[[], None]] = deque()
        self._task: Task | None = None
        self._bucket = TASK
        self._waits = False

    def start(self, task: Task) -> None:
        """Run the turns of `task` from now on."""
        self._task = task
        self.wake()

    def put(self, mail: Callable[[], None]) -> None:
        """Let the task run `mail` between two batches."""
        self._mail.append(mail)
        self.wake()

    def run(self) -> None:
        """Run the mail that has come."""
        while self._mail:
            self._mail.popleft()()

    def wait(self, timeout: float | None) -> object:
        """Raise HeadgateError: the task would wait in the middle of a batch, and no other thread runs meanwhile."""
        raise HeadgateError(
            "a simulated task cannot wait in the middle of a batch: one batch makes more output than the budget for "
            "pending bytes holds. Let the source make smaller batches"
        )

    def turn(self) -> float:
        """Run one turn of the task, and account for its wait as the thread of a real task does."""
        task, world = self._task, self.world
        if task is None or task.has_ended:
            return math.inf
        if self._waits:
            self._waits = False
            task.times.switch(self._bucket)
        self._work.take_task_turn()
        try:
            until = task.turn(world.clock())
        except HeadgateError as error:
            self._end(task, error)
            return math.inf
        if until == END:
            self._end(task, None)
            return math.inf
        if until == MORE:
            return world.clock()
        self._waits = True
        self._bucket = task.times.switch(task.waits_for)
        return until

    def _end(self, task: Task, error: HeadgateError | None) -> None:
        closing_error = task.close()
        self._done(task, error or closing_error)
