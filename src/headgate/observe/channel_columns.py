"""The channels in the reports of a job's TaskManagers: a list of values for each counter.

A large job reports tens of thousands of channels, several times a second. A list for each counter is smaller, and
faster to send, to store and to rank, than a dictionary for each channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headgate.observe.metrics_snapshot import Counters

#: A channel: the name of its exchange, its producer subtask and its consumer subtask.
Place = tuple[str, int, int]
#: The values of all channels of a report by counter. The values of one channel have the same index in all lists.
Columns = Mapping[str, Sequence[Any]]


def columns_of(rows: Sequence[Counters]) -> dict[str, list[Any]]:
    """Return the values of each counter, in the order of `rows`. A counter that a row does not have is None.

    >>> columns_of([{"edge": "a -> b", "credit": 2}, {"edge": "b -> c"}])
    {'edge': ['a -> b', 'b -> c'], 'credit': [2, None]}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def rows_of(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yield the counters of each channel by name."""
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def channels_of(reports: Iterable[Counters]) -> dict[Place, dict[str, Any]]:
    """Return the counters of each reported channel. They come from the report of its producer and of its consumer.

    A counter is None if its end did not report the channel.
    """
    channels: dict[Place, dict[str, Any]] = {}
    for row in (row for report in reports for row in rows_of(report["channels"])):
        channel = channels.setdefault((row["edge"], row["producer"], row["consumer"]), row)
        if channel is not row:
            channel.update((name, value) for name, value in row.items() if value is not None)
    return channels
