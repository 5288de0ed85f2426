"""Find out why an exchange is slow, and what to do: its producers wait, although no consumer is busy.

The evidence is the counters of its channels and links. An unknown value does not count as evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.observe.channel_window import ChannelWindow, LinkWindow
from headgate.observe.durations import duration
from headgate.observe.finding import Cause, Remedy
from headgate.observe.gains import Gain, next_limit_of_exchange
from headgate.observe.metrics_window import Window
from headgate.observe.own_work import large_row, nearly_empty
from headgate.observe.roots import SlowExchange

#: Waiting for credit, or having no free buffer, is a cause if it takes at least this share of the time.
_MOST_OF_THE_TIME: Final = 0.5
#: A full window or buffer of the kernel limits a link if it is full for at least the share `_LIMITED` of the time. It
#: does not limit the link if it is full for less than the share `_NOT_LIMITED`.
_LIMITED, _NOT_LIMITED = 0.3, 0.1
#: A link that is busy for at least this share of the time is in use all the time.
_BUSY: Final = 0.9
#: Packets queue in the network if the round trip is at least `_QUEUES` times the shortest round trip, and at least
#: `_QUEUE_S` seconds longer.
_QUEUES, _QUEUE_S = 2.0, 0.005
#: Network memory is short if outputs and inputs together could use at least this share of it.
_SHORT: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The evidence about an exchange: the blocked share of its producers, their channels, and the links that they
    use."""

    blocked: float
    out_pool_usage: float
    channels: Sequence[ChannelWindow]
    links: Sequence[LinkWindow]
    memory_usage: float | None

    def worst(self, value: Callable[[ChannelWindow], float | None]) -> float | None:
        """Return the mean, over the producers, of the largest `value(channel)` of each; None if all are unknown.

        The largest value of a producer counts, because one channel is enough to stop it.
        """
        by_producer: dict[int, float] = {}
        for channel in self.channels:
            known = value(channel)
            if known is not None:
                by_producer[channel.producer] = max(known, by_producer.get(channel.producer, 0.0))
        return sum(by_producer.values()) / len(by_producer) if by_producer else None


def exchange_cause(window: Window, root: SlowExchange) -> Cause:
    """Return why the producers of an exchange wait."""
    evidence = _evidence(window, root)
    for test in _TESTS:
        cause = test(evidence)
        if cause is not None:
            return cause
    edges = [window.edges[root.edge.name]] if root.edge.name in window.edges else []
    idle = f"no consumer is busy, and its producers wait {evidence.blocked:.0%} of the time"
    large = None if root.edge.partitioning == "broadcast" else large_row(window, edges)
    if large is not None:
        return _cause(evidence, "large_rows", f"{idle}: a row has {large / 1e6:.2g} MB", bytes_per_row=large)
    empty = nearly_empty(window, edges)
    if empty is not None:
        return _cause(evidence, "nearly_empty_buffers", f"{idle}: its buffers leave {empty:.1%} full", fill=empty)
    return _cause(
        evidence,
        "exchange",
        f"{idle}: credits come back too slowly",
    )


def exchange_remedy(window: Window, root: SlowExchange, cause: Cause) -> Remedy:
    """Return what to do about the cause, and the expected gain. Twice the buffers carry up to twice the rows."""
    gain = _gain(window, root, cause)
    match cause.name:
        case "network":
            return Remedy(
                text="send fewer bytes (select columns, or aggregate, before the exchange), or use a faster network; "
                "more buffers gain nothing"
            )
        case "receiver_window":
            return gain.remedy(
                "give the receiving process more processor time, or raise connections_per_pair; without this "
                f"limit the job would carry {gain.times}"
            )
        case "large_rows":
            return replace(gain, at_least=False).remedy(
                "see which rows are large; select columns, or send the place of the content in place of it, which "
                f"{gain.at_best}"
            )
        case "nearly_empty_buffers":
            return replace(gain, at_least=False).remedy(
                f"raise buffer_timeout, or use fewer subtasks behind it, which {gain.at_best}"
            )
        case "no_buffers":
            is_short = cause.evidence.get("memory_usage", 0.0) >= _SHORT
            option = "network_memory" if is_short else "floating_buffers_per_gate"
            return gain.remedy(f"raise {option}, which would carry {gain.times}")
        case _:
            gain = replace(gain, at_least=False)  # it is the gain of this number of buffers
            return gain.remedy(
                f"{math.ceil(gain.factor)} times as many buffers (buffers_per_channel, floating_buffers_per_gate), or "
                f"larger ones (segment_size), would carry {gain.times}"
            )


