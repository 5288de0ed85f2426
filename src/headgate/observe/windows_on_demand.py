"""The windows of a job. Most diagnoses need few of them, and to make a window of a large job takes long."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import overload

from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.metrics_window import Window, window_of
from headgate.observe.topology import Topology


class WindowsOnDemand(Sequence[Window]):
    """The windows between pairs of snapshots. A window is made when it is read first, also in a slice."""

    def __init__(self, topology: Topology, pairs: Sequence[tuple[MetricsSnapshot, MetricsSnapshot]]) -> None:
        self._topology = topology
        self._pairs = pairs
        self._numbers = range(len(pairs))
        #: The windows that are made, by the index of their pair. Slices share them.
        self._made: dict[int, Window] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Window: ...

    @overload
    def __getitem__(self, index: slice) -> WindowsOnDemand: ...

    def __getitem__(self, index: int | slice) -> Window | WindowsOnDemand:
        if isinstance(index, slice):
            part = copy(self)
            part._numbers = self._numbers[index]
            return part
        number = self._numbers[index]
        if number not in self._made:
            self._made[number] = window_of(self._topology, *self._pairs[number])
        return self._made[number]
