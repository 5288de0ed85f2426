"""The data links of one TaskManager over sockets. It listens for consumers, and connects to its producers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.exchange.partition import ResultPartition
from headgate.protocol.handshake import DATA_LINK
from headgate.runtime.deployment import TaskManagerSpec
from headgate.runtime.taskmanager.link_ends import LinkEnds
from headgate.transport.data_link import ConsumerEnd
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import Dial, Server, listen


class DataLinks(LinkEnds):
    """The data links of one TaskManager. The object listens from the start, and accepts connections after `serve`."""

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
        super().__init__(network, spec.config, index=index, find=find, lost=lost)
        self._thread = network
        self._credentials = spec.credentials
        sock = listen(bind_host, spec.config.port_range)
        self._server = Server(network, sock, spec.credentials, DATA_LINK, self.accepted)
        self._addresses: Sequence[tuple[str, int]] | None = None

    @property
    def port(self) -> int:
        return self._server.port

    def serve(self) -> None:
        """Accept connections, and answer requests for partitions."""
        self._server.start()

    def dial(self, addresses: Sequence[tuple[str, int]]) -> None:
        """Connect to the TaskManagers from which this one's channels receive. Links that are added later connect, too.

        `addresses` has the address of each TaskManager, by number.
        """
        self._addresses = addresses
        for end in self._consumer_ends.values():
            self._dial(end, addresses)

    def _opened(self, end: ConsumerEnd) -> None:
        if self._addresses is not None:
            self._dial(end, self._addresses)

    def _dial(self, end: ConsumerEnd, addresses: Sequence[tuple[str, int]]) -> None:
        host, port = addresses[end.peer]
        failed = _unreachable(end)
        dial = Dial(
            self._thread,
            (host, port),
            credentials=self._credentials,
            kind=DATA_LINK,
            peer=self._index,
            established=end.established,
            failed=failed,
        )
        self._thread.post(dial.start)

    def close(self) -> None:
        """Close all links. Runs on the network thread."""
        self._server.close()
        super().close()


def _unreachable(end: ConsumerEnd) -> Callable[[str], None]:
    return lambda reason: end.fail(f"cannot connect to it at {reason}")
