"""Server-sent events: what the page shows, sent again whenever it changes."""

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

#: The most streams that are open at once.
STREAMS: Final = 20
#: Seconds between two looks at a job.
PERIOD: Final = 1.0
#: Seconds after which a stream without news sends a comment, so that a closed connection is noticed.
_SIGN_OF_LIFE: Final = 15.0


class EventStreams:
    """The open streams of a server. One event loop uses it."""

    def __init__(self, rest: Rest, period: float = PERIOD) -> None:
        self._rest = rest
        self._period = period
        self._open = 0
        #: The last event of each job, made once for all its streams: when, and the text.
        self._events: dict[str, tuple[float, bytes]] = {}

    def reserve(self) -> None:
        """Take a place for one more stream. Raises Refusal if there is none."""
        if self._open >= STREAMS:
            raise Refusal(503, f"{STREAMS} pages are open: close one")
        self._open += 1

    def release(self) -> None:
        """Give a place back."""
        self._open -= 1

    async def events(self, job: JobView) -> AsyncIterator[bytes]:
        """Yield the events of a job until it has ended or went."""
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
