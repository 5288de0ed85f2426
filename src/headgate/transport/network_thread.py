"""The network thread: the thread of a TaskManager or driver that serves its sockets.

Other threads `post` work to the network thread, or `mark` a link that has work. Several wake-ups are merged into one.
Links work in short callbacks that never block. A thread holds the *turn* while it calls them, so no two callbacks run
at the same time.

A wake-up costs more than the write of a small message. So a thread may also `serve` a link itself while the network
thread waits.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from headgate.errors import HeadgateError
from headgate.transport.link_socket import LinkSocket
from headgate.transport.wake_up import WakeUp

_Ready = tuple[selectors.SelectorKey, int]
log = logging.getLogger(__name__)


class Link(Protocol):
    """One socket and its callbacks. All methods run on the thread that holds the turn of the network thread."""

    def on_ready(self, mask: int) -> None:
        """Read or write. The socket is ready for the events in `mask`."""

    def on_marked(self) -> None:
        """Do the work for which another thread called `mark` or `serve`."""


class Network(Protocol):
    """The methods of the network thread that the ends of a data link call. A simulation has a virtual network."""

    def post(self, work: Callable[[], object]) -> None: ...

    def mark(self, link: Any) -> None: ...

    def serve(self, link: Any) -> None: ...

    def call_later(self, delay: float, work: Callable[[], object]) -> None: ...

    def register(self, sock: Any, mask: int, link: Any) -> None: ...

    def modify(self, sock: Any, mask: int, link: Any) -> None: ...

    def unregister(self, sock: Any) -> None: ...


class NetworkThread:
    """The event loop for all sockets of a process, on a thread of its own.

    Any thread may call `post`, `mark`, `serve` and `call_later`. Only the thread with the turn may call `register` and
    the methods below it. Other threads never wait for the turn: they hand over work in deques. `on_error` is called,
    with the turn, with an exception that a callback has not handled.
    """

    def __init__(self, name: str, on_error: Callable[[Exception], None] | None = None) -> None:
        self._on_error = on_error
        self._selector = selectors.DefaultSelector()
        self._wake_up = WakeUp()
        self._selector.register(self._wake_up, selectors.EVENT_READ, None)
        self._posted: deque[Callable[[], object]] = deque()
        self._marked: deque[Link] = deque()
        self._woken = False
        self._turn = threading.Lock()
        #: TLS sockets that hold received bytes in memory. The selector does not see these bytes.
        self._filled: set[LinkSocket] = set()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._stopping = False
        self._runner = threading.Thread(target=self._run, name=f"headgate-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._runner.start()

    def stop(self, timeout: float) -> None:
        """End the thread after the work posted so far, and close all registered sockets. Waits up to `timeout` s."""
        self.post(self._stop)
        if threading.current_thread() is not self._runner:
            self._runner.join(timeout)

    def _stop(self) -> None:
        self._stopping = True

    # --- from any thread

    def post(self, work: Callable[[], object]) -> None:
        """Run `work` on the network thread, in the order posted."""
        self._posted.append(work)
        self._wake()

    def mark(self, link: Link) -> None:
        """Call `link.on_marked` on the network thread. A mark is cheap, because the link keeps its own list of work."""
        self._marked.append(link)
        self._wake()

    def serve(self, link: Link) -> None:
        """Call `link.on_marked` now, on the calling thread, if no thread has the turn. Else `mark` the link.

        The caller holds no lock. `mark` is better for many small pieces of work, because it merges them.
        """
        if not self._turn.acquire(blocking=False):
            self.mark(link)
            return
        try:
            if not self._stopping:
                self._guarded(link.on_marked)
            if self._filled:  # the link may have made such a socket readable, which the waiting thread does not see
                self._wake()
        finally:
            self._turn.release()

    def call_later(self, delay: float, work: Callable[[], object]) -> None:
        """Run `work` on the network thread `delay` seconds from now."""
        at = time.monotonic() + delay
        self.post(lambda: heapq.heappush(self._timers, (at, next(self._order), work)))

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._wake_up.set()

    # --- with the turn

    def register(self, sock: LinkSocket, mask: int, link: Link) -> None:
        """Call `link.on_ready` when the socket is ready for an event of `mask`."""
        self._selector.register(sock, mask, link)

    def modify(self, sock: LinkSocket, mask: int, link: Link) -> None:
        """Change the mask of a socket. With a mask of 0 it is unregistered until the next `modify`."""
        if not mask:
            self.unregister(sock)
            return
        try:
            self._selector.modify(sock, mask, link)
        except KeyError:
            self._selector.register(sock, mask, link)

    def unregister(self, sock: LinkSocket) -> None:
        """Stop waiting for a socket. A second call changes nothing."""
        with suppress(KeyError):
            self._selector.unregister(sock)

    def hold(self, sock: LinkSocket, has_more: bool) -> None:
        """Record whether a TLS socket holds received bytes in memory. Such a socket counts as readable."""
        if has_more:
            self._filled.add(sock)
        else:
            self._filled.discard(sock)

    def _run(self) -> None:
        timeout: float | None = 0
        try:
            while not self._stopping:
                ready = self._selector.select(timeout)
                with self._turn:
                    self._take_turn(ready)
                    timeout = self._timeout()
        finally:
            with self._turn:
                self._stopping = True
                self._close()

    def _take_turn(self, ready: list[_Ready]) -> None:
        self._woken = True  # work that comes from here on needs no wake-up, because this turn looks for it below
        if self._filled:
            ready = self._with_filled(ready)
        for key, mask in ready:
            if key.data is None:
                self._wake_up.clear()
            else:
                self._guarded(key.data.on_ready, mask)
        # Reset the flag before looking for work. Work that is added later then wakes the thread again.
        self._woken = False
        for _ in range(len(self._marked)):
            self._guarded(self._marked.popleft().on_marked)
        for _ in range(len(self._posted)):
            self._guarded(self._posted.popleft())
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._guarded(heapq.heappop(self._timers)[2])

    def _with_filled(self, ready: list[_Ready]) -> list[_Ready]:
        masks = dict(ready)
        for key in self._filled_keys():
            masks[key] = masks.get(key, 0) | selectors.EVENT_READ
        return list(masks.items())

    def _filled_keys(self) -> list[selectors.SelectorKey]:
        """Return the selector keys of those TLS sockets that hold bytes and are registered for reading."""
        keys = [self._selector.get_map().get(sock) for sock in self._filled]
        return [key for key in keys if key is not None and key.events & selectors.EVENT_READ]

    def _timeout(self) -> float | None:
        if self._posted or self._marked or (self._filled and self._filled_keys()):
            return 0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if not isinstance(key.fileobj, int):
                key.fileobj.close()  # type: ignore[attr-defined]
        self._selector.close()

    def _guarded(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Run a callback, and report an exception instead of ending the thread.

        A link handles the errors of its peer itself. `on_error` fails the job, which would otherwise wait for this
        link. The other links continue. An exception that is not a HeadgateError is a bug, and is also logged.
        """
        try:
            callback(*arguments)
        except Exception as error:
            if self._on_error is None or not isinstance(error, HeadgateError):
                log.exception("error on the network thread")
            traceback.clear_frames(error.__traceback__)  # they may hold views into segments
            if self._on_error is not None:
                self._on_error(error)
