"""Links between TaskManagers that are threads of this program, over lines with a delay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from headgate.lab.delay_line import DelayLine
from headgate.runtime.taskmanager import data_links
from headgate.transport.sockets import Dial


class DelayedLinks:
    """The lines of all links, in the order in which they connected."""

    def __init__(self) -> None:
        self.lines: list[DelayLine] = []

    def delay(self, round_trip: float, first: int | None = None) -> None:
        """Make the first lines, or all, take `round_trip` seconds from now on."""
        for line in self.lines[:first]:
            line.round_trip = round_trip


@contextmanager
def delayed_links(round_trip: float = 0.0) -> Iterator[DelayedLinks]:
    """Make all data links that begin within the context take `round_trip` seconds."""
    links = DelayedLinks()
    with ExitStack() as stack:

        def diverted(network: Any, address: tuple[str, int], **others: Any) -> Any:
            line = stack.enter_context(DelayLine(address[1], rate=float("inf"), round_trip=round_trip))
            links.lines.append(line)
            return Dial(network, ("127.0.0.1", line.port), **others)

        with mock.patch.object(data_links, "Dial", diverted):
            yield links
