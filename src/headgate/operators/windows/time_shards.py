"""Key groups that are at one point of event time.

A subtask's are all at the same, except after a restart with another parallelism: then they come from several subtasks,
whose watermarks may have differed. What had fired in one must not fire again, and what was on time in another must not
be late; so each resumes from where it was, apart, until the subtask's own watermark has passed all of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headgate.operators.windows.window_state import WindowState
from headgate.records.canonical import Bools, Int64s


@dataclass(slots=True)
class TimeShard:
    """What is held of some key groups, and how far they are."""

    state: WindowState
    watermark: int
    #: Numbers of the last window that has fired, and of the last one that is forgotten.
    fired: int
    closed: int
    groups: list[range] = field(default_factory=list)

    @property
    def point(self) -> tuple[int, int]:
        """How far it is in event time: lanes at the same point may be one."""
        return self.watermark, self.closed

    def owns(self, key_groups: Int64s) -> Bools:
        """Which of these key groups are its own."""
        own = np.zeros(len(key_groups), np.bool_)
        for groups in self.groups:
            own |= (key_groups >= groups.start) & (key_groups < groups.stop)
        return own
