"""The data links of one TaskManager. It sends on the links that it accepts, and receives on the links that it opens."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from headgate.config import FlowControl
from headgate.errors import ExchangeError, PartitionNotFound
from headgate.exchange.partition import ResultPartition
from headgate.protocol.backoff import Backoff
from headgate.protocol.handshake import DATA_LINK
from headgate.protocol.messages import PartitionRequest
from headgate.protocol.sender import SubpartitionView
from headgate.runtime.deployment import TaskManagerSpec
from headgate.runtime.taskmanager.counters import LinkBytes
from headgate.transport.data_link import ConsumerEnd, ProducerEnd, producer_end
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial, Server, listen
from headgate.transport.tcp_info import TcpInfo


class DataLinks:
    """The data links of one TaskManager. The object listens from the start, and accepts connections after `serve`.

    `find` returns a partition of this TaskManager by edge and producer. `lost` is called with the number of a
    TaskManager that cannot be reached any more, and the reason, on any thread.
    """

    def __init__(
        self,
        network: NetworkThread,
        spec: TaskManagerSpec,
        *,
        index: int,
        bind_host: str,
        find: Callable[[int, int], ResultPartition | None],
        lost: Callable[[int, str], None],
    ) -> None:
        """Start to listen. Raises ConfigError when no port is free."""
        self._network = network
        self._config = spec.config
        self._credentials = spec.credentials
        self._index = index
        self._find = find
        self._lost = lost
        sock = listen(bind_host, spec.config.port_range)
        self._server = Server(network, sock, spec.credentials, DATA_LINK, self._accepted)
        self._producer_ends: list[ProducerEnd] = []
        self._sendfile_by_ended = 0
        self._consumer_ends: dict[tuple[int, int, int], ConsumerEnd] = {}
        self._channels_from: Counter[int] = Counter()
        self._addresses: Sequence[tuple[str, int]] | None = None

    @property
    def port(self) -> int:
        return self._server.port

    def serve(self) -> None:
        """Accept connections, and answer requests for partitions."""
        self._server.start()

    def consumer_end(self, peer: int, edge: int) -> ConsumerEnd:
        """Return the link for an edge from `peer`.

        With credit, all edges share one link. Without credit, each edge has a link of its own: otherwise one edge might
        have to wait for another. If several links per pair are configured, channels use these links in turn.
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
            if self._addresses is not None:
                self._dial(end, self._addresses)
        return self._consumer_ends[key]

    def dial(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Connect to all TaskManagers from which channels receive. Channels that are added later connect, too."""
        self._addresses = addresses
        for end in self._consumer_ends.values():
            self._dial(end, addresses)

    def _dial(self, end: ConsumerEnd, addresses: Sequence[tuple[str, int]]) -> None:
        host, port = addresses[end.peer]
        failed = _unreachable(end)
        dial = Dial(
            self._network,
            (host, port),
            credentials=self._credentials,
            kind=DATA_LINK,
            peer=self._index,
            established=end.established,
            failed=failed,
        )
        self._network.post(dial.start)

    def _accepted(self, sock: Any, peer: int) -> None:
        self._forget_ended()
        lost = functools.partial(self._lost, peer)
        end = producer_end(
            self._network, sock, peer=peer, open_view=self._open_view, lost=lost, flow_control=self._config.flow_control
        )
        self._producer_ends.append(end)
        end.start()

    def _forget_ended(self) -> None:
        """Drop ended links, so that a peer that connects again and again does not make the list grow."""
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
        """Return the counters of each open link on which this TaskManager sends, by `peer` and `number`."""
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
        self._server.close()
        for consumer in self._consumer_ends.values():
            consumer.close()
        for producer in self._producer_ends:
            producer.close()


def _unreachable(end: ConsumerEnd) -> Callable[[str], None]:
    return lambda reason: end.fail(f"cannot connect to it at {reason}")
