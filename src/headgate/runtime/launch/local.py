"""`LocalDeployment`: runs TaskManagers on this machine, as threads of this process or as processes of their own."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import AbstractContextManager, nullcontext

from headgate.config import Config
from headgate.errors import ConfigError, HeadgateError, PlanError, TaskManagerLost
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec, cut_off
from headgate.runtime.launch.cores import usable_cores
from headgate.runtime.launch.forks import Fork, server
from headgate.runtime.launch.framing import CUT_OFF, DONE, NOT_REPORTED

_LOOPBACK = "127.0.0.1"
#: Seconds to wait for the end of children that were killed because not all children could be started.
_KILL_TIMEOUT = 2.0


class LocalDeployment:
    """Run a job on this machine: in one process for each slot, up to the number of cores.

    With `processes=True` each TaskManager is a process of its own. There, functions and the variables that they close
    over are copies. Lines that functions print appear here as `operator[subtask] | line`. A script needs no `__main__`
    guard: the processes are forks of a server process, which has imported Headgate and none of your modules. The
    server process ends after a minute without a job.

    With `processes=False` each TaskManager is a thread of this process. Functions and the variables that they close
    over are your own objects, and a debugger stops in functions. Threads share one interpreter lock, so more subtasks
    make a job slower. A keyed sum processed 10.9 million rows/s at parallelism 2, and 17.4 million at parallelism 1.

    `taskmanagers` is the number of TaskManagers. Each has ceil(parallelism / taskmanagers) slots, so that every
    parallelism runs. By default there is one TaskManager for each slot of the job, up to the number of cores that this
    process may use. With threads the default is one. On systems other than Linux, threads are the default. All sockets
    are on loopback.
    """

    def __init__(self, taskmanagers: int | None = None, processes: bool = sys.platform == "linux") -> None:
        is_count = isinstance(taskmanagers, int) and not isinstance(taskmanagers, bool) and taskmanagers >= 1
        if taskmanagers is not None and not is_count:
            raise ConfigError(f"taskmanagers={taskmanagers!r} must be a whole number, 1 or more")
        if not isinstance(processes, bool):
            raise ConfigError(f"processes={processes!r} must be True or False")
        self._count = taskmanagers or (usable_cores() if processes else 1)
        self._processes = processes
        self.copies_functions = processes
        self.name = f"local, {self._count} {'process' if processes else 'thread'} TaskManager(s)"

    def warm_up(self) -> None:
        if self._processes:
            server.start()

    def taskmanagers(self, parallelism: int, config: Config) -> int:
        return min(self._count, parallelism)

    def reserve(
        self, taskmanagers: int, config: Config, slots: int, cancelled: threading.Event
    ) -> AbstractContextManager[None]:
        """Return a context that reserves nothing: there is always room."""
        return nullcontext()

    def bind_hosts(self) -> str:
        return _LOOPBACK

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        return _Processes(spec, count, on_exit) if self._processes else _Threads(spec, count, on_exit)


class _Threads:
    """The gang of a `LocalDeployment` with threads. Threads cannot be killed, so `cancel` does nothing."""

    can_kill = False

    def __init__(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> None:
        self._threads = []
        for index in range(count):
            name = f"headgate-taskmanager-{spec.job}-{index}"
            thread = threading.Thread(target=self._run, args=(spec, index, on_exit), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    @staticmethod
    def _run(spec: TaskManagerSpec, index: int, on_exit: OnExit) -> None:
        from headgate.runtime.taskmanager.taskmanager import (
            TaskManager,  # imported here: a program whose jobs run in processes does not need it
        )

        reason = ""
        try:
            TaskManager(spec, index, _LOOPBACK).run()
        except HeadgateError as error:
            reason = str(error)
        finally:
            on_exit(index, reason)

    def cancel(self) -> None: ...

    def join(self, timeout: float) -> bool:
        return _join(self._threads, timeout)

    def why_waiting(self) -> str:
        return ""


class _Processes:
    """The gang of a `LocalDeployment` with processes. The driver sends the plan through a pipe.

    When the driver ends, the pipe closes and the process ends, too.
    """

    can_kill = True

    def __init__(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> None:
        try:
            payload = spec.pickled()
        except PlanError as error:
            error.message += (
                "; or run the job in threads of this process: deployment=hg.LocalDeployment(processes=False)"
            )
            raise
        self._forks: list[Fork] = []
        self._watchers: list[threading.Thread] = []
        self._driver = spec.control_address
        try:
            for index in range(count):
                self._start(payload, index, count, on_exit)
        except BaseException as error:  # an interrupt, too
            self.cancel()
            self.join(_KILL_TIMEOUT)
            if isinstance(error, OSError):
                raise TaskManagerLost(f"cannot start TaskManager {len(self._forks)}'s process: {error}") from error
            raise

    def _start(self, payload: bytes, index: int, count: int, on_exit: OnExit) -> None:
        fork = Fork(payload, index, count, _LOOPBACK)
        self._forks.append(fork)
        watcher = threading.Thread(
            target=self._watch, args=(fork, index, self._driver, on_exit), name=f"headgate-child-{index}", daemon=True
        )
        watcher.start()
        self._watchers.append(watcher)

    @staticmethod
    def _watch(fork: Fork, index: int, driver: tuple[str, int], on_exit: OnExit) -> None:
        on_exit(index, _exit_reason(fork.wait(), driver))

    def cancel(self) -> None:
        for fork in self._forks:
            fork.kill()

    def join(self, timeout: float) -> bool:
        return _join(self._watchers, timeout)

    def why_waiting(self) -> str:
        return ""


def _join(threads: list[threading.Thread], timeout: float) -> bool:
    """Wait at most `timeout` seconds until all threads have ended. Returns whether all threads have ended."""
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def _exit_reason(ended: tuple[int, int] | None, driver: tuple[str, int]) -> str:
    if ended is None:
        return "the process that starts TaskManagers was killed"
    process, code = ended
    if not process:
        return "the system can start no more processes"
    if code == DONE:
        return ""
    if code < 0:
        return f"process {process} was killed by {signal.Signals(-code).name}"
    if code == CUT_OFF:
        return cut_off(driver)
    if code == NOT_REPORTED:
        return f"process {process} could not tell the driver why it ended; its standard error shows the reason"
    return f"process {process} ended with exit code {code}, as after os._exit({code}) in a function"
