"""The network thread of a simulated TaskManager. It calls the runtime's own links, in the order of the real thread."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.simulation.virtual_socket import VirtualSocket
from headgate.simulation.virtual_thread import VirtualThread
from headgate.simulation.work import Work
from headgate.transport.network_thread import Link


class VirtualNetwork(VirtualThread):
    """A thread that has the methods of `NetworkThread` which links call. Its turns take time."""

    def __init__(self, work: Work) -> None:
        super().__init__(work.world)
        self._work = work
        self._links: dict[VirtualSocket, tuple[int, Link]] = {}
        self._perhaps_ready: dict[VirtualSocket, None] = {}
        self._marked: deque[Link] = deque()
        self._posted: deque[Callable[[], object]] = deque()
        self._has_turn = False

    def post(self, work: Callable[[], object]) -> None:
        """Run `work` in a turn of this thread."""
        self._posted.append(work)
        self.wake()

    def mark(self, link: Link) -> None:
        """Call `link.on_marked` on the simulated network thread."""
        self._marked.append(link)
        self.wake()

    def serve(self, link: Link) -> None:
        """Call `link.on_marked` at once, as if the network thread waited, or later, as if it had the turn.

        Both are equally likely.
        """
        if self._has_turn or self.world.random.random() < 0.5:
            self.mark(link)
            return
        with self._turn():
            link.on_marked()

    def call_later(self, delay: float, work: Callable[[], object]) -> None:
        """Run `work` on the simulated network thread, after `delay` seconds of virtual time."""
        self.world.check_at(self.world.clock() + delay, lambda: self.post(work))

    def register(self, sock: VirtualSocket, mask: int, link: Link) -> None:
        """Call `link.on_ready` when the socket is ready for an event of `mask`."""
        sock.changed = self._look_at
        self._links[sock] = mask, link
        self._look_at(sock)

    def modify(self, sock: VirtualSocket, mask: int, link: Link) -> None:
        """Change the mask of a socket."""
        self._links[sock] = mask, link
        self._look_at(sock)

    def unregister(self, sock: VirtualSocket) -> None:
        """Stop waiting for a socket. A second call changes nothing."""
        self._links.pop(sock, None)
        self._perhaps_ready.pop(sock, None)

    def _look_at(self, sock: VirtualSocket) -> None:
        self._perhaps_ready[sock] = None
        self.wake()

    def turn(self) -> float:
        """Call the links that are ready or marked, and run the posted work."""
        self._work.take_network_turn()
        with self._turn():
            self._call_links()
        self._perhaps_ready = {sock: None for sock in self._perhaps_ready if self._is_ready(sock)}
        return self.world.clock() if self._perhaps_ready or self._marked or self._posted else math.inf

    def _call_links(self) -> None:
        for sock in list(self._perhaps_ready):
            if sock in self._links:
                mask, link = self._links[sock]
                if ready := sock.ready(mask):
                    link.on_ready(ready)
        for _ in range(len(self._marked)):
            self._marked.popleft().on_marked()
        for _ in range(len(self._posted)):
            self._posted.popleft()()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        self._has_turn = True
        try:
            yield
        finally:
            self._has_turn = False

    def _is_ready(self, sock: VirtualSocket) -> bool:
        return sock in self._links and sock.ready(self._links[sock][0]) != 0