def _gain(window: Window, root: SlowExchange, cause: Cause) -> Gain:
    further = next_limit_of_exchange(window, root.edge.source)
    factor = 1 / max(1e-2, 1 - cause.evidence["blocked"])
    return Gain(factor, "") if factor < further.factor else further


def _evidence(window: Window, root: SlowExchange) -> _Evidence:
    producers = {task.subtask for task in root.tasks}
    senders = {task.taskmanager for task in root.tasks}
    receivers = {task.taskmanager for task in window.of(root.edge.target)}
    usages = [window.processes[each].memory_usage for each in receivers]
    return _Evidence(
        blocked=max(task.blocked for task in root.tasks),
        out_pool_usage=max(task.out_pool_usage for task in root.tasks),
        channels=[each for each in window.channels.of(root.edge.name) if each.producer in producers],
        links=[each for each in window.links if each.taskmanager in senders and each.peer in receivers],
        memory_usage=_largest(usages),
    )


def _no_buffers(evidence: _Evidence) -> Cause | None:
    """Find consumers that have no free buffer although they are not busy: other channels use the buffers."""
    without = evidence.worst(lambda channel: channel.without_buffer)
    if without is None or without < _MOST_OF_THE_TIME:
        return None
    return _cause(
        evidence,
        "no_buffers",
        f"no consumer is busy, and its receivers have no free buffer {without:.0%} of the time",
        without_buffer=without,
        memory_usage=evidence.memory_usage,
    )


def _receiver_window(evidence: _Evidence) -> Cause | None:
    """Find connections whose receiving process reads too slowly, or whose window is too small for their round trip."""
    limited = _largest(link.rwnd_limited for link in evidence.links)
    if limited is None or limited < _LIMITED:
        return None
    return _cause(
        evidence,
        "receiver_window",
        f"the receiving process reads its connection too slowly: its window is full {limited:.0%} of the time",
        rwnd_limited=limited,
        rtt_s=_largest(link.rtt_s for link in evidence.links),
    )


def _network(evidence: _Evidence) -> Cause | None:
    """Find connections that are in use all the time, and that only the network limits."""
    full = [link for link in evidence.links if _is_full(link)]
    if not full:
        return None
    slowest = min(full, key=lambda link: link.bytes_per_second)
    return _cause(
        evidence,
        "network",
        f"the network carries no more than {slowest.bytes_per_second / 1e6:.2g} MB/s from TaskManager "
        f"{slowest.taskmanager} to TaskManager {slowest.peer}",
        bytes_per_second=slowest.bytes_per_second,
        delivery_rate=slowest.delivery_rate,
        busy=slowest.busy,
        rtt_s=slowest.rtt_s,
    )


def _is_full(link: LinkWindow) -> bool:
    if link.busy is None or link.busy < _BUSY or link.rwnd_limited is None or link.sndbuf_limited is None:
        return False
    if max(link.rwnd_limited, link.sndbuf_limited) >= _NOT_LIMITED:
        return False
    return link.app_limited is False or _queues(link)


def _queues(link: LinkWindow) -> bool:
    """Return whether packets queue in the network. More bytes in flight would then not increase the throughput."""
    if link.rtt_s is None or link.min_rtt_s is None:
        return False
    return link.rtt_s >= _QUEUES * link.min_rtt_s and link.rtt_s - link.min_rtt_s >= _QUEUE_S


def _credit_round_trip(evidence: _Evidence) -> Cause | None:
    """Find producers that wait for credit most of the time, while the consumers' buffers are free."""
    wait = evidence.worst(lambda channel: channel.credit_wait)
    if wait is None or wait < _MOST_OF_THE_TIME:
        return None
    round_trip = evidence.worst(lambda channel: channel.round_trip_s)
    how_long = "" if round_trip is None else f", which takes {duration(round_trip)} to come back"
    return _cause(
        evidence,
        "credit_round_trip",
        f"no consumer is busy, and its producers wait for credit {wait:.0%} of the time{how_long}",
        credit_wait=wait,
        round_trip_s=round_trip,
        rtt_s=_largest(link.rtt_s for link in evidence.links),
    )


#: The tests in their order. The wait for credit comes last, because the other causes also make producers wait.
_TESTS: Final = (_no_buffers, _receiver_window, _network, _credit_round_trip)


def _cause(evidence: _Evidence, name: str, text: str, **values: float | None) -> Cause:
    always = {"blocked": evidence.blocked, "out_pool_usage": evidence.out_pool_usage}
    return Cause(
        name=name, text=text, evidence=always | {key: each for key, each in values.items() if each is not None}
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
