"""The ends of a TaskManager's data links, for sockets and for the simulated network of tests."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from headgate.config import Config, FlowControl
from headgate.errors import ExchangeError, PartitionNotFound
from headgate.exchange.partition import ResultPartition
from headgate.protocol.backoff import Backoff
from headgate.protocol.messages import PartitionRequest
from headgate.protocol.receiver import ReceivingChannel
from headgate.protocol.sender import SubpartitionView, Wrap
from headgate.protocol.throttle_message import StageSignal
from headgate.runtime.taskmanager.counters import LinkBytes
from headgate.transport.data_link import ConsumerEnd, ProducerEnd, producer_end
from headgate.transport.link_socket import LinkSocket
from headgate.transport.network_thread import Network
from headgate.transport.tcp_info import TcpInfo


class LinkEnds:
    """The ends of the data links of TaskManager `index`. It sends on links that it accepts, and receives on links that
    it opens.

    `find` returns a partition of this TaskManager by edge and producer, or None if it is not built yet. `lost` gets the
    number of a TaskManager that cannot be reached any more, and the reason. Any thread may call `lost`.
    """

    def __init__(
        self,
        network: Network,
        config: Config,
        *,
        index: int,
        find: Callable[[int, int], ResultPartition | None],
        lost: Callable[[int, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self._config = config
        self._index = index
        self._find = find
        self._lost = lost
        self._clock = clock
        self._producer_ends: list[ProducerEnd] = []
        self._sendfile_by_ended = 0
        self._consumer_ends: dict[tuple[int, int, int], ConsumerEnd] = {}
        self._channels_from: Counter[int] = Counter()
        #: The network thread calls this function with each throttle signal from a TaskManager to which this one sends.
        self.on_signal: Callable[[StageSignal], None] | None = None

    def consumer_end(self, peer: int, edge: int) -> ConsumerEnd:
        """Return the link for one more channel of an edge from TaskManager `peer`.

        With credit, all edges from a peer share one link. Without credit, each edge has its own link, so that no edge
        blocks another. If the options set several links per pair, channels use these links in turn.
        """
        config = self._config
        turn = self._channels_from[peer] % config.connections_per_pair
        self._channels_from[peer] += 1
        key = peer, 0 if config.flow_control is FlowControl.CREDIT else edge, turn
        if key not in self._consumer_ends:
            lost = functools.partial(self._lost, peer)
            backoff = functools.partial(Backoff, config.request_backoff_initial, config.request_backoff_max)
            end = ConsumerEnd(
                self._network,
                peer,
                segment_size=config.segment_size,
                lost=lost,
                flow_control=config.flow_control,
                new_backoff=backoff,
            )
            self._consumer_ends[key] = end
            self._opened(end)
        return self._consumer_ends[key]

    def _opened(self, end: ConsumerEnd) -> None:
        """Handle a new link on which this TaskManager receives. A subclass connects it."""

    @property
    def consumer_ends(self) -> list[ConsumerEnd]:
        """The links on which this TaskManager receives."""
        return list(self._consumer_ends.values())

    def accepted(self, sock: LinkSocket, peer: int) -> None:
        """Start to send to TaskManager `peer` on a connected socket. Runs on the network thread."""
        self._forget_ended()
        lost = functools.partial(self._lost, peer)
        end = producer_end(
            self._network,
            sock,
            peer=peer,
            open_view=self._open_view,
            lost=lost,
            flow_control=self._config.flow_control,
            clock=self._clock,
        )
        if self.on_signal is not None:
            end.follow(self.on_signal)
        self._producer_ends.append(end)
        end.start()

    def signal(self, signal: StageSignal, peer: int | None = None) -> None:
        """Send a throttle's signal to TaskManager `peer`, or to all from which this one receives if `peer` is None.

        All signals to one TaskManager use the same connection, which keeps their order. Any thread may call this.
        """
        self._network.post(lambda: self._signal(signal, peer))

    def _signal(self, signal: StageSignal, peer: int | None) -> None:
        ends = {end.peer: end for end in reversed(self._consumer_ends.values())}
        for number, end in ends.items():
            if peer is None or number == peer:
                end.signal(signal)

    def _forget_ended(self) -> None:
        """Remove ended links from the list. Otherwise the list grows when a peer reconnects often."""
        ends = self._producer_ends
        self._producer_ends = [end for end in ends if end.is_open]
        self._sendfile_by_ended += sum(end.bytes_sent_by_sendfile for end in ends if not end.is_open)

    def _open_view(self, request: PartitionRequest, listener: Callable[[], None]) -> SubpartitionView:
        partition = self._find(request.edge, request.producer)
        name = f"{request.edge}/{request.producer}/{request.subpartition}"
        if partition is None:
            raise PartitionNotFound(
                f"TaskManager {self._index} has no partition {name} (edge, producer, subpartition) yet"
            )
        if request.subpartition >= len(partition.subpartitions):
            raise ExchangeError(f"TaskManager {self._index} has no partition {name} (edge, producer, subpartition)")
        subpartition = partition.subpartitions[request.subpartition]
        subpartition.attach(listener, sends_empty=request.credit == 0)
        return subpartition

    def wrap(self, view: SubpartitionView, wrapped: Wrap) -> bool:
        """Call `Sender.wrap` of the link that reads a view, on the network thread. Returns False if no link does."""
        return any(end.wrap(view, wrapped) for end in self._producer_ends)

    def replace(self, channel: ReceivingChannel, by: ReceivingChannel) -> bool:
        """Call `Receiver.replace` of a channel's link, on the network thread. Returns False if no link has it."""
        return any(end.replace(channel, by) for end in self._consumer_ends.values())

    @property
    def bytes_received(self) -> int:
        return sum(end.bytes_received for end in self._consumer_ends.values())

    @property
    def bytes_sent_by_sendfile(self) -> int:
        return self._sendfile_by_ended + sum(end.bytes_sent_by_sendfile for end in self._producer_ends)

    @property
    def bytes_under_way(self) -> LinkBytes:
        sent = sum(end.kernel_bytes for end in self._producer_ends)
        received = sum(end.kernel_bytes for end in self._consumer_ends.values())
        return LinkBytes(sum(end.writing for end in self._producer_ends), sent + received)

    def rows(self) -> list[dict[str, Any]]:
        """Return the counters of each open link on which this TaskManager sends, each with its `peer` and `number`."""
        return [
            {
                "peer": end.peer,
                "number": number,
                "bytes_sent": end.bytes_sent,
                **(end.tcp_info or TcpInfo())._asdict(),
            }
            for number, end in enumerate(self._producer_ends)
            if end.is_open
        ]

    def close(self) -> None:
        """Close all links. Runs on the network thread."""
        for consumer in self._consumer_ends.values():
            consumer.close()
        for producer in self._producer_ends:
            producer.close()
