"""Server-sent events: the content of the page, sent again after each change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec

from headgate.web.answers import Overview
from headgate.web.job_view import JobView
from headgate.web.refusal import Refusal
from headgate.web.rest import Rest

#: The largest number of streams that are open at once.
STREAMS: Final = 20
#: The seconds between two checks of a job for changes.
PERIOD: Final = 1.0
#: The seconds after which a stream without events sends a comment. The write fails if the connection is closed.
_SIGN_OF_LIFE: Final = 15.0


class EventStreams:
    """The open streams of a server. Only one event loop may use this object."""

    def __init__(self, rest: Rest, period: float = PERIOD) -> None:
        self._rest = rest
        self._period = period
        self._open = 0
        #: The last event of each job, made once for all streams of the job: its time and its text.
        self._events: dict[str, tuple[float, bytes]] = {}

    def reserve(self) -> None:
        """Count one more open stream. Raises Refusal if too many streams are open."""
        if self._open >= STREAMS:
            raise Refusal(503, f"{STREAMS} pages are open: close one")
        self._open += 1

    def release(self) -> None:
        """Count one open stream less."""
        self._open -= 1

    async def events(self, job: JobView) -> AsyncIterator[bytes]:
        """Yield the events of a job until the job has ended."""
        sent, quiet_until = b"", 0.0
        while True:
            ended = job.facts().ended_at is not None
            event, now = self._event(job), time.monotonic()
            if event != sent:
                yield event
                sent, quiet_until = event, now + _SIGN_OF_LIFE
            elif now >= quiet_until:
                yield b": still here\n\n"
                quiet_until = now + _SIGN_OF_LIFE
            if ended:
                yield b"event: end\ndata: {}\n\n"
                return
            await asyncio.sleep(self._period)

    def _event(self, job: JobView) -> bytes:
        at, event = self._events.get(job.id, (0.0, b""))
        now = time.monotonic()
        if now - at > self._period / 2 or job.facts().ended_at is not None:
            event = _text(self._rest.overview(job))
            visible = {each.id for each in self._rest.board.jobs()}
            self._events = {id_: each for id_, each in self._events.items() if id_ in visible} | {job.id: (now, event)}
        return event


def _text(overview: Overview) -> bytes:
    return b"event: overview\ndata: " + msgspec.json.encode(overview) + b"\n\n"
