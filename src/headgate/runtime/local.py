"""LocalDeployment: TaskManagers on this machine, as threads of this process or as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from headgate.config import Config
from headgate.errors import ConfigError, HeadgateError
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from headgate.runtime.taskmanager import TaskManager

_LOOPBACK = "127.0.0.1"


class LocalDeployment:
    """`taskmanagers` of them, each with ceil(parallelism / taskmanagers) slots, so that every parallelism runs.

    With `processes=False` functions and what they close over are the user's own objects; with True they are copies, in
    processes that need no `__main__` guard. All sockets are on loopback.
    """

    def __init__(self, taskmanagers: int = 1, processes: bool = False) -> None:
        if isinstance(taskmanagers, bool) or not isinstance(taskmanagers, int) or taskmanagers < 1:
            raise ConfigError(f"taskmanagers={taskmanagers!r} must be a whole number, 1 or more")
        self._count = taskmanagers
        self._processes = processes
        self.name = f"local, {taskmanagers} {'process' if processes else 'thread'} TaskManager(s)"

    def taskmanagers(self, parallelism: int, config: Config) -> int:
        return min(self._count, parallelism)

    def check(self, needed: int, config: Config) -> None:
        """There is always room."""

    def bind_hosts(self) -> str:
        return _LOOPBACK

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        return _Processes(spec, count, on_exit) if self._processes else _Threads(spec, count, on_exit)


class _Threads:
    """TaskManagers as threads. They cannot be killed: `cancel` has nothing to add to what the driver tells them."""

    can_kill = False

    def __init__(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> None:
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(spec, index, on_exit),
                name=f"headgate-taskmanager-{spec.job}-{index}",
                daemon=True,
            )
            for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _run(spec: TaskManagerSpec, index: int, on_exit: OnExit) -> None:
        reason = ""
        try:
            TaskManager(spec, index, _LOOPBACK).run()
        except HeadgateError as error:
            reason = str(error)
        finally:
            on_exit(index, reason)

    def cancel(self) -> None: ...

    def join(self, timeout: float) -> bool:
        for thread in self._threads:
            thread.join(timeout)
        return not any(thread.is_alive() for thread in self._threads)


class _Processes:
    """TaskManagers as child processes. The plan goes down a pipe, which also ends a child whose parent is gone."""

    can_kill = True

    def __init__(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> None:
        payload = spec.pickled()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._children: list[subprocess.Popen[bytes]] = []
        self._watchers: list[threading.Thread] = []
        for index in range(count):
            child = subprocess.Popen(
                [sys.executable, "-m", "headgate.runtime.child", str(index), _LOOPBACK],
                stdin=subprocess.PIPE,
                env=environment,
            )
            self._children.append(child)
            watcher = threading.Thread(
                target=self._watch, args=(child, payload, index, on_exit), name=f"headgate-child-{index}", daemon=True
            )
            self._watchers.append(watcher)
            watcher.start()

    @staticmethod
    def _watch(child: subprocess.Popen[bytes], payload: bytes, index: int, on_exit: OnExit) -> None:
        assert child.stdin is not None
        try:
            child.stdin.write(len(payload).to_bytes(8, "big") + payload)
            child.stdin.flush()
        except OSError:
            pass  # it died at once; its exit code says more
        code = child.wait()
        child.stdin.close()
        on_exit(index, _exit_reason(code, child.pid))

    def cancel(self) -> None:
        for child in self._children:
            if child.poll() is None:
                child.kill()

    def join(self, timeout: float) -> bool:
        for watcher in self._watchers:
            watcher.join(timeout)
        return not any(watcher.is_alive() for watcher in self._watchers)


def _exit_reason(code: int, pid: int) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"process {pid} was killed by {signal.Signals(-code).name}"
    return f"process {pid} ended with exit code {code}"
