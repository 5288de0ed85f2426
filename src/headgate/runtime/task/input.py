"""The input of a task: decodes the buffers of all gates into batches, and merges the watermarks of all channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.errors import ExchangeError
from headgate.exchange.gate import InputGate
from headgate.exchange.union_gate import UnionGate
from headgate.exchange.watermark_valve import WatermarkValve
from headgate.memory.buffer import Buffer, recycle_all
from headgate.records.arrow import BatchCodec
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.records.events import EndOfPartition, Event
from headgate.records.spanning import Element, MessageMemory, SpanningDeserializer, serialize
from headgate.runtime.task.barriers import TaskBarriers

#: In one step, the task reads one segment of a channel for each 32 KiB (the default size of a segment) of the message
#: size. It then recycles these segments.
_RUN_BYTES: Final = 32 << 10
#: Each batch costs an operator some time, whatever its rows. Up to this many rows, more of them make each row cheaper.
#: Of rows from `_WIDE_ROW` bytes on, few are enough.
_FEW_ROWS: Final = 8192
_WIDE_ROW: Final = 1 << 10
#: A batch that takes longer than these seconds is slow: a barrier waits for its end.
_SLOW: Final = 0.1


class TaskInput:
    """The input of a task: reads the union of the task's gates.

    `next` returns batches of up to about `message_size` bytes. If `joins` is True, `next` joins small batches that have
    arrived, because an exchange over many channels sends batches of a few rows. While a batch has few rows, and these
    have less than 1 KiB each, it may have the bytes of `joined_messages` messages, if batches are quick (`took`). If
    `joins` is False, each message is a batch.

    `ports` has the number of the operator's input to which the rows of each gate go; by default all go to input 0. A
    batch has only rows of one port, and after `next` the attribute `port` is the port of the batch.
    """

    def __init__(
        self,
        gates: Sequence[InputGate],
        codecs: Sequence[BatchCodec],
        message_size: int,
        barriers: TaskBarriers,
        memory: MessageMemory | None = None,
        *,
        joins: bool = True,
        joined_messages: int = 1,
        ports: Sequence[int] | None = None,
    ) -> None:
        self._gates = UnionGate(gates)
        self._barriers = barriers
        barriers.held = self._held
        self._joins = joins
        self._most_joined = joined_messages
        self._joined = 1
        self._message_size = message_size
        self._run = max(1, message_size // _RUN_BYTES)
        self._deserializers = [
            SpanningDeserializer(codec, memory)
            for gate, codec in zip(gates, codecs, strict=True)
            for _ in gate.channels
        ]
        self._codecs = [codec for gate, codec in zip(gates, codecs, strict=True) for _ in gate.channels]
        gate_ports = [0] * len(gates) if ports is None else ports
        self._ports = [port for gate, port in zip(gates, gate_ports, strict=True) for _ in gate.channels]
        self.port = 0
        self._valve = WatermarkValve(self._gates.channels)
        self._open = self._gates.channels
        self._elements: deque[tuple[int, Element]] = deque()
        #: The batches that the next call of `next` joins, by port, each with its channel.
        self._batches: dict[int, list[tuple[int, pa.RecordBatch]]] = {}
        self._bytes = self._rows = 0
        self._watermark: int | None = None
        self._status: bool | None = None
        self._markers: deque[LatencyMarker] = deque()
        self.rows_in = 0
        #: Called with each batch and its port before `next` returns the batch, or None. Any thread may set it.
        self.on_batch: Callable[[pa.RecordBatch, int], None] | None = None
        #: Rows that a full queue dropped; 0 for an input without a queue.
        self.rows_dropped = 0

    @property
    def is_finished(self) -> bool:
        """Whether all channels have ended and `next` has returned all their data."""
        held = self._elements or self._batches or self._markers or self._barriers.is_behind
        return not self._open and not held and self._watermark is None

    @property
    def is_blocked_by_barrier(self) -> bool:
        """Whether a checkpoint's barrier blocks a channel until the other channels have theirs."""
        return self._barriers.blocks_input

    def close(self) -> None:
        """Stop reading. The task calls this before it releases the gates."""

    @property
    def has_data(self) -> bool:
        return bool(self._elements) or self._gates.has_data

    def _held(self) -> list[list[memoryview]]:
        """Return the bytes of each channel that this object has taken, but that `next` has not returned yet.

        Call this between two calls of `next`. The bytes contain only rows: after a restart, sources send watermarks and
        their status again.
        """
        held: list[list[memoryview]] = [[] for _ in self._deserializers]
        for batches in self._batches.values():  # those of another port than the last batch
            for channel, batch in batches:
                held[channel] += serialize(batch, self._codecs[channel])
        for channel, element in self._elements:
            if isinstance(element, pa.RecordBatch):
                held[channel] += serialize(element, self._codecs[channel])
        for channel, deserializer in enumerate(self._deserializers):
            held[channel] += deserializer.partial
        return held

    def restore(self, rows: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Add rows that were in flight at the checkpoint, each batch with the number of its channel.

        Call this before the first `next`: `next` returns these rows before all others.
        """
        self._elements += rows

    def set_message_size(self, message_size: int) -> None:
        """Set the number of bytes up to which `next` joins batches from now on."""
        self._message_size = message_size
        self._run = max(1, message_size // _RUN_BYTES)

    def took(self, seconds: float) -> None:
        """Adapt the next batch to the time that the last one took, with the waits for the output.

        After a quick one it may have twice as many messages of few rows as before, and after a slow one only one.
        """
        self._joined = min(2 * self._joined, self._most_joined) if seconds < _SLOW else 1

    def next(self) -> Element | None:
        """Return the next batch, watermark, status or marker, or None if there is none.

        Watermarks and latency markers never overtake rows. They wait only for the rows that came before them.
        """
        if not self._batches and self._watermark is None and self._status is None and not self._markers:
            self._gather()
        if self._batches:
            return self._join_batches()
        if self._watermark is not None:
            time, self._watermark = self._watermark, None
            return WatermarkElement(time)
        if self._status is not None:
            active, self._status = self._status, None
            return WatermarkStatus(active)
        return self._markers.popleft() if self._markers else None

    def catch_up(self) -> bool:
        """Handle the events that follow the elements that `next` has returned. Returns whether there were events.

        Call this when `next` returns None.
        """
        if not self._barriers.is_behind:
            return False
        self._barriers.catch_up()
        return True

    def _gather(self) -> None:
        """Take elements that have arrived, up to the message size."""
        while self._has_room and not self._barriers.is_behind:
            if not self._elements and not self._poll():
                return
            while self._elements:
                self._take(*self._elements.popleft())
                if not self._has_room:
                    return

    @property
    def _has_room(self) -> bool:
        """Whether the task may take another element.

        The task stops at the message size, or later if the rows are few. It also stops behind a status or a latency
        marker, because later rows must not overtake these.
        """
        return not self._has_joined and self._status is None and not self._markers

    @property
    def _has_joined(self) -> bool:
        """Whether a batch is complete."""
        if not self._joins:
            return bool(self._batches)
        is_few = self._rows < _FEW_ROWS and self._bytes < self._rows * _WIDE_ROW
        return self._bytes >= self._message_size * (self._joined if is_few else 1)

    def _join_batches(self) -> pa.RecordBatch:
        self.port = next(iter(self._batches))
        batches = self._batches.pop(self.port)
        self._bytes = self._rows = 0
        batch = batches[0][1] if len(batches) == 1 else concat_batches([batch for _, batch in batches])
        self.rows_in += batch.num_rows
        on_batch = self.on_batch
        if on_batch is not None:
            on_batch(batch, self.port)
        return batch

    def _take(self, channel: int, element: Element) -> None:
        if isinstance(element, pa.RecordBatch):
            self._batches.setdefault(self._ports[channel], []).append((channel, element))
            self._rows += element.num_rows
            self._bytes += self._codecs[channel].batch_bytes(element)
        elif isinstance(element, WatermarkElement):
            # A later watermark replaces an earlier one. The rows between the two were on time for both watermarks.
            watermark = self._valve.on_watermark(channel, element.time)
            self._watermark = watermark if watermark is not None else self._watermark
        elif isinstance(element, LatencyMarker):
            self._markers.append(element)
        elif isinstance(element, WatermarkStatus):
            watermark, self._status = self._valve.on_status(channel, element.active)
            self._watermark = watermark if watermark is not None else self._watermark
        else:
            raise ExchangeError(f"channel {channel} has an {type(element).__name__}, which only a throttle sends")

    def _poll(self) -> bool:
        """Read the buffers of one channel, or one event. The gates take turns. Returns whether a gate had data."""
        polled = self._gates.poll(self._run)
        if polled is None:
            return False
        channel, taken = polled
        if isinstance(taken, list):
            self._read(channel, taken)
        else:
            self._on_event(channel, taken)
        return True

    def _read(self, channel: int, buffers: list[Buffer]) -> None:
        feed = self._deserializers[channel].feed
        try:
            if (recording := self._barriers.recording) is not None:
                recording.add(channel, buffers)
            for buffer in buffers:
                for element in feed(buffer.views):
                    self._elements.append((channel, element))
        finally:
            recycle_all(buffers)

    def _on_event(self, channel: int, event: Event) -> None:
        self._barriers.on_event(channel, event)
        if isinstance(event, EndOfPartition):
            self._open -= 1
            watermark, self._status = self._valve.end(channel)
            self._watermark = watermark if watermark is not None else self._watermark
