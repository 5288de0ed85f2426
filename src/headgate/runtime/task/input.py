"""A task's input: from the buffers of its gates to batches worth working on, and one event time for all channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.exchange.gate import InputGate
from headgate.exchange.union_gate import UnionGate
from headgate.exchange.watermark_valve import WatermarkValve
from headgate.memory.buffer import Buffer, recycle_all
from headgate.records.arrow import BatchCodec
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.records.events import EndOfPartition, Event
from headgate.records.spanning import Element, MessageMemory, SpanningDeserializer, serialize
from headgate.runtime.task.barriers import TaskBarriers

#: About as many bytes of one channel are read, and their segments given back, in one step.
_RUN_BYTES: Final = 32 << 10


class TaskInput:
    """The union of a task's gates. `next` gives batches of up to about `message_size` bytes: small ones that are there
    together are joined, or an exchange over many channels would starve what follows with scraps."""

    def __init__(
        self,
        gates: Sequence[InputGate],
        codecs: Sequence[BatchCodec],
        message_size: int,
        barriers: TaskBarriers,
        memory: MessageMemory | None = None,
    ) -> None:
        self._gates = UnionGate(gates)
        self._barriers = barriers
        barriers.held = self._held
        self._message_size = message_size
        self._run = max(1, message_size // _RUN_BYTES)
        self._deserializers = [
            SpanningDeserializer(codec, memory)
            for gate, codec in zip(gates, codecs, strict=True)
            for _ in gate.channels
        ]
        self._codec = codecs[0]  # the inputs of a union have one schema
        self._valve = WatermarkValve(self._gates.channels)
        self._open = self._gates.channels
        self._elements: deque[tuple[int, Element]] = deque()
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._watermark: int | None = None
        self._status: bool | None = None
        self._markers: deque[LatencyMarker] = deque()
        self.rows_in = 0

    @property
    def is_finished(self) -> bool:
        """All channels have ended and everything of theirs was handed out."""
        held = self._elements or self._batches or self._markers or self._barriers.is_behind
        return not self._open and not held and self._watermark is None

    @property
    def has_data(self) -> bool:
        return bool(self._elements) or self._gates.has_data

    def _held(self) -> list[list[memoryview]]:
        """By channel, the bytes of rows that were taken from it and not handed out; between two calls of `next`. What
        is no row is not kept: sources say again what the time is, and whether they are idle."""
        held: list[list[memoryview]] = [[] for _ in self._deserializers]
        for channel, element in self._elements:
            if isinstance(element, pa.RecordBatch):
                held[channel] += serialize(element, self._codec)
        for channel, deserializer in enumerate(self._deserializers):
            held[channel] += deserializer.partial
        return held

    def restore(self, rows: Iterable[tuple[int, pa.RecordBatch]]) -> None:
        """Before the first `next`: what was in flight, by the number of its channel, comes before all else."""
        self._elements += rows

    def set_message_size(self, message_size: int) -> None:
        """Join batches up to another size from now on."""
        self._message_size = message_size
        self._run = max(1, message_size // _RUN_BYTES)

    def next(self) -> Element | None:
        """The next thing to do, or None when nothing is there. Watermarks never overtake rows, and wait for no others
        than those they came behind; nor do latency markers."""
        if self._watermark is None and self._status is None and not self._markers:
            self._gather()
        if self._batches:
            return self._joined()
        if self._watermark is not None:
            time, self._watermark = self._watermark, None
            return WatermarkElement(time)
        if self._status is not None:
            active, self._status = self._status, None
            return WatermarkStatus(active)
        return self._markers.popleft() if self._markers else None

    def catch_up(self) -> bool:
        """When `next` has nothing more: act upon the events that came behind it. Returns whether there were any."""
        if not self._barriers.is_behind:
            return False
        self._barriers.catch_up()
        return True

    def _gather(self) -> None:
        """Take what is there, up to a message's size."""
        while self._has_room and not self._barriers.is_behind:
            if not self._elements and not self._poll():
                return
            while self._elements and self._has_room:
                self._take(*self._elements.popleft())

    @property
    def _has_room(self) -> bool:
        """More may be taken: a message's size is not reached, and nothing waits behind the rows that more of them must
        not come before."""
        return self._bytes < self._message_size and self._status is None and not self._markers

    def _joined(self) -> pa.RecordBatch:
        batches, self._batches, self._bytes = self._batches, [], 0
        batch = batches[0] if len(batches) == 1 else concat_batches(batches)
        self.rows_in += batch.num_rows
        return batch

    def _take(self, channel: int, element: Element) -> None:
        if isinstance(element, pa.RecordBatch):
            self._batches.append(element)
            self._bytes += self._codec.batch_bytes(element)
        elif isinstance(element, WatermarkElement):
            # A later watermark replaces an earlier one: it says more, and rows in between were on time for both.
            watermark = self._valve.on_watermark(channel, element.time)
            self._watermark = watermark if watermark is not None else self._watermark
        elif isinstance(element, LatencyMarker):
            self._markers.append(element)
        else:
            watermark, self._status = self._valve.on_status(channel, element.active)
            self._watermark = watermark if watermark is not None else self._watermark

    def _poll(self) -> bool:
        """Buffers of one channel, or an event, of any gate in turn; returns False when there is none."""
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
