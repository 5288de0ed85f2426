"""What a remote input channel consists of: its end of a connection, and its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headgate.memory.segment import MemorySegment
from headgate.protocol.decoders import NoMemoryYet
from headgate.protocol.messages import OfChannel


class Connection(Protocol):
    """The methods of the consumer's end of a data link that a channel calls, on any thread."""

    def credit_available(self, receiver: int) -> None:
        """Record that a channel has new credit. In plain TCP: record that its waiting frame can have a buffer."""

    def send(self, message: OfChannel) -> None: ...

    def cancel(self, receiver: int) -> None: ...


class ChannelBuffers(Protocol):
    """The memory of one remote channel: `BufferManager` with credit, `SharedBuffers` without."""

    @property
    def initial_credit(self) -> int: ...
    @property
    def free_exclusive(self) -> int: ...
    @property
    def free_floating(self) -> int: ...
    @property
    def unannounced(self) -> int: ...
    @property
    def announced(self) -> int: ...
    @property
    def without_buffer_s(self) -> float: ...
    @property
    def reader_stops(self) -> int: ...
    def take(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None: ...
    def recycle(self, *segments: MemorySegment) -> None: ...
    def on_backlog(self, backlog: int) -> None: ...
    def block(self) -> None: ...
    def take_unannounced(self) -> int: ...
    def release(self) -> None: ...


#: A function that makes a channel's buffers. The buffers call its argument when they have new credit or a free buffer.
BuffersOf = Callable[[Callable[[], None]], ChannelBuffers]
