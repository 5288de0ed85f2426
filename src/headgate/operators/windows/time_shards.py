"""`TimeShard`: the key groups of a subtask that have reached the same point of event time.

Usually all key groups of a subtask are in one shard. After a restart with another parallelism, the key groups may come
from several former subtasks, whose watermarks may differ. A window that fired in a former subtask must not fire again.
A row that was on time in a former subtask must not be late. Each shard therefore resumes from its own point of event
time. The shards merge when the subtask's watermark has passed all these points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Bools, Int64s


class ShardState(Protocol):
    """The state of the windows of some key groups."""

    @property
    def nbytes(self) -> int: ...

    @property
    def keys(self) -> int:
        """The number of keys."""

    def next_number(self, after: int) -> int | None:
        """Return a number above `after`; no open window lies between the two. Return None if no window is open."""

    def close(self, last: int) -> None:
        """Remove the windows up to and including the number `last`."""

    def frozen(self) -> Self:
        """Return a copy for a snapshot. Only its `table` may be used."""

    def table(self, key_names: Sequence[str], max_parallelism: int) -> pa.Table:
        """Return all windows that are not closed: key group, keys, what tells windows apart, accumulators."""

    def with_exact_sums(self, table: pa.Table) -> pa.Table:
        """Return such a table with sums of decimals in the current format."""

    def load(self, table: pa.Table) -> None:
        """Restore windows that `table` returned."""


State = TypeVar("State", bound=ShardState)


@dataclass(slots=True)
class TimeShard(Generic[State]):
    """The window state of some key groups, and their point of event time. Times are microseconds since the epoch."""

    state: State
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
