"""The channels in the reports of a job's TaskManagers: both ends of a channel as one row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headgate.observe.metrics_snapshot import Counters

#: A channel: the name of its exchange, its producer subtask and its consumer subtask.
Place = tuple[str, int, int]


def channels_of(reports: Iterable[Counters]) -> dict[Place, dict[str, Any]]:
    """Return the counters of each reported channel. They come from the rows of its producer and of its consumer.

    A counter is None if its end did not report the channel.
    """
    channels: dict[Place, dict[str, Any]] = {}
    for row in (row for report in reports for row in report["channels"]):
        channel = channels.setdefault((row["edge"], row["producer"], row["consumer"]), dict(row))
        channel.update((name, value) for name, value in row.items() if value is not None)
    return channels
