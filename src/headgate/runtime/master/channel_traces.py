"""`ChannelTraces`: the requests to trace a channel of one job, and the traces that its TaskManagers report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from difflib import get_close_matches
from typing import Final, Literal

from headgate.errors import TraceError
from headgate.observe.channel_trace import MOST_OF_END, OF_CONSUMER, OF_PRODUCER, ChannelTrace, EndTrace, joined
from headgate.observe.topology import EdgeShape, Topology
from headgate.runtime.control_messages import FromDriver, Report, ReportTrace, TraceChannel
from headgate.runtime.master.task_requests import TaskRequests

#: The longest trace, in seconds.
LONGEST: Final = 10.0
#: How many names an error lists.
_NAMES: Final = 8
_KINDS: Final = {"producer": OF_PRODUCER, "consumer": OF_CONSUMER, "both": OF_CONSUMER}


class _Request:
    """A request for the trace of one channel: a `TaskRequest`. It is complete when the TaskManagers of both ends have
    reported."""

    def __init__(self, order: TraceChannel, taskmanagers: Sequence[int], answer: Future[ChannelTrace]) -> None:
        self._order = order
        self.orders: list[tuple[int, FromDriver]] = [(number, order) for number in taskmanagers]
        self.answer = answer
        self._ends: dict[Literal["producer", "consumer", "both"], EndTrace] = {}

    def result_of(self, report: Report) -> ChannelTrace | None:
        if not isinstance(report, ReportTrace):
            raise ValueError("no trace")
        _check(report)
        self._ends[report.ends] = EndTrace(report.began_at, report.events, report.is_full)
        if len(self._ends) < len(self.orders):
            return None
        order, ends = self._order, [self._ends[name] for name in ("both", "producer", "consumer") if name in self._ends]
        return joined(order.exchange, order.producer, order.consumer, order.seconds, ends)

    def error(self, reason: str) -> TraceError:
        order = self._order
        place = f"{order.exchange!r}, {order.producer} to {order.consumer}"
        return TraceError(f"channel {place} could not be traced: {reason}")


def _check(report: ReportTrace) -> None:
    """Raise ValueError if the report has too many events, or events that this end of the channel cannot have."""
    if len(report.events) > MOST_OF_END:
        raise ValueError(f"a trace of {len(report.events)} events; at most {MOST_OF_END} are allowed")
    wrong = {event.kind for event in report.events} - _KINDS[report.ends]
    if wrong:
        raise ValueError(f"events of a kind that its end does not have: {', '.join(sorted(wrong))}")
    if not all(math.isfinite(at) for at in (report.began_at, *(event.at for event in report.events))):
        raise ValueError("events without a time")


class ChannelTraces:
    """The requests to trace a channel of one job. Each request gets one answer: a trace, or TraceError.

    Any thread may call all methods.
    """

    def __init__(self, topology: Topology, place: Callable[[int], int], requests: TaskRequests) -> None:
        """`place` returns the TaskManager of a subtask."""
        self._topology = topology
        self._place = place
        self._requests = requests

    def ask(self, exchange: str, producer: int, consumer: int, seconds: float) -> Future[ChannelTrace]:
        """Request a trace of `seconds` seconds. Raises TraceError if there is no such channel."""
        edge = self._edge(exchange)
        for role, vertex, subtask in (("producer", edge.source, producer), ("consumer", edge.target, consumer)):
            last = self._topology.vertices[vertex].parallelism - 1
            if isinstance(subtask, bool) or not isinstance(subtask, int) or not 0 <= subtask <= last:
                raise TraceError(f"{exchange!r} has no {role} {subtask!r}; they are numbered from 0 to {last}")
        if not isinstance(seconds, (int, float)) or not (math.isfinite(seconds) and 0 < seconds <= LONGEST):
            raise TraceError(f"seconds={seconds!r}: a trace takes more than 0 and at most {LONGEST:g} seconds")
        places = sorted({self._place(producer), self._place(consumer)})
        answer: Future[ChannelTrace] = Future()

        def request(number: int) -> _Request:
            order = TraceChannel(
                request=number, exchange=exchange, producer=producer, consumer=consumer, seconds=float(seconds)
            )
            return _Request(order, places, answer)

        self._requests.ask(request)
        return answer

    def _edge(self, exchange: str) -> EdgeShape:
        edges = {edge.name: edge for edge in self._topology.edges}
        if exchange in edges:
            return edges[exchange]
        near = get_close_matches(str(exchange), edges, 3, cutoff=0.5)
        names = ", ".join(map(repr, near or list(edges)[:_NAMES])) or "none: all its operators are in one chain"
        text = f"did you mean {names}?" if near else f"it has {names}"
        raise TraceError(f"job {self._topology.job!r} has no exchange {exchange!r}; {text}")
