"""An HTTP connection that a slow client cannot keep open. The server holds a limited number of connections."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: The seconds within which the head of a request must arrive, from the opening of the connection or the last answer.
ARRIVES: Final = 10.0
#: The seconds for which an answer may wait because the client reads nothing.
READS: Final = 30.0


class HttpConnection(H11Protocol):
    """A connection of uvicorn's, with a limit on the time of a request's head, and on an answer that nobody reads."""

    arrives, reads = ARRIVES, READS
    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head = self.loop.call_later(self.arrives, self._on_no_request)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._cancel(self._head)
        self._head = self.loop.call_later(self.arrives, self._on_no_request)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.reads, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel(self._head)
        self._cancel(self._unread)
        super().connection_lost(exc)

    def _on_no_request(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
