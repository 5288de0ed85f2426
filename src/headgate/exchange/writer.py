"""RecordWriter: it turns batches into bytes in subpartitions, and never waits for a buffer.

Slices of batches are *pending* per channel until they make one Arrow message of `message_size` bytes. Splitting a batch
over many channels therefore produces no tiny messages. The writer then *cuts* the pending slices: it turns them into a
message. The buffer timeout or an event makes it cut earlier. A message that does not fit into free segments is *due*.
While a message is due, the writer is not available and its task takes no new batch. That is back-pressure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal

import pyarrow as pa

from headgate.exchange.combiner import Combiner
from headgate.exchange.debloater import debloated_message_size
from headgate.exchange.due import DueOutput
from headgate.exchange.flush import PROMPT_SHARE, AdaptiveFlush, PromptFlush
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import HeldBatch, PendingBudget, PendingCount, PendingSlices
from headgate.exchange.selectors import Broadcast, ChannelSelector
from headgate.exchange.unpartitioned import UnpartitionedBatches, partition_threshold
from headgate.records.arrow import BatchCodec
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.records.events import CheckpointBarrier, EndOfData, Event
from headgate.records.spanning import Element, SpanningSerializer, serialize


class RecordWriter:
    """The writer of one output edge of a subtask: the `Output` of an operator. Only the task thread may use it.

    Sizes are in bytes, times in seconds. With a negative `buffer_timeout`, only full messages leave.
    `wait_within_record` is called when one input batch produces more output than the budget allows. The function must
    wait until `drain` succeeds, or raise an error. With `columns`, only these columns of the rows leave. With
    `combiner`, only the rows that it returns leave. `gated` makes the due output; a throttle passes its own function.
    Without `joins`, each batch leaves alone if `buffer_timeout` is 0: throttles count messages.
    """

    def __init__(
        self,
        partition: ResultPartition,
        selector: ChannelSelector,
        codec: BatchCodec,
        budget: PendingBudget,
        *,
        message_size: int,
        buffer_timeout: float | Literal["adaptive"],
        watermark_interval: float,
        clock: Callable[[], float],
        wait_within_record: Callable[[RecordWriter], None],
        columns: Sequence[str] | None = None,
        combiner: Combiner | None = None,
        gated: Callable[[ResultPartition, PendingCount], DueOutput] = DueOutput,
        joins: bool = True,
    ) -> None:
        self.partition = partition
        self._selector = selector
        self._codec = codec
        self._budget = budget
        self._count = budget.add_count()
        self._message_size = message_size
        self._segment_size = partition.pool.segment_size
        self._buffer_timeout = -1.0 if buffer_timeout == "adaptive" else buffer_timeout
        self._adaptive = AdaptiveFlush() if buffer_timeout == "adaptive" else None
        self._prompt = PromptFlush(PROMPT_SHARE if joins else 1.0) if buffer_timeout == 0 else None
        self._unflushed: set[int] = set()  # if adaptive: channels with data that the reader cannot see
        self._watermark_interval = watermark_interval
        self._clock = clock
        self._wait_hard = wait_within_record
        channels = len(partition.subpartitions)
        self._columns = None if columns is None else list(columns)
        self._combiner = combiner
        self._is_broadcast = isinstance(selector, Broadcast)
        spans = [range(channels)] if self._is_broadcast else [range(index, index + 1) for index in range(channels)]
        self._pending = [PendingSlices(span) for span in spans]
        self._unpartitioned = UnpartitionedBatches(partition_threshold(channels) if selector.splits else 0)
        self._watermark_behind: int | None = None  # the watermark after the unpartitioned batches
        self._channels = range(channels)
        self._due = gated(partition, self._count)
        self._flush_at: float | None = None
        self._watermark_at: float | None = None
        self.rows_out = 0
        self.is_finished = False

    # --- what operators call

    def emit(self, batch: pa.RecordBatch) -> None:
        """Accept a batch. The writer sends its rows when a message is full, or after `buffer_timeout`."""
        if not batch.num_rows:
            return
        if self._due.channels:  # an earlier output of the same input batch is still due
            self.drain(overdraft=True)
            if self._due.channels and self._budget.is_exceeded:
                self._wait_hard(self)
        if self._columns is not None and batch.num_columns != len(self._columns):
            batch = batch.select(self._columns)
        size = self._codec.batch_bytes(batch)
        self._count.bytes += size
        if self._combiner is None:
            self.rows_out += batch.num_rows
        if self._unpartitioned.add(batch, size):
            self._partition_pending()
        self._flush_in_time()
        if self._budget.is_exceeded_by(self._count):
            self._cut_oldest()
        self.partition.writer_rests = False

    def emit_watermark(self, time: int) -> None:
        """Send a watermark after the pending rows of each channel.

        A channel without pending rows gets at most one watermark per `watermark_interval`.
        """
        if self._unpartitioned:
            self._watermark_behind = time
            return
        now = self._clock()
        for pending in self._pending:
            pending.watermark = time
            if not pending.rows:
                self._watermark_alone(pending, now)

    def emit_status(self, active: bool) -> None:
        """Send all pending rows, and then the status (active or idle), to every channel at once."""
        for pending in self._pending:
            self._cut(pending)
            self._write(pending, WatermarkStatus(active))
        self.flush()

    def emit_marker(self, marker: LatencyMarker) -> None:
        """Send a latency marker to a random channel. The channel sends its pending rows before the marker."""
        self._partition_pending()
        channel = random.randrange(len(self._channels))
        pending = self._pending_of(channel)
        pending.markers.append((channel, marker))
        if not pending.rows:
            self._write_markers(pending)
        if self._adaptive is not None:
            self._unflushed.add(channel)
        self._flush_in_time()

    def finish(self) -> None:
        """Send all pending rows, and then EndOfData, on every channel."""
        self.is_finished = True
        for pending in self._pending:
            self._cut(pending)
        self.write_event(EndOfData())

    # --- events

    def write_event(self, event: Event) -> None:
        """Send an event to every channel, after all due items."""
        for channel in self._channels:
            self._due.put(channel, event)

    def write_barrier(self, barrier: CheckpointBarrier) -> None:
        """Send all pending rows, and then a barrier, to every channel."""
        self._flush_at = None
        for pending in self._pending:
            self._cut(pending)
        self._unflushed.clear()
        self.write_event(barrier)

    def overtake(self, barrier: CheckpointBarrier) -> list[list[memoryview]]:
        """Send a barrier ahead of all data of this writer.

        Returns, per channel, a copy of the bytes that the barrier overtakes: in segments, due and pending. The bytes
        themselves stay queued.
        """
        self.flush()
        return self._due.overtake(barrier)

    def holds_barrier(self, checkpoint: int) -> bool:
        """Return whether the barrier of this checkpoint has a timeout and is still queued, for any channel."""
        if self._due.holds_barrier(checkpoint):
            return True
        return any(subpartition.holds_barrier(checkpoint) for subpartition in self.partition.subpartitions)

    def prioritise(self, checkpoint: int) -> list[list[memoryview] | None]:
        """Let a checkpoint's barrier overtake the data before it, in each channel where the barrier is still queued.

        Returns, per channel, a copy of the bytes that the barrier overtakes, or None if the barrier is not queued.
        """
        return [self._due.prioritise(channel, checkpoint) for channel in self._channels]

    # --- what the task calls

    @property
    def is_available(self) -> bool:
        """Whether the task may take its next batch: nothing is due, and the pool has no overdraft."""
        return not self._due.channels and not self.partition.is_overdrawn

    @property
    def is_gated(self) -> bool:
        """Whether a throttle holds messages back, so that the task must wait."""
        return self._due.is_gated()

    def drain(self, *, overdraft: bool = False) -> bool:
        """Move due items into free segments, or into overdraft, and return whether all of them fitted.

        If the writer is still not available, the next segment that comes back wakes its task.
        """
        is_drained = self._due.drain(overdraft)
        self.partition.want_segments()
        return is_drained

    @property
    def deadline(self) -> float | None:
        """The time, in the clock's seconds, at which `on_time` is next to be called; None if no call is needed."""
        if self._flush_at is None or self._watermark_at is None:
            return self._watermark_at if self._flush_at is None else self._flush_at
        return min(self._flush_at, self._watermark_at)

    def before_wait(self) -> None:
        """Send data before the task waits: with adaptive flush to starved readers, with `buffer_timeout=0` to all."""
        # With a buffer timeout of 0, the network thread sends several flushes and channels together.
        self.partition.writer_rests = self._adaptive is not None and self.is_available
        if self._adaptive is not None:
            self._flush_starved(self._adaptive, waiting=True)
        elif self._prompt is not None and self._flush_at is not None:
            self.flush()

    def on_time(self, now: float) -> None:
        """Flush when the buffer timeout has passed, and send watermarks that have waited for their interval."""
        if self._flush_at is not None and now >= self._flush_at:
            if self._adaptive is None:
                self.flush()
            else:
                self._flush_starved(self._adaptive, waiting=False)
        if self._watermark_at is not None and now >= self._watermark_at:
            self._watermark_at = None
            for pending in self._pending:
                if pending.watermark is not None and not pending.rows:
                    self._watermark_alone(pending, now)

    def flush(self) -> None:
        """Turn all pending rows into messages, and make all bytes in segments visible to the readers."""
        self._flush_at = None
        self._partition_pending()
        for pending in self._pending:
            if pending.rows:
                self._cut(pending)
        for channel in self._channels:
            self._flush_channel(channel)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes outside segments, in pending slices and due messages."""
        return self._count.bytes

    def validate(self) -> None:
        """Raise AssertionError unless every byte outside segments is counted once. Call it on the task thread."""
        held = {id(batch): batch.bytes for pending in self._pending for batch in pending.held()}
        counted = self._unpartitioned.bytes + sum(held.values()) + self._due.validate()
        assert counted == self._count.bytes, (
            f"{self._count.bytes} bytes counted outside segments, but there are {counted}"
        )
        self.partition.validate()

    def close(self) -> None:
        """Drop all pending and due data. The owner releases the partition."""
        self._unpartitioned.clear()
        self._pending = [PendingSlices(pending.channels) for pending in self._pending]
        self._due.clear()
        self._count.bytes = 0

    # --- inside

    def _partition_pending(self) -> None:
        """Split the accepted batches over the channels."""
        if not self._unpartitioned:
            return
        batch, size = self._unpartitioned.take()
        if self._combiner is not None:
            batch, size = self._combined(self._combiner, batch, size)
        row_bytes = size / batch.num_rows
        shares = [(0, batch)] if self._is_broadcast else self._selector.select(batch)
        held = HeldBatch(size, len(shares), self.rows_out)
        for channel, rows in shares:
            pending = self._pending[channel]
            pending.add(rows, row_bytes, held)
            if self._adaptive is not None:
                self._unflushed.update(pending.channels)
            if pending.bytes >= self._message_size_for(pending):
                self._cut(pending)
        if self._watermark_behind is not None:
            time, self._watermark_behind = self._watermark_behind, None
            self.emit_watermark(time)

    def _combined(self, combiner: Combiner, batch: pa.RecordBatch, size: int) -> tuple[pa.RecordBatch, int]:
        """Return what a combiner leaves of a batch of `size` bytes, and its size. Counts its rows."""
        combined = combiner.combine(batch)
        self.rows_out += combined.num_rows
        if combined is batch:
            return batch, size
        left = self._codec.batch_bytes(combined)
        self._count.bytes += left - size
        return combined, left

    def _flush_in_time(self) -> None:
        """Schedule the flush of new data by the buffer timeout."""
        if self._adaptive is not None:
            self._flush_starved(self._adaptive, waiting=False)
        elif self._prompt is not None:
            self._flush_promptly(self._prompt)
        elif self._flush_at is None and self._buffer_timeout > 0:
            self._flush_at = self._clock() + self._buffer_timeout

    def _flush_promptly(self, prompt: PromptFlush) -> None:
        """Flush, or schedule the flush because the last one was a moment ago."""
        began = self._clock()
        if began < prompt.earliest:
            self._flush_at = prompt.earliest
            return
        self.flush()
        prompt.flushed(began, self._clock())

    def _flush_starved(self, adaptive: AdaptiveFlush, *, waiting: bool) -> None:
        """Flush the channels whose readers are starved.

        If the task is `waiting`, a reader that starves later wakes the task. A task that waits for input also flushes
        channels without pending rows: they hold back only the end of a message, a watermark or a latency marker. While
        unflushed data remain, the method also sets a deadline, because a busy task may neither emit nor wait.
        """
        if not self._unflushed and not self._unpartitioned:
            self._flush_at = None
            return
        began = self._clock()
        if began < (earliest := adaptive.earliest(is_idle=waiting and self.is_available)):
            self._flush_at = earliest
            return
        self._partition_pending()
        parts = self.partition.subpartitions
        rests = waiting and self.is_available
        ready = [
            channel
            for channel in self._unflushed
            if (rests and not self._pending_of(channel).rows) or parts[channel].watch_for_starvation(notify=waiting)
        ]
        for channel in ready:
            self._cut(self._pending_of(channel))
        for channel in ready:
            self._flush_channel(channel)
        adaptive.flushed(began, self._clock())
        again = adaptive.latest if waiting else adaptive.earliest(is_idle=False)
        self._flush_at = again if self._unflushed else None

    def _pending_of(self, channel: int) -> PendingSlices:
        return self._pending[0 if self._is_broadcast else channel]

    def _flush_channel(self, channel: int) -> None:
        self._unflushed.discard(channel)
        self._due.flush(channel)

    def _watermark_alone(self, pending: PendingSlices, now: float) -> None:
        at = pending.watermark_sent_at + self._watermark_interval
        if now >= at:
            self._write_watermark(pending)
            for channel in pending.channels:
                self._flush_channel(channel)
        elif self._watermark_at is None or at < self._watermark_at:
            self._watermark_at = at

    def _write_watermark(self, pending: PendingSlices) -> None:
        for watermark in self._take_watermark(pending):
            self._write(pending, watermark)

    def _take_watermark(self, pending: PendingSlices) -> list[WatermarkElement]:
        """Return the watermark to send now, in a list, or an empty list if there is none."""
        if pending.watermark is None:
            return []
        time, pending.watermark = pending.watermark, None
        pending.watermark_sent_at = self._clock()
        return [WatermarkElement(time)]

    def _message_size_for(self, pending: PendingSlices) -> int:
        """Return the message size for a channel. A reader, or any reader of a broadcast, may ask for a smaller one."""
        subpartitions, most = self.partition.subpartitions, self._segment_size
        size = subpartitions[pending.channels.start].buffer_size or most
        if self._is_broadcast:
            size = min(subpartition.buffer_size or most for subpartition in subpartitions)
        return self._message_size if size >= most else debloated_message_size(self._message_size, size, most)

    def _cut(self, pending: PendingSlices) -> None:
        self._partition_pending()
        if pending.rows:
            batches, released = pending.cut(self._message_size_for(pending))
            self._count.bytes -= released
            for batch in batches[:-1]:
                self._write(pending, batch)
            self._write(pending, batches[-1], *self._take_watermark(pending))
        else:
            self._write_watermark(pending)
        self._write_markers(pending)

    def _cut_oldest(self) -> None:
        """Cut the slices of channels until the writer is within the budget or nothing is pending.

        A batch counts until its last slice is cut. The channels with the oldest batches come first, so that these
        batches become free.
        """
        self._partition_pending()
        with_rows = [pending for pending in self._pending if pending.rows]
        for pending in sorted(with_rows, key=lambda pending: pending.oldest):
            if not self._budget.is_exceeded_by(self._count):
                return
            self._cut(pending)

    def _write_markers(self, pending: PendingSlices) -> None:
        if not pending.markers:
            return
        markers, pending.markers = pending.markers, []
        for channel, marker in markers:
            self._due.put(channel, SpanningSerializer(serialize(marker, self._codec)))

    def _write(self, pending: PendingSlices, *elements: Element) -> None:
        """Write elements that follow each other, as one record of the partition."""
        pieces = [piece for element in elements for piece in serialize(element, self._codec)]
        for channel in pending.channels:
            self._due.put(channel, SpanningSerializer(pieces))
