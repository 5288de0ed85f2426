"""The load of `storm`, more messages than the job can process; and the trace of a run, which shows stops and starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]

#: A source that emits nothing for more than this many seconds has been stopped. Its messages are due far more often.
STOPPED: Final = 0.2
#: A late source or sink makes up for at most this many seconds. This is less than the time between two messages: two
#: messages at once would become one entry in a queue of Storm.
SAVED: Final = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAndGoLoad:
    """A source emits `rate` messages/s, for `seconds`. A sink needs `cost` seconds for each message."""

    rate: float
    cost: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which the source emitted nothing, in seconds. `waiting` is how many messages waited when it began.

    `then_waiting` is how many waited when it ended.
    """

    begin: float
    end: float
    waiting: int
    then_waiting: int


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """When messages were emitted and processed, in seconds since the first one was emitted."""

    emitted: Times
    done: Times

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the trace in the files `emitted` and `done` of a folder. Each line is a time in milliseconds."""
        emitted, done = (np.loadtxt(folder / name, ndmin=1) / 1000 for name in ("emitted", "done"))
        return cls(emitted - emitted[0], done - emitted[0])

    def waiting(self, at: float) -> int:
        """Return how many messages were emitted and not yet processed at this time."""
        return int(np.searchsorted(self.emitted, at, side="right") - np.searchsorted(self.done, at, side="right"))

    @property
    def most_waiting(self) -> int:
        return max(self.waiting(at) for at in self.emitted)

    def stops(self) -> list[Stop]:
        """Return the stops that ended before the trace does."""
        ends = np.flatnonzero(np.diff(self.emitted) > STOPPED)
        times = [(float(self.emitted[at]), float(self.emitted[at + 1])) for at in ends]
        return [Stop(begin, end, self.waiting(begin), self.waiting(end) - 1) for begin, end in times]

    def stopped_share(self, seconds: float) -> float:
        """Return the share of a run of `seconds` in which the source was stopped. The run may end during a stop."""
        rest = seconds - float(self.emitted[-1])
        return (sum(stop.end - stop.begin for stop in self.stops()) + (rest if rest > STOPPED else 0.0)) / seconds

    def processed(self, begin: float, end: float) -> float:
        """Return the messages/s that were processed between two times."""
        return float(np.count_nonzero((self.done >= begin) & (self.done < end)) / (end - begin))
