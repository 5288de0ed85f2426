"""`TimeShard`: the key groups of a subtask that have reached the same point of event time.

Usually all key groups of a subtask are in one shard. After a restart with another parallelism, the key groups may come
from several former subtasks, whose watermarks may differ. A window that fired in a former subtask must not fire again.
A row that was on time in a former subtask must not be late. Each shard therefore resumes from its own point of event
time. The shards merge when the subtask's watermark has passed all these points.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.operators.windows.window_state import WindowState
from headgate.records.canonical import Bools, Int64s


@dataclass(slots=True)
class TimeShard:
    """The window state of some key groups, and their point of event time. Times are microseconds since the epoch."""

    state: WindowState
    watermark: int
    #: The number of the last window that has fired, and the number of the last window that was removed.
    fired: int
    closed: int
    groups: list[range] = field(default_factory=list)

    @property
    def point(self) -> tuple[int, int]:
        """The point of event time of this shard. Two shards at the same point can be merged."""
        return self.watermark, self.closed

    def owns(self, key_groups: Int64s) -> Bools:
        """Return for each of these key groups whether the key group is in this shard."""
        own = np.zeros(len(key_groups), np.bool_)
        for groups in self.groups:
            own |= (key_groups >= groups.start) & (key_groups < groups.stop)
        return own
