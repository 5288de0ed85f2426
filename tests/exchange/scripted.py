"""An input channel that hands out what a test has put into it."""

from __future__ import annotations

from collections import deque

from headgate.errors import ExchangeError
from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer
from headgate.records.events import Event


class ScriptedChannel(InputChannel):
    """Buffers one after the other up to a limit, events alone; an error is raised when its turn has come."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.items: deque[Buffer | Event | ExchangeError] = deque()

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        taken: list[Buffer] = []
        while self.items and len(taken) < limit:
            item = self.items.popleft()
            if isinstance(item, ExchangeError):
                raise item
            if not isinstance(item, Buffer):
                return item, bool(self.items)
            taken.append(item)
            if self.items and not isinstance(self.items[0], Buffer):
                break
        return taken or None, bool(self.items)
