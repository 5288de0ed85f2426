"""One writer with its partition, pools and readers on one thread: a clock that is held, no sockets, no waiting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from headgate.exchange.blocking import BlockingSubpartition
from headgate.exchange.combiner import Combiner
from headgate.exchange.due import DueOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget, PendingCount
from headgate.exchange.selectors import ChannelSelector
from headgate.exchange.subpartition import PipelinedSubpartition
from headgate.exchange.writer import RecordWriter
from headgate.memory.network_pool import NetworkBufferPool
from headgate.protocol.sender import PolledBuffer
from headgate.records.arrow import BatchCodec
from headgate.records.elements import SmallElement
from headgate.records.events import decode_event
from headgate.records.spanning import SpanningDeserializer
from headgate.throttle.mechanism import Mechanism
from tests.exchange.link import output_parts
from tests.memory.conftest import CheckedLocks

SCHEMA = pa.schema({"n": pa.int64()})
ROW = 8
NEVER = -1.0


def rows(first: int, count: int) -> pa.RecordBatch:
    """Rows of 8 bytes, numbered."""
    return pa.record_batch([pa.array(range(first, first + count), pa.int64())], schema=SCHEMA)


def poll_one(subpartition: PipelinedSubpartition | BlockingSubpartition) -> PolledBuffer | None:
    """What a reader sees next that looks only while there is something available."""
    polled = subpartition.poll() if subpartition.is_available(True) else []
    return polled[0] if polled else None


class Rig:
    """`channels` subpartitions over `segments` segments. Close it: all memory must then be back."""

    def __init__(
        self,
        selector: ChannelSelector,
        channels: int = 1,
        *,
        segment: int = 4096,
        segments: int = 100,
        share: int | None = None,
        cap: int = 1000,
        overdraft: int = 0,
        message_size: int = 80,
        buffer_timeout: float | Literal["adaptive"] = NEVER,
        watermark_interval: float = 0.2,
        limit: int = 1 << 30,
        schema: pa.Schema = SCHEMA,
        combiner: Combiner | None = None,
        gated: Callable[[ResultPartition, PendingCount], DueOutput] = DueOutput,
        throttle: Mechanism | None = None,
    ) -> None:
        self.now = 100.0
        self.tick = 0.0  # how far the clock goes on each time it is read
        self.network = NetworkBufferPool(segments, segment, CheckedLocks())
        parts = output_parts(
            self.network,
            (share or segments) - channels - 1,
            cap,
            self._clock,
            max_overdraft_buffers_per_gate=overdraft,
            message_size=message_size,
            buffer_timeout=buffer_timeout,
            watermark_interval=watermark_interval,
            throttle=throttle,
        )
        self.wakes = 0
        self.partition = parts.partition("out", channels, self._wake)
        self.pool = self.partition.pool
        self.notified = [0] * channels
        for index in range(channels):
            self.partition.subpartitions[index].attach(partial(self._notify, index))
        self.budget = PendingBudget(limit)
        self.hard_waits = 0
        codec = BatchCodec(schema)
        self.writer = parts.writer(
            self.partition, selector, codec, self.budget, self._wait_hard, combiner=combiner, gated=gated
        )
        self._deserializers = [SpanningDeserializer(codec) for _ in range(channels)]

    def _clock(self) -> float:
        self.now += self.tick
        return self.now

    def _wake(self) -> None:
        self.wakes += 1

    def _notify(self, index: int) -> None:
        self.notified[index] += 1

    def _wait_hard(self, writer: RecordWriter) -> None:
        """What a task does: wait until readers have made room."""
        assert writer is self.writer
        assert not writer.is_available
        self.hard_waits += 1
        while not writer.drain():
            before = writer.pending_bytes
            for index in range(len(self.partition.subpartitions)):
                self.skipped += self.read(index)
            assert writer.drain() or writer.pending_bytes < before, "readers make no room"

    skipped: tuple[Any, ...] = ()

    def read(self, channel: int = 0, buffers: int = 1 << 30) -> tuple[Any, ...]:
        """What a channel's reader sees in its next buffers: watermarks, statuses, events, and batches as tuples."""
        seen: list[Any] = []
        subpartition = self.partition.subpartitions[channel]
        while buffers and (polled := poll_one(subpartition)) is not None:
            buffers -= 1
            if polled.is_event:
                seen.append(decode_event(polled.buffer.view))
                continue
            for element in self._deserializers[channel].feed(polled.buffer.views):
                is_small = isinstance(element, SmallElement)
                seen.append(element if is_small else tuple(element.column(0).to_pylist()))
            polled.buffer.recycle()
        self.writer.validate()
        return tuple(seen)

    def read_all(self) -> list[tuple[Any, ...]]:
        return [self.read(channel) for channel in range(len(self.partition.subpartitions))]

    def close(self) -> None:
        """End everything; raises AssertionError or ExchangeError if a byte or a segment is missing."""
        self.writer.validate()
        self.writer.close()
        assert self.writer.pending_bytes == 0
        self.partition.release()
        self.pool.destroy()
        self.network.validate()
        assert self.network.holders() == {}
        self.network.close()
