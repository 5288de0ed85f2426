"""uvicorn's server, which wakes only once a second while nobody asks. uvicorn's own wakes ten times."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import uvicorn


class HttpServer(uvicorn.Server):
    """The server. `end` ends it; do not set `should_exit`, which it sees late."""

    _loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._is_over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # a tick sets the date of the answers
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), timeout=1)

    def end(self) -> None:
        """End the server at once, also where connections are open. Any thread may call this."""
        self.should_exit = self.force_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the server has ended
                self._loop.call_soon_threadsafe(self._is_over.set)
