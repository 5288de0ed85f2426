"""Detects executors of a `local-cluster` that end before they register.

Spark replaces such executors forever, and says so only in its log. The executors run on this machine, so this module
looks at their folders and processes.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from pyspark import SparkContext

from headgate.errors import NotEnoughSlots

#: How often to look, in seconds. An executor may still start if its process is missing once. If its process is missing
#: at two looks, the executor has ended.
_INTERVAL = 1.0
#: How many ended executors are an error. A single executor may have ended by accident.
_MANY = 2
#: The first line of a Java error in a log.
_ERROR = re.compile(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error): .+)", re.M)


class FailingExecutors:
    """Checks for failing executors while a job waits for slots. Does nothing unless the master is `local-cluster`."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._is_watching = str(context.master).startswith("local-cluster")
        self._next_look = time.monotonic()
        self._missing: set[int] = set()

    def look(self) -> None:
        """Raise NotEnoughSlots when several executors have ended before they registered."""
        if not self._is_watching or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _INTERVAL
        folder = Path(self._context._jvm.java.lang.System.getenv("SPARK_HOME") or ".")  # type: ignore[union-attr]
        folder = folder / "work" / str(self._context.applicationId)
        launched = {int(entry.name) for entry in folder.glob("[0-9]*")}
        before = self._missing
        self._missing = launched - self._registered() - _running(str(self._context.applicationId))
        ended = self._missing & before
        if len(ended) >= _MANY:
            raise NotEnoughSlots(self._message(folder, sorted(ended)))

    def _registered(self) -> set[int]:
        """Return the numbers of all executors that have ever registered."""
        executors = self._context._jsc.sc().statusStore().executorList(False)
        names = [str(executors.apply(at).id()) for at in range(executors.size())]
        return {int(name) for name in names if name.isdigit()}

    def _message(self, folder: Path, ended: list[int]) -> str:
        host = self._context.getConf().get("spark.driver.host")
        log = folder / str(ended[-1]) / "stderr"
        return (
            f"executors of {self._context.master} end before they register, {len(ended)} so far; the last one said: "
            f"{_reason(log)} ({log}). They may not reach the driver at {host}, which comes from this machine's "
            "name: set SPARK_LOCAL_IP=127.0.0.1 in the environment before Spark starts"
        )


def _running(application: str) -> set[int]:
    """Return the numbers of an application's executors that have a process on this machine."""
    numbers = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # the process has ended
        if application in words and "--executor-id" in words:
            numbers.add(int(words[words.index("--executor-id") + 1]))
    return numbers


def _reason(log: Path) -> str:
    """Return the last error in an executor's log. The last error names the cause of the errors before it."""
    try:
        errors = _ERROR.findall(log.read_text(errors="replace"))
    except OSError:
        errors = []
    return errors[-1] if errors else "nothing"
