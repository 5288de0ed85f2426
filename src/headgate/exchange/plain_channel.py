"""The remote channel of a connection without credit: it aligns barriers at the consumer, as Flink did before 1.5.

Data of a blocked channel cannot stay where they are. In the gate's buffers, or in the socket, they would stop the
channels whose barriers are still to come, and a pipeline would wait for itself (`research/flink.md` 7). So the producer
is told to go on at once, and what comes behind the barrier goes to disk until the task goes on with the channel.
"""

from __future__ import annotations

from headgate.errors import ExchangeError
from headgate.exchange.channels import BuffersOf, Connection, NotifyGate, RemoteInputChannel
from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import BufferResponse, ResumeConsumption
from headgate.records.events import Event, blocks, decode_event


class PlainInputChannel(RemoteInputChannel):
    """As under credit, but for what follows an aligned barrier. `spill_folder` None is the system's."""

    def __init__(
        self,
        index: int,
        address: tuple[int, int, int],
        buffers_of: BuffersOf,
        notify: NotifyGate,
        notify_priority: NotifyGate,
        connection: Connection,
        spill_folder: str | None,
    ) -> None:
        super().__init__(index, address, buffers_of, notify, notify_priority, connection)
        self._blocked = False
        self._spilled = SpillFile(spill_folder)
        self.bytes_spilled = 0

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        """The network thread: behind a barrier the producer does not wait for the task."""
        super().on_event(response, body)
        if blocks(decode_event(body)):
            self._tell(ResumeConsumption)

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        """As `RemoteInputChannel.poll`; while the channel is blocked there is nothing, and what has come goes to disk.
        Raises ExchangeError when it cannot."""
        if self._blocked:
            self._spill()
            if self._error is not None:
                raise self._error
            return None, False
        polled, more = (self._unspill(), True) if self._spilled else super().poll(limit)
        self._blocked = isinstance(polled, Event) and blocks(polled)
        return polled, more

    def _spill(self) -> None:
        received = self._received
        try:
            while received:
                item = received.popleft()
                if isinstance(item, Buffer):
                    self.bytes_spilled += item.size
                self._spilled.append(item)
        except OSError as error:
            raise ExchangeError(
                f"data behind a barrier cannot be written to disk: {error}; let spill_dir name a folder with room"
            ) from error

    def _unspill(self) -> list[Buffer] | Event:
        item = self._spilled.popleft()
        if isinstance(item, Event):
            return item
        self.bytes_polled += item.size
        return [item]

    def resume(self) -> None:
        """Go on behind the barrier: what was spilled comes first. The producer has long gone on."""
        self._blocked = False
        self._notify(self.index)

    def release(self) -> None:
        super().release()
        self._spilled.close()
