"""What happened on one channel in a few seconds: data that were sent, credit that came back, buffers that were read.

Both ends of a channel record their own events, each by its own clock. An event of one end has its counterpart at the
other: a buffer that was sent is received, and a credit that was granted is added. Their numbers are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.protocol.traced_ends import TraceKind

#: The most events of a trace, and of each of its ends.
MOST_EVENTS: Final = 10_000
MOST_OF_END: Final = MOST_EVENTS // 2
#: The events of each end.
OF_PRODUCER: Final = frozenset[TraceKind]({"sent", "credited"})
OF_CONSUMER: Final = frozenset[TraceKind]({"received", "granted", "read"})
#: Events that are one message at both ends.
_MESSAGES: Final[dict[TraceKind, TraceKind]] = {"sent": "received", "granted": "credited"}


class TraceEvent(NamedTuple):
    """One event. `at` is in seconds from the begin of the trace.

    | kind | buffers | number | left |
    |---|---|---|---|
    | sent, received | of data | the sequence number of the first one | backlog: buffers that wait behind them |
    | granted, credited | the credit of an AddCredit | all credit so far | at the producer: the credit that it has now |
    | read | of data | 0 | buffers that are in the consumer's queue still |
    """

    kind: TraceKind
    at: float
    buffers: int
    number: int
    left: int


@dataclass(frozen=True, slots=True)
class EndTrace:
    """The events of one end, in their order. `began_at` is in seconds since the epoch, by the clock of that end.

    `is_full` says that the end had more events than it may keep. The later events are then missing.
    """

    began_at: float
    events: Sequence[TraceEvent]
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTrace:
    """The events of one channel, in the order of their times. `str(trace)` has one line for each event.

    `exchange` is the exchange's name; `producer` and `consumer` are subtasks. `at` is when the trace began, in seconds
    since the epoch, and `seconds` is its length. `is_complete` is False if one end of the channel had more than 5,000
    events; the trace then ends early.
    """

    exchange: str
    producer: int
    consumer: int
    at: float
    seconds: float
    is_complete: bool
    events: tuple[TraceEvent, ...]

    def __str__(self) -> str:
        return "\n".join(f"{event.at:9.6f} s  {_words(event)}" for event in self.events)


def _words(event: TraceEvent) -> str:
    count = f"{event.buffers} {'buffer' if event.buffers == 1 else 'buffers'}"
    match event.kind:
        case "sent":
            return f"the producer sends {count}, backlog {event.left}"
        case "credited":
            return f"the producer receives AddCredit {event.buffers}, credit {event.left}"
        case "received":
            return f"the consumer receives {count}, backlog {event.left}"
        case "granted":
            return f"the consumer sends AddCredit {event.buffers}"
        case "read":
            return f"the consumer reads {count}, {event.left} left"


def joined(exchange: str, producer: int, consumer: int, seconds: float, ends: Sequence[EndTrace]) -> ChannelTrace:
    """Return the trace of a channel. `ends` has the producer's and then the consumer's trace, or one trace of both.

    The clocks of two machines differ. If a message would arrive before it was sent, the consumer's times are moved.
    The result stops at the last event of the end that was full first.
    """
    begin = min(end.began_at for end in ends)
    times = [[event._replace(at=event.at + end.began_at - begin) for event in end.events] for end in ends]
    if len(times) == 2:
        moved = _shift(*times)
        times[1] = [event._replace(at=event.at + moved) for event in times[1]]
    last = min((each[-1].at for each, end in zip(times, ends, strict=True) if end.is_full and each), default=math.inf)
    events = sorted((event for each in times for event in each if event.at <= last), key=lambda event: event.at)
    first = min(0.0, events[0].at) if events else 0.0
    return ChannelTrace(
        exchange=exchange,
        producer=producer,
        consumer=consumer,
        at=begin + first,
        seconds=seconds,
        is_complete=math.isinf(last),
        events=tuple(event._replace(at=round(event.at - first, 6)) for event in events),
    )


def _shift(producer: Iterable[TraceEvent], consumer: Iterable[TraceEvent]) -> float:
    """Return the seconds to add to the consumer's times so that no message arrives before it was sent."""
    data = list(_delays(producer, consumer))
    credit = list(_delays(consumer, producer))
    soonest = min(data, default=math.inf)
    latest = min(credit, default=math.inf)
    if soonest >= 0 and latest >= 0:
        return 0.0
    if math.isinf(latest):
        return -soonest
    return latest if math.isinf(soonest) else (latest - soonest) / 2


def _delays(senders: Iterable[TraceEvent], receivers: Iterable[TraceEvent]) -> Iterator[float]:
    """Yield how long each message was on its way, by the clocks of the two ends."""
    sent = {(_MESSAGES[event.kind], event.number): event.at for event in senders if event.kind in _MESSAGES}
    for event in receivers:
        if (event.kind, event.number) in sent:
            yield event.at - sent[event.kind, event.number]
