"""Rank the channels of a job by how long they wait."""

from __future__ import annotations

from headgate.observe.channel_window import ChannelWindow
from headgate.observe.metrics_window import Window
from headgate.observe.reported_channels import ReportedChannels
from headgate.observe.topology import Topology
from headgate.web.answers import ChannelAnswer


class ChannelRanking:
    """The reported channels of one window, sorted once. The channel that waits longest has rank 0."""

    def __init__(self, topology: Topology, window: Window | None) -> None:
        self._vertices = {
            edge.name: (topology.vertices[edge.source].name, topology.vertices[edge.target].name)
            for edge in topology.edges
        }
        self._channels = ReportedChannels(()) if window is None else window.channels
        self._ranked = self._channels.ranked(self._vertices)

    def __len__(self) -> int:
        return len(self._ranked)

    def part(self, offset: int, limit: int) -> list[ChannelAnswer]:
        """Return at most `limit` channels from rank `offset` on."""
        part = self._channels.places(self._ranked[offset : offset + limit])
        found = {(each.edge, each.producer, each.consumer): each for each in self._channels.at(set(part))}
        return [self._answer(found[place]) for place in part]

    def _answer(self, channel: ChannelWindow) -> ChannelAnswer:
        source, target = self._vertices[channel.edge]
        has_credit = channel.credit is not None
        return ChannelAnswer(
            exchange=channel.edge,
            producer=channel.producer,
            consumer=channel.consumer,
            producer_name=f"{source}[{channel.producer}]",
            consumer_name=f"{target}[{channel.consumer}]",
            credit=channel.credit,
            credits_granted=channel.credits_granted,
            credits_granted_per_s=_rounded(channel.credits_per_second),
            credits_spent_per_s=_rounded(channel.buffers_per_second) if has_credit else None,
            credit_wait_ratio=_share(channel.credit_wait),
            credit_wait_s=_rounded(channel.credit_wait_s),
            without_buffer_ratio=_share(channel.without_buffer),
            without_buffer_s=_rounded(channel.without_buffer_s),
            backlog=channel.backlog,
            queue=channel.queue,
            in_flight_bytes=_sum(channel.queued_bytes, channel.received_bytes),
            bytes_per_s=_rounded(channel.bytes_per_second),
        )


def _share(value: float | None) -> float | None:
    return None if value is None else round(min(1.0, value), 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
