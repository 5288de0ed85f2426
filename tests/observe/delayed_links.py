"""Links between TaskManagers that are threads of this program, over a line with a delay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from headgate.lab.delay_line import DelayLine
from headgate.runtime.taskmanager import data_links
from headgate.transport.sockets import Dial


@contextmanager
def delayed_links(round_trip: float) -> Iterator[None]:
    """Make all data links that begin within the context take `round_trip` seconds."""
    with ExitStack() as lines:

        def diverted(network: Any, address: tuple[str, int], **others: Any) -> Any:
            line = lines.enter_context(DelayLine(address[1], rate=float("inf"), round_trip=round_trip))
            return Dial(network, ("127.0.0.1", line.port), **others)

        with mock.patch.object(data_links, "Dial", diverted):
            yield
