"""The channels that wait most in a TaskManager, with their counters.

A TaskManager may have tens of thousands of channels. Once a second it reads two numbers of each channel, and chooses
the channels that waited longest. It reports only these channels.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final, Protocol

from headgate.exchange.blocking import Subpartition
from headgate.exchange.channels import InputChannel, LocalInputChannel
from headgate.observe.channel_columns import columns_of
from headgate.runtime.task.task_builder import BuiltTask

Counters = dict[str, Any]

#: The most channels in a report: at most this many sending ends, and at most this many receiving ends.
WORST: Final = 50
#: Seconds between two choices of the worst channels.
_PERIOD: Final = 1.0


class _End(Protocol):
    """One end of a channel, whose counters the report reads."""

    def rank(self) -> tuple[float, int]:
        """Return the seconds that the channel waited for credit or a buffer since the last call, and its queued
        buffers."""

    def row(self) -> Counters:
        """Return the counters of this end. The counters of the other end are None."""


class _SendingEnd:
    """The end of a channel at its producer. A channel within one TaskManager has only this end."""

    __slots__ = ("_place", "_subpartition", "_waited")

    def __init__(self, edge: str, producer: int, consumer: int, subpartition: Subpartition) -> None:
        self._place = edge, producer, consumer
        self._subpartition = subpartition
        self._waited = 0.0

    def rank(self) -> tuple[float, int]:
        subpartition = self._subpartition
        credit = subpartition.credit
        before, self._waited = self._waited, 0.0 if credit is None else credit.waited_s
        return self._waited - before, subpartition.backlog

    def row(self) -> Counters:
        subpartition = self._subpartition
        credit = subpartition.credit
        return {
            **_row(*self._place),
            "backlog": subpartition.backlog,
            "queued_bytes": subpartition.queued_bytes,
            "queued_buffers": subpartition.queue_length,
            "buffers_sent": subpartition.buffers_sent,
            "bytes_sent": subpartition.bytes_sent,
            "credit": None if credit is None else credit.available,
            "credits_granted": None if credit is None else credit.granted,
            "credit_wait_s": None if credit is None else credit.waited_s,
        }


class _ReceivingEnd:
    """The end of a channel at its consumer, which receives from another TaskManager."""

    __slots__ = ("_channel", "_place", "_waited")

    def __init__(self, edge: str, producer: int, consumer: int, channel: InputChannel) -> None:
        self._place = edge, producer, consumer
        self._channel = channel
        self._waited = 0.0

    def rank(self) -> tuple[float, int]:
        channel = self._channel
        before, self._waited = self._waited, channel.without_buffer_s
        return self._waited - before, channel.queue_length

    def row(self) -> Counters:
        channel = self._channel
        return {
            **_row(*self._place),
            "queue": channel.queue_length,
            "received_bytes": channel.queued_bytes,
            "free_exclusive": channel.free_exclusive_buffers,
            "free_floating": channel.free_floating_buffers,
            "unannounced_credit": channel.unannounced_credit,
            "without_buffer_s": channel.without_buffer_s,
        }


#: The counters of a channel's two ends. A row has the counters of one end; the other counters are None.
_COUNTERS: Final = (
    "backlog", "queued_bytes", "queued_buffers", "buffers_sent", "bytes_sent", "credit", "credits_granted",
    "credit_wait_s", "queue", "received_bytes", "free_exclusive", "free_floating", "unannounced_credit",
    "without_buffer_s",
)  # fmt: skip


def _row(edge: str, producer: int, consumer: int) -> Counters:
    return {"edge": edge, "producer": producer, "consumer": consumer, **dict.fromkeys(_COUNTERS)}


class ChannelReport:
    """Chooses the channels that waited longest, among the channels of all tasks that `add` got.

    Only one thread uses the object. Times are in seconds.
    """

    def __init__(self) -> None:
        self._sending: list[_SendingEnd] = []
        self._receiving: list[_ReceivingEnd] = []
        self._worst: list[_End] = []
        self._choose_at = 0.0

    def add(self, tasks: Sequence[BuiltTask]) -> None:
        """Watch the channels of more tasks."""
        for built in tasks:
            for output in built.outputs:
                for consumer, subpartition in zip(output.consumers, output.writer.partition.subpartitions, strict=True):
                    self._sending.append(_SendingEnd(output.name, built.subtask, consumer, subpartition))
            for each in built.inputs:
                for producer, channel in zip(each.producers, each.channels, strict=True):
                    if not isinstance(channel, LocalInputChannel):
                        self._receiving.append(_ReceivingEnd(each.name, producer, built.subtask, channel))

    def columns(self, now: float) -> Counters:
        """Return the channels that waited longest in the last second, at each end at most `WORST`: a list for each
        counter."""
        if now >= self._choose_at:
            self._choose_at = now + _PERIOD
            self._worst = [*_worst(self._sending), *_worst(self._receiving)]
        return columns_of([end.row() for end in self._worst])


def _worst(ends: Sequence[_End]) -> list[_End]:
    """Return at most `WORST` ends: those that waited longest since the last choice.

    Of ends with equal waits, those with more queued buffers come first.
    """
    ranks = [end.rank() for end in ends]
    return [ends[number] for number in heapq.nlargest(WORST, range(len(ends)), key=ranks.__getitem__)]
