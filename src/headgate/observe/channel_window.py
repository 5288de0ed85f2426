"""Compare two reports of each TaskManager: what its channels and links did between the two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from headgate.observe.metrics_snapshot import Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelWindow:
    """One channel between two reports. Times are shares of the window, 0 to 1.

    A value is None if the end of the channel that has the value did not report the channel.
    """

    edge: str
    producer: int
    consumer: int
    #: The share in which data waited at the producer because its credit was 0.
    credit_wait: float | None = None
    #: The share in which the consumer had no free buffer.
    without_buffer: float | None = None
    buffers_per_second: float | None = None
    bytes_per_second: float | None = None
    credits_per_second: float | None = None
    #: The growth of the bytes that wait at the producer, per second; 0 if they get fewer.
    queued_growth: float | None = None
    # Totals from the start of the attempt to the window's end.
    credits_granted: int | None = None
    credit_wait_s: float | None = None
    without_buffer_s: float | None = None
    # The bytes at the window's end that wait at the producer, and the bytes that the consumer has not read.
    queued_bytes: int | None = None
    received_bytes: int | None = None
    # Numbers of buffers at the window's end.
    credit: int | None = None
    backlog: int | None = None
    queue: int | None = None
    free_exclusive: int | None = None
    free_floating: int | None = None

    @property
    def waited(self) -> float:
        """The share of the window in which the channel waited, 0 to 1.

        It waits for credit at the producer or for a free buffer at the consumer; the larger share counts.
        """
        return max(self.credit_wait or 0.0, self.without_buffer or 0.0)

    @property
    def round_trip_s(self) -> float | None:
        """The estimated time, in seconds, from the credit of a buffer to the next credit of the same buffer.

        In between, the buffer receives data, and the consumer reads the data. In a channel that waits for credit, all
        buffers are in this cycle. The time is their number divided by `buffers_per_second`. It is None if either is
        unknown, or if no buffers were sent.
        """
        counts = self.free_exclusive, self.free_floating, self.queue
        if not self.buffers_per_second or any(count is None for count in counts):
            return None
        return sum(count for count in counts if count is not None) / self.buffers_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkWindow:
    """A connection on which `taskmanager` sends to `peer`. Times are shares of the window. Unknown values are None."""

    taskmanager: int
    peer: int
    bytes_per_second: float
    busy: float | None = None
    rwnd_limited: float | None = None
    sndbuf_limited: float | None = None
    # Values at the window's end.
    rtt_s: float | None = None
    min_rtt_s: float | None = None
    delivery_rate: float | None = None
    app_limited: bool | None = None


#: Fields that name a channel or a link.
_NAMES: Final = {"edge", "producer", "consumer", "taskmanager", "peer"}
#: The values of a window that are the growth of a total per second, with the names of these totals.
_GROWTHS: Final = {
    "credit_wait": "credit_wait_s",
    "without_buffer": "without_buffer_s",
    "buffers_per_second": "buffers_sent",
    "bytes_per_second": "bytes_sent",
    "credits_per_second": "credits_granted",
    "queued_growth": "queued_bytes",
    "busy": "busy_s",
    "rwnd_limited": "rwnd_limited_s",
    "sndbuf_limited": "sndbuf_limited_s",
}


#: For each kind of window: the names of its values, and the total whose growth is the value. None stands for a current
#: value.
_VALUES: Final = {
    kind: tuple((field.name, _GROWTHS.get(field.name)) for field in fields(kind) if field.name not in _NAMES)
    for kind in (ChannelWindow, LinkWindow)
}


def link_windows(taskmanager: int, old: Counters, new: Counters) -> Iterator[LinkWindow]:
    """Yield the links of a TaskManager between two of its reports. Links that are only in the later report are left
    out."""
    before = {(row["peer"], row["number"]): row for row in old.get("links", ())}
    for row in new.get("links", ()):
        earlier = before.get((row["peer"], row["number"]))
        if earlier is not None:
            values = values_between(LinkWindow, earlier, row, new["clock_s"] - old["clock_s"])
            yield LinkWindow(**{**values, "taskmanager": taskmanager, "peer": row["peer"]})


def values_between(
    kind: type[ChannelWindow] | type[LinkWindow], old: Counters, new: Counters, seconds: float
) -> dict[str, Any]:
    """Return the values of a window that can be computed from two rows of counters, by name."""
    values: dict[str, Any] = {}
    for name, total in _VALUES[kind]:
        if total is None:
            value = new.get(name)
        elif (before := old.get(total)) is None or (after := new.get(total)) is None:
            value = None
        else:
            value = max(0.0, after - before) / seconds
        if value is not None:
            values[name] = value
    return values
