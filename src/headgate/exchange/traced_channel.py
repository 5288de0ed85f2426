"""TracedChannel: a wrapper of an input channel. It records each read by the task."""

from __future__ import annotations

from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer
from headgate.protocol.traced_ends import Note
from headgate.records.events import Event


class TracedChannel(InputChannel):
    """A wrapper of a channel in its gate while a trace runs. It passes on every call that comes through the gate.

    The task calls the other methods of the channel directly.
    """

    def __init__(self, channel: InputChannel, note: Note) -> None:
        self.index = channel.index
        self.traced = channel
        self.bytes_polled = channel.bytes_polled
        self._note = note

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        polled, more = self.traced.poll(limit)
        self.bytes_polled = self.traced.bytes_polled
        if isinstance(polled, list):
            buffers = sum(max(1, len(buffer.segments)) for buffer in polled)
            self._note("read", buffers, 0, self.traced.queue_length)
        return polled, more

    def poll_priority(self) -> Event | None:
        return self.traced.poll_priority()

    def announce_buffer_size(self, size: int) -> None:
        self.traced.announce_buffer_size(size)

    def release(self) -> None:
        self.traced.release()

    @property
    def buffers_in_use(self) -> int:
        return self.traced.buffers_in_use
