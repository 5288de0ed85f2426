"""The channels of an exchange without credit: they align barriers at the consumer, as Flink did before 1.5.

Data of a blocked channel cannot stay where they are. In the gate's buffers, or in the socket, they would stop the
channels whose barriers are still to come, and so would a producer that stands still behind its barrier, since the data
of its own input stay in a socket then: a pipeline would wait for itself. So the producer goes on at once, and what
comes behind the barrier goes to disk until the task goes on with the channel (Flink: BarrierBuffer and BufferSpiller).
"""

from __future__ import annotations

from headgate.exchange.alignment_spill import AlignmentSpill
from headgate.exchange.blocking import Subpartition
from headgate.exchange.channels import (
    BuffersOf,
    Connection,
    LocalInputChannel,
    NotifyGate,
    RemoteInputChannel,
    bytes_of,
)
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import BufferResponse, ResumeConsumption
from headgate.records.events import Event, blocks, decode_event


class PlainInputChannel(RemoteInputChannel):
    """As under credit, but for what follows an aligned barrier. `spill_folder` None is the system's."""

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
        """The network thread: behind a barrier the producer does not wait for the task."""
        super().on_event(response, body)
        if blocks(decode_event(body)):
            self._tell(ResumeConsumption)

    def poll(self, limit: int = 1) -> tuple[list[Buffer] | Event | None, bool]:
        """As `RemoteInputChannel.poll`; while the channel is blocked there is nothing, and what has come goes to disk.
        Raises SpillError when it cannot."""
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
        """Go on behind the barrier: what was spilled comes first. The producer has long gone on."""
        self._alignment.is_blocked = False
        self._notify(self.index)

    def release(self) -> None:
        super().release()
        self._alignment.close()

    @property
    def bytes_spilled(self) -> int:
        return self._alignment.bytes_spilled


class PlainLocalChannel(LocalInputChannel):
    """As under credit, but for what follows an aligned barrier. `spill_folder` None is the system's."""

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
        """As `LocalInputChannel.poll`; while the channel is blocked there is nothing, and what is there goes to disk.
        Raises SpillError when it cannot."""
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
        """Behind a barrier the producer does not wait for the task."""
        polled, more = super()._take(limit)
        if isinstance(polled, Event) and blocks(polled):
            self._subpartition.resume()
        return polled, more

    def _spill(self) -> bool:
        """One buffer or event, so that other channels have their turn; returns whether there is more."""
        polled, more = self._take(1)
        if polled is not None:
            self._alignment.append(polled[0] if isinstance(polled, list) else polled)
        return more

    def resume(self) -> None:
        """Go on behind the barrier: what was spilled comes first. The producer has long gone on."""
        self._alignment.is_blocked = False
        self._notify(self.index)

    def release(self) -> None:
        super().release()
        self._alignment.close()

    @property
    def bytes_spilled(self) -> int:
        return self._alignment.bytes_spilled
