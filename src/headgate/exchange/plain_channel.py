"""The channels of an exchange without credit. They align barriers at the consumer, like Flink before 1.5.

Data of a blocked channel must not stay in the gate's buffers or in the socket. There they would also stop the channels
whose barriers have not arrived. The producer must not wait after its barrier either. The data of the producer's own
input would then stay in a socket, and a pipeline could deadlock. The producer therefore resumes at once. The channel
spills the data after the barrier to disk until the task resumes the channel (Flink: BarrierBuffer and BufferSpiller).

An input with a queue resumes the channel when the barrier enters the queue. If the barrier has its turn there before
the barriers of other channels have come, the queue blocks the channel again. Then the channel spills what arrives.
"""

from __future__ import annotations

from headgate.exchange.alignment_spill import AlignmentSpill
from headgate.exchange.blocking import Subpartition
from headgate.exchange.channel_parts import BuffersOf, Connection
from headgate.exchange.channels import LocalInputChannel, NotifyGate, RemoteInputChannel, bytes_of
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import BufferResponse, ResumeConsumption
from headgate.records.events import Event, blocks, decode_event


class PlainInputChannel(RemoteInputChannel):
    """A remote channel that spills the data after an aligned barrier to disk.

    If `spill_folder` is None, the file is in the system's temporary folder.
    """

    def __init__(
        self,
        index: int,
        address: tuple[int, int, int],
        *,
        buffers_of: BuffersOf,
        notify: NotifyGate,
        notify_priority: NotifyGate,
        connection: Connection,
        spill_folder: str | None,
    ) -> None:
        super().__init__(
            index, address, buffers_of=buffers_of, notify=notify, notify_priority=notify_priority, connection=connection
        )
        self._alignment = AlignmentSpill(spill_folder)

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        """Accept an event on the network thread. After a blocking barrier, ask the producer to resume at once."""
        super().on_event(response, body)
        if blocks(decode_event(body)):
            self._send_message(ResumeConsumption)

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        """Poll like `RemoteInputChannel.poll`. While the channel is blocked, spill received data and return nothing.

        Raises SpillError when the disk refuses the data.
        """
        alignment, received = self._alignment, self._received
        if alignment.is_blocked:
            while received:
                alignment.append(received.popleft())
            if self._error is not None:
                raise self._error
            return None, False
        if not alignment:
            polled, more = super().poll(limit)
        else:
            polled, more = alignment.popleft(), True
            self.bytes_polled += bytes_of(polled)
        alignment.given(polled)
        return polled, more

    def resume(self) -> None:
        """Return data again: first the spilled data after the barrier. The producer has already resumed."""
        self._alignment.is_blocked = False
        self._notify(self.index)

    def block(self) -> None:
        self._alignment.is_blocked = True

    def unblock(self) -> None:
        self.resume()

    def release(self) -> None:
        super().release()
        self._alignment.close()

    @property
    def bytes_spilled(self) -> int:
        return self._alignment.bytes_spilled


class PlainLocalChannel(LocalInputChannel):
    """A local channel that spills the data after an aligned barrier to disk.

    If `spill_folder` is None, the file is in the system's temporary folder.
    """

    def __init__(
        self,
        index: int,
        subpartition: Subpartition,
        notify: NotifyGate,
        notify_priority: NotifyGate,
        spill_folder: str | None,
    ) -> None:
        super().__init__(index, subpartition, notify, notify_priority)
        self._alignment = AlignmentSpill(spill_folder)

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        """Poll like `LocalInputChannel.poll`. While the channel is blocked, spill available data and return nothing.

        Raises SpillError when the disk refuses the data.
        """
        alignment = self._alignment
        if alignment.is_blocked:
            return None, self._spill()
        if not alignment:
            polled, more = super().poll(limit)
        else:
            polled, more = alignment.popleft(), True
            self.bytes_polled += bytes_of(polled)
        alignment.given(polled)
        return polled, more

    def _take(self, limit: int) -> tuple[list[Buffer] | Event | None, bool]:
        """Take the next item from the subpartition. After a blocking barrier, let the producer resume at once."""
        polled, more = super()._take(limit)
        if isinstance(polled, Event) and blocks(polled):
            self._subpartition.resume()
        return polled, more

    def _spill(self) -> bool:
        """Spill only one buffer or event, so that other channels get their turn. Returns whether more items follow."""
        polled, more = self._take(1)
        if polled is not None:
            self._alignment.append(polled[0] if isinstance(polled, list) else polled)
        return more

    def resume(self) -> None:
        """Return data again: first the spilled data after the barrier. The producer has already resumed."""
        self._alignment.is_blocked = False
        self._notify(self.index)

    def block(self) -> None:
        self._alignment.is_blocked = True

    def unblock(self) -> None:
        self.resume()

    def release(self) -> None:
        super().release()
        self._alignment.close()

    @property
    def bytes_spilled(self) -> int:
        return self._alignment.bytes_spilled
