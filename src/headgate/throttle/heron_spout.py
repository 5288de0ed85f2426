"""HeronSpout: a subtask for which too many bytes wait stops all sources of the job, as in Heron.

Each TaskManager does what a *stream manager* does in Heron: it watches the bytes that wait for its subtasks, tells all
others when they are too many for one of them, and stops reading from its own sources. The input queue of a subtask is
its *connection*: in Heron, a stream manager has a connection to each subtask of its own, and one to each other stream
manager. Facts and defaults are those of Heron's stream manager (`stmgr-server.cpp`, `baseconnection.cpp`) and of the
paper at SIGMOD 2015, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from headgate.errors import ConfigError
from headgate.quantities import size
from headgate.throttle.mechanism import NEVER, ComparedMechanism, JobOptions, Scope, Task, ThrottleSignal

#: A connection is full after more sends in a row than this that find too many unsent bytes. Heron reads an option for
#: it, but uses this constant.
_SENDS: Final = 3


@dataclass(frozen=True, slots=True)
class StartBackPressure(ThrottleSignal):
    """A TaskManager has a full connection: all sources stop. Nothing acknowledges or repeats it."""

    scope: ClassVar[Scope] = Scope.EVERYONE
    taskmanager: int


@dataclass(frozen=True, slots=True)
class StopBackPressure(ThrottleSignal):
    """A TaskManager has no full connection any more."""

    scope: ClassVar[Scope] = Scope.EVERYONE
    taskmanager: int


@dataclass(frozen=True, slots=True)
class HeronSpout(ComparedMechanism):
    """Heron: a subtask for which `high` bytes wait stops all sources of the job, until `low` bytes wait for it.

    Both are sizes. The bytes wait in the input queue of the subtask, which plays the role of Heron's connection to it.
    The fourth message in a row after which at least `high` bytes wait stops the sources. Operators between sources and
    the full queue do not stop. `network_memory` must be above `high`, and its default of 64 MiB is not. For
    `over_credit` see docs/concepts/mechanisms.md. Raises ConfigError for impossible values.

    >>> hg.throttle.HeronSpout(high="10 mb", low="5 mb")
    HeronSpout(high='10 mb', low='5 mb')
    """

    high: int | str = 100 << 20
    low: int | str = 50 << 20

    def __post_init__(self) -> None:
        if not 0 < size(self.low) <= size(self.high):
            raise ConfigError(
                f"low={self.low!r} and high={self.high!r} are impossible: both must be above 0, and low at most high"
            )

    def check(self, job: JobOptions) -> None:
        super(HeronSpout, self).check(job)
        if size(self.high) >= job.network_memory:
            raise ConfigError(
                f"throttle={self} could never stop a source: the job fails when network_memory={job.network_memory} "
                f"bytes wait in a queue, before high={size(self.high)} bytes do: set network_memory to more than high, "
                "or lower high and low"
            )

    def worker(self, taskmanager: int) -> HeronWorker:
        """Return the policy of one TaskManager: it watches the queues, and stops the sources there."""
        return HeronWorker(taskmanager, size(self.high), size(self.low))


class HeronWorker:
    """The part of HeronSpout in one TaskManager, and the source policy of all sources there.

    `end` is the subtask at the end of a connection. `sent` and `drained` return the signal for the other TaskManagers,
    or None. Nothing here is about lost connections: they end the attempt of a job, and the next one begins without
    signals.
    """

    def __init__(self, taskmanager: int, high: int, low: int) -> None:
        self._taskmanager = taskmanager
        self._high = high
        self._low = low
        #: For each connection: how many sends in a row have found too many unsent bytes so far.
        self._sends: dict[Task, int] = {}
        self._full: set[Task] = set()
        self._others: set[int] = set()

    # --- the watched connections

    def sent(self, end: Task, unsent: int) -> StartBackPressure | None:
        """Note the bytes that a connection still has to send after a message was added to it."""
        if unsent < self._high:
            self._sends.pop(end, None)
            return None
        self._sends[end] = self._sends.get(end, 0) + 1
        if self._sends[end] <= _SENDS or end in self._full:
            return None
        self._full.add(end)
        return StartBackPressure(self._taskmanager) if len(self._full) == 1 else None

    def drained(self, end: Task, unsent: int) -> StopBackPressure | None:
        """Note the bytes that a connection still has to send after it has sent some."""
        if unsent > self._low or end not in self._full:
            return None
        self._full.remove(end)
        self._sends.pop(end, None)
        return None if self._full else StopBackPressure(self._taskmanager)

    # --- the other TaskManagers

    def on_signal(self, now: float, signal: StartBackPressure | StopBackPressure) -> None:
        """Note the signal of another TaskManager."""
        if isinstance(signal, StartBackPressure):
            self._others.add(signal.taskmanager)
        else:
            self._others.discard(signal.taskmanager)

    # --- the sources

    @property
    def throttled(self) -> bool:
        """Whether a connection is full, here or elsewhere."""
        return bool(self._full or self._others)

    def permit(self, now: float) -> float:
        return NEVER if self.throttled else now

    def emitted(self, now: float, rows: int) -> None: ...
