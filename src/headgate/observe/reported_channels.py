"""The channels of a job between two reports of each TaskManager. A job may report tens of thousands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from functools import cached_property
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.observe.channel_columns import Columns, Place
from headgate.observe.channel_window import ChannelWindow, values_between
from headgate.observe.metrics_snapshot import Counters

#: Channels as integers: the index of the exchange, the producer and the consumer, so that they sort in this order.
Keys = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
#: Bits of a subtask's number in a key, and a key of which only these are set.
_BITS: Final = 20
_SUBTASK: Final = (1 << _BITS) - 1
#: The times in which an end of a channel waited, see `ChannelWindow.waited`.
_WAITS: Final = "credit_wait_s", "without_buffer_s"
_NO_ROW: Final[Counters] = {}


class ReportedChannels:
    """The channels of one window. Only those that are asked for become objects.

    `reports` has (earlier, later) of each TaskManager. A channel that is not in the earlier report has no shares and no
    rates.
    """

    def __init__(self, reports: Sequence[tuple[Counters, Counters]]) -> None:
        self._reports = reports

    def __len__(self) -> int:
        return len(self._later.channels)

    def of(self, edge: str) -> list[ChannelWindow]:
        """Return the channels of an exchange, sorted by producer and consumer."""
        return self._windows(self._some(self._later.channels, [edge]))

    def at(self, places: Set[Place]) -> list[ChannelWindow]:
        """Return the channels at `places`, sorted by exchange, producer and consumer."""
        keys = [_key(self._edges[edge], *subtasks) for edge, *subtasks in places if edge in self._edges]
        return self._windows(np.sort(np.array(keys, np.int64)))

    def ranked(self, edges: Collection[str]) -> Keys:
        """Return the channels of `edges`: longer waits come first, then channels in which more buffers wait.

        A page of a large job asks for this each second, so the numbers of all channels are compared as arrays.
        """
        new = self._later
        if not len(new.keys):
            return new.keys
        waited = np.maximum(*(_growth(self._earlier, new, total) for total in _WAITS))
        shares = np.round(waited / np.repeat(self._seconds, new.counts), 2)
        buffers = np.nan_to_num(new.numbers("backlog")) + np.nan_to_num(new.numbers("queue"))
        longest = np.maximum.reduceat(shares[new.order], new.begins)
        most = np.add.reduceat(buffers[new.order], new.begins)
        order = np.lexsort((-most, -longest))
        return self._some(new.channels[order], edges)

    def places(self, keys: Keys) -> list[Place]:
        """Return the exchange, the producer and the consumer of each key."""
        return [(self._names[key >> (2 * _BITS)], key >> _BITS & _SUBTASK, key & _SUBTASK) for key in keys.tolist()]

    def _some(self, keys: Keys, edges: Collection[str]) -> Keys:
        """Return the keys of the channels of some exchanges."""
        wanted: npt.NDArray[np.bool_] = np.array([name in edges for name in self._names], bool)[keys >> (2 * _BITS)]
        return keys[wanted]

    def _windows(self, keys: Keys) -> list[ChannelWindow]:
        before = {(number, key): row for number, key, row in self._earlier.rows(keys)}
        channels: dict[int, dict[str, Any]] = {}
        for number, key, row in self._later.rows(keys):
            place = {name: row[name] for name in ("edge", "producer", "consumer")}
            old = before.get((number, key), _NO_ROW)
            channels.setdefault(key, place).update(
                values_between(ChannelWindow, old, row, float(self._seconds[number]))
            )
        return [ChannelWindow(**channels[key]) for key in sorted(channels)]

    @cached_property
    def _names(self) -> list[str]:
        """The names of all exchanges. An exchange's index is its place in this list."""
        return sorted({edge for pair in self._reports for report in pair for edge in set(_columns(report)["edge"])})

    @cached_property
    def _edges(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._names)}

    @cached_property
    def _seconds(self) -> _Floats:
        return np.array([new["clock_s"] - old["clock_s"] for old, new in self._reports], np.float64)

    @cached_property
    def _earlier(self) -> _Moment:
        return _Moment([_columns(old) for old, _ in self._reports], self._edges)

    @cached_property
    def _later(self) -> _Moment:
        return _Moment([_columns(new) for _, new in self._reports], self._edges)


class _Moment:
    """The channels of one report of each TaskManager, one after the other. An end of a channel is a row."""

    def __init__(self, reports: Sequence[Columns], edges: dict[str, int]) -> None:
        self._reports = reports
        #: The number of rows of each report.
        self.counts = [len(report["edge"]) for report in reports]
        indexes = np.array(list(map(edges.__getitem__, self._all("edge"))), np.int64)
        producers, consumers = (np.array(self._all(name), np.int64) for name in ("producer", "consumer"))
        #: The channel of each row; the rows, sorted by channel; where in this order each channel begins; the channels.
        self.keys: Keys = _key(indexes, producers, consumers)
        self.order = np.argsort(self.keys)
        self._sorted = self.keys[self.order]
        self.begins = np.flatnonzero(np.diff(self._sorted, prepend=-1))
        self.channels: Keys = self._sorted[self.begins]

    def numbers(self, name: str) -> _Floats:
        """Return the values of a counter. A value that is None, or that a report does not have, is not a number."""
        # Arrow converts None to NaN ten times as fast as NumPy.
        numbers: _Floats = pa.array(self._all(name), pa.float64()).to_numpy(zero_copy_only=False)
        return numbers

    def _all(self, name: str) -> list[Any]:
        parts = zip(self._reports, self.counts, strict=True)
        return list(chain.from_iterable(report.get(name) or [None] * count for report, count in parts))

    def rows(self, keys: Keys) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield (number of the report, key, counters) of each row of the channels `keys`."""
        ends = np.cumsum(self.counts)
        begin, end = (np.searchsorted(self._sorted, keys, side) for side in ("left", "right"))
        for key, rows in zip(keys.tolist(), map(slice, begin.tolist(), end.tolist()), strict=True):
            for row in self.order[rows].tolist():
                number = int(np.searchsorted(ends, row, "right"))
                at = row - int(ends[number])
                yield number, key, {name: values[at] for name, values in self._reports[number].items()}


def _key(edge: Any, producer: Any, consumer: Any) -> Any:
    """Return the key of a channel, or of arrays of channels. `edge` is the index of the exchange."""
    return edge << (2 * _BITS) | producer << _BITS | consumer


def _columns(report: Counters) -> Columns:
    return report.get("channels") or {"edge": ()}


def _growth(old: _Moment, new: _Moment, total: str) -> _Floats:
    """Return by how much a total has grown, for each row of `new`, and 0 where that is not known.

    Only one end of a channel has the total, so its row is found without the TaskManager.
    """
    then, now = old.numbers(total), new.numbers(total)
    rows = old.order[~np.isnan(then[old.order])]
    if not len(rows):
        return np.zeros(len(now))
    keys = old.keys[rows]
    at = np.minimum(np.searchsorted(keys, new.keys), len(rows) - 1)
    grown = np.where(keys[at] == new.keys, now - then[rows[at]], 0.0)
    return np.nan_to_num(grown).clip(min=0.0)
