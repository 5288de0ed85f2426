"""The head of a task: the object that reads the task's source or its input gates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, Protocol

import pyarrow as pa

from headgate.connectors.connector import SourceReader
from headgate.connectors.json_values import stored
from headgate.connectors.read_bursts import FEW_ROWS, ReadBursts
from headgate.connectors.scheduled_reader import ScheduledReader
from headgate.connectors.schemas import shown
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.errors import SourceError
from headgate.operators.operator import MAX_TIME, MIN_TIME, OperatorContext
from headgate.records.arrow import plain_batch
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.runtime.latency_markers import MarkerTimer
from headgate.runtime.running_operator import calls_operators
from headgate.runtime.task.chain import Chained, with_location
from headgate.runtime.task.clocks import SYSTEM, Clocks
from headgate.runtime.task.input import TaskInput
from headgate.runtime.task.time_account import TimeAccount, Wait
from headgate.state import shapes
from headgate.state.snapshot import Snapshot, checkpoint_errors

log = logging.getLogger(__name__)
#: The shape of a source's state. The source itself checks its position.
_SOURCE_STATE: Final = shapes.fields(
    {"position": shapes.plain, "watermark": shapes.optional(shapes.time)}, {"splits": shapes.mapping(shapes.time)}
)

#: The most splits that a message names.
_MOST_NAMED: Final = 5
#: For how many seconds splits wait for one that has had no rows, before the log says so.
_WARNS_AFTER: Final = 10.0

#: The values that `Head.step` and `Task.turn` return in place of a time. MORE: call again at once. WAIT: call again
#: after a wake-up. END: do not call again.
MORE: Final = 0.0
WAIT: Final = float("inf")
END: Final = -1.0


class Head(Protocol):
    """The interface by which a task reads its source or its gates. All times are in seconds of the monotonic clock."""

    @property
    def waits_for(self) -> Wait:
        """The reason why `step` has no batch now."""

    def step(self, now: float) -> float:
        """Handle one batch. Returns MORE, WAIT, END, or the time of the next call."""

    def end(self) -> None:
        """Pass the end of input on, after the last batch."""

    def on_backpressure(self, begins: bool, now: float) -> None:
        """Record that the output has no room (`begins` is True), or has room again."""

    def close(self) -> None: ...


def _not_a_batch(given: Any, reader: SourceReader, schema: pa.Schema) -> SourceError:
    """Return the error of a reader that returned no batch, or one whose columns would be taken for others."""
    found = f"a batch of ({shown(given.schema)})" if isinstance(given, pa.RecordBatch) else f"a {type(given).__name__}"
    return SourceError(
        f"{type(reader).__name__}.read() returned {found}; it must return None or a pyarrow.RecordBatch of the "
        f"source's schema ({shown(schema)})"
    )


class SourceHead:
    """The head that reads a source, and generates watermarks from the rows.

    `schema` is that of the source. `plain` is the same without dictionaries, if it has some. With `bursts`, the source
    rests between reads while its rows trickle. Other threads may set two flags, and then wake the task. While `is_held`
    is True, the source reads nothing. If `ends_now` is True, the source ends at its current position.
    """

    def __init__(
        self,
        open_reader: Callable[[Sequence[Any] | None], SourceReader],
        *,
        schema: pa.Schema,
        plain: pa.Schema | None,
        watermarks: WatermarkGenerator | None,
        idle_timeout: float | None,
        output: Chained,
        context: OperatorContext,
        markers: MarkerTimer | None = None,
        clocks: Clocks = SYSTEM,
        times: TimeAccount | None = None,
        bursts: ReadBursts | None = None,
    ) -> None:
        self._open_reader = open_reader
        self._schema = schema
        self._plain = plain
        self._reader: SourceReader | None = None
        #: The reader, if its `next_read` holds after a batch too.
        self._schedule: ScheduledReader | None = None
        self._positions: Sequence[Any] | None = None
        self._origins: Sequence[str] = ()
        #: The largest event time of each split, by its key, when the job resumes.
        self._split_times: dict[str | None, int] = {}
        self._watermarks = watermarks
        self._idle_timeout = idle_timeout
        self.output = output
        self.context = context
        self._markers = markers
        self._clocks = clocks
        self._bursts = bursts
        times = times or TimeAccount(clocks.monotonic)
        self.bucket = times.add_bucket()
        self._switch = times.switch
        self._watermark = MIN_TIME
        self._restored = False
        self._idle = False
        self._splits_ahead: frozenset[int] = frozenset()
        #: When to look for a split without rows that others wait for.
        self._looks_for_it_at = 0.0 if idle_timeout is None else WAIT
        self.rows = 0
        #: The rows of earlier attempts, which `rows` contains.
        self.restored_rows = 0
        self.batches = 0
        self.is_held = False
        self.ends_now = False
        self.ended_at: float | None = None
        self._is_held_back = False
        self._set_idle_clock(clocks.monotonic())

    @property
    def waits_for(self) -> Wait:
        if self.is_held:
            return Wait.CHECKPOINT
        return Wait.READER if self._reader is not None and self._reader.is_reading else Wait.INPUT

    def step(self, now: float) -> float:
        if self.ends_now or self.is_held:
            return END if self.ends_now else WAIT
        bursts = self._bursts
        if bursts is not None and now < bursts.rests_until:
            return bursts.rests_until
        caller = self._switch(self.bucket)
        try:
            until = self._read(now)
        finally:
            self._switch(caller)
        return until if bursts is None or until <= MORE else max(until, bursts.end(now))

    def _read(self, now: float) -> float:
        try:
            reader = self._reader
            if reader is None:
                reader = self._open()
            if self._restored and self._watermarks is not None:
                self._restored = False  # watermarks in flight are not in a checkpoint
                self._emit_watermark(self._watermarks.watermark)
            self._send_marker(now)
            schedule = None if self._bursts is None else self._schedule
            batch = reader.read() if schedule is None else schedule.read_due(FEW_ROWS)
            if batch is None:
                if reader.finished:
                    return END
                return self._next_look(reader)
            if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(self._schema):
                raise _not_a_batch(batch, reader, self._schema)
            self.rows += batch.num_rows
            if self._plain is not None and batch.num_rows:
                batch = plain_batch(batch, self._plain)
            watermark = self._observe(batch, reader)
        except Exception as error:
            raise with_location(error, self.context) from error
        if batch.num_rows:
            self.batches += 1
            if self._bursts is not None:
                self._bursts.add(batch.num_rows)
            if self._idle:
                self._idle = False
                self.output.emit_status(True)
            self.output.emit(batch)
        self._emit_watermark(watermark)
        return MORE if self._schedule is None else self._after_batch(self._schedule)

    def _after_batch(self, reader: ScheduledReader) -> float:
        """Return the time of the next step after a batch: that of the next rows, or MORE if something is due now."""
        try:
            next_read = reader.next_read()
        except Exception as error:
            raise with_location(error, self.context) from error
        now = self._clocks.monotonic()
        has_marker = self._markers is not None and now >= self._markers.deadline
        is_idle = self._watermarks is not None and self._watermarks.is_idle(now)  # to pass the batch on took long
        if next_read is None or next_read <= self._clocks.wall() or has_marker or is_idle:
            return MORE
        return self._look_at(next_read, now)

    def _observe(self, batch: pa.RecordBatch, reader: SourceReader) -> int:
        """Return the watermark after a batch, which may have no rows."""
        if self._watermarks is None:
            return MIN_TIME
        if reader.open_splits is not None:
            self._watermarks.observe_splits(batch, reader.rows_by_split, reader.open_splits)
            self._align_splits(self._watermarks, reader, self._clocks.monotonic())
        elif batch.num_rows:
            self._watermarks.observe(batch, reader.split)
        return self._watermarks.reach(reader.reached)

    def _align_splits(self, watermarks: WatermarkGenerator, reader: SourceReader, now: float) -> None:
        """Let the reader's splits wait that are too far ahead of its slowest split."""
        ahead = watermarks.splits_ahead(now)
        if ahead != self._splits_ahead:
            self._splits_ahead = ahead
            reader.pause_splits(ahead)
        if ahead and now >= self._looks_for_it_at:
            self._warn_of_split_without_rows(watermarks, now)

    def _warn_of_split_without_rows(self, watermarks: WatermarkGenerator, now: float) -> None:
        """Log once that splits have waited long for a split that has had no rows."""
        self._looks_for_it_at = now + _WARNS_AFTER
        name, has_rows = self.split_now()
        silence = watermarks.silence(now)
        if has_rows is False and silence is not None and silence >= _WARNS_AFTER:
            self._looks_for_it_at = WAIT
            log.warning(
                "%s[%d]: %s has had no rows for %.0f s, and other splits (%d) wait for it, because of max_drift; if it "
                "may be empty, use hg.Watermark(..., idle_timeout=...)",
                self.context.operator,
                self.context.subtask,
                name,
                silence,
                len(self._splits_ahead),
            )

    def _emit_watermark(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            self.output.emit_watermark(watermark)

    def _open(self) -> SourceReader:
        with checkpoint_errors(*self._origins) if self._positions is not None else nullcontext():
            reader = self._reader = self._open_reader(self._positions)
        self._schedule = reader if isinstance(reader, ScheduledReader) else None
        if self._watermarks is not None and reader.open_splits is not None and self._split_times:
            times = {split: self._split_times.get(reader.split_key(split), MIN_TIME) for split in reader.open_splits}
            self._watermarks.restore_splits(reader.open_splits, times)
        self._set_idle_clock(self._clocks.monotonic())
        return reader

    def snapshot(self) -> dict[str, Any]:
        """Return the source's position, its watermark, and the event times of splits that it reads at the same time.
        Call it between two batches.

        Raises the reader's error if the reader cannot be opened.
        """
        try:
            reader = self._reader or self._open()
            # A reader may go on with the same object, before another thread writes the snapshot.
            position = stored(reader.position(), f"what {type(reader).__name__}.position() returned")
            state: dict[str, Any] = {"position": position, "watermark": None}
            if self._watermarks is not None:
                state["watermark"] = self._watermarks.position()
                named = {reader.split_key(split): time for split, time in self._watermarks.split_times().items()}
                if splits := {key: time for key, time in named.items() if key is not None}:
                    state["splits"] = splits
        except Exception as error:
            raise with_location(error, self.context) from error
        return state

    def to_commit(self) -> Any:
        """Return what `Source.commit` needs for the rows so far, or None. Call it between two batches."""
        reader = self._reader
        if reader is None:
            return None
        try:
            return stored(reader.to_commit(), f"what {type(reader).__name__}.to_commit() returned")
        except Exception as error:
            raise with_location(error, self.context) from error

    def restore(self, old: Sequence[Snapshot]) -> None:
        """Resume from the positions of the old subtasks. Call it before the first step. Raises CheckpointError."""
        for snapshot in old:
            with checkpoint_errors(snapshot.origin):
                _SOURCE_STATE(snapshot.values, "a source's state")
        self._origins = [snapshot.origin for snapshot in old]
        self._positions = [snapshot.values["position"] for snapshot in old]
        self._split_times = {key: time for each in old for key, time in each.values.get("splits", {}).items()}
        self._restored = True
        if self._watermarks is not None:
            positions = [snapshot.values["watermark"] for snapshot in old]
            watermarks = [MIN_TIME if position is None else position for position in positions]
            self._watermarks.restore(watermarks, self.context.subtask, self.context.parallelism)

    def _send_marker(self, now: float) -> None:
        if self._markers is not None and now >= self._markers.deadline:
            self.output.emit_marker(self._markers.take(now, self._clocks.wall()))

    def _next_look(self, reader: SourceReader) -> float:
        """Return the time of the next read, after the reader had no rows."""
        now = self._clocks.monotonic()  # the reader may have taken long
        self._check_idle(now)
        return self._look_at(reader.next_read(), now)

    def _check_idle(self, now: float) -> None:
        """Send the idle status to the consumers if the source has no split, or read nothing for the idle timeout."""
        if self._watermarks is None or self._idle or self._reader is None:
            return
        self._emit_watermark(self._watermarks.leave_idle_splits(now))
        self._align_splits(self._watermarks, self._reader, now)
        if not self._reader.has_split or self._watermarks.is_idle(now):
            self._idle = True
            self.output.emit_status(False)

    def _look_at(self, next_read: float | None, now: float) -> float:
        """Return the time of the next read: `next_read`, which the reader returned, or the time at which the source
        must check whether it is idle, or whether splits wait for one without rows, or send a marker."""
        timeout = self._idle_timeout
        latest = WAIT if timeout is None or self._idle else now + max(timeout / 4, 1e-3)
        if self._splits_ahead:
            latest = min(latest, max(now + 1e-3, self._looks_for_it_at))
        if self._markers is not None:
            latest = min(latest, max(now + 1e-3, self._markers.deadline))
        return latest if next_read is None else min(self._clocks.monotonic_at(next_read), latest)

    def on_backpressure(self, begins: bool, now: float) -> None:
        self._is_held_back = begins
        self._set_idle_clock(now)

    def _set_idle_clock(self, now: float) -> None:
        """Let the idle clock run while the reader is open and nothing holds it back."""
        if self._watermarks is not None:
            stands = self._is_held_back or self._reader is None
            (self._watermarks.pause if stands else self._watermarks.resume)(now)

    def end(self) -> None:
        self.ended_at = self._clocks.wall()
        if self._idle:  # consumers ignore the watermark of an idle channel
            self.output.emit_status(True)
        self.output.emit_watermark(MAX_TIME)
        self.output.end_input()

    def close(self) -> None:
        try:
            if self._reader is not None:
                self._reader.close()
        except Exception as error:
            raise with_location(error, self.context) from error

    @property
    def is_idle(self) -> bool:
        """Whether the source has sent the idle status. Consumers then ignore its watermark."""
        return self._idle

    @property
    def reached(self) -> int:
        """The watermark of the rows so far, in microseconds since the epoch, or MIN_TIME if there is none."""
        return MIN_TIME if self._watermarks is None else self._watermarks.watermark

    @property
    def lag(self) -> float | None:
        """The seconds for which the next rows have been due, or None for a source without a schedule.

        Any thread may read this property.
        """
        return None if self._reader is None else self._reader.lag()

    @property
    def unread(self) -> Mapping[str, int] | None:
        """How much the source has not read yet, by split. None if the source does not know. Any thread may read this
        property."""
        return None if self._reader is None else self._reader.unread()

    def split_now(self) -> tuple[str | None, bool | None]:
        """Return the name of the split that the source reads now, for messages, and whether the split has had rows.

        If the reader reads several splits at the same time, the name lists the splits that hold back the watermark.
        Otherwise the second value is None; the source has had rows if its watermark is above MIN_TIME. Both values
        are None without a reader. Any thread may call this method.
        """
        reader = self._reader
        if reader is None:
            return None, None
        held = {} if self._watermarks is None else self._watermarks.holding_splits(self._clocks.monotonic())
        if not held:
            return reader.split_name(), None
        names = [reader.split_key(split) or f"split {split}" for split in held]
        more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
        return ", ".join([*names[:_MOST_NAMED], *more]), max(held.values()) > MIN_TIME

    @property
    def split_silence(self) -> float | None:
        """For how many seconds one of the splits that hold back the watermark has had no rows.

        Pauses count, such as back-pressure. None if the reader does not read several splits at the same time. Any
        thread may read this property.
        """
        return None if self._watermarks is None else self._watermarks.silence(self._clocks.monotonic())

    @property
    def is_stuck(self) -> bool:
        """Whether the user's iterator, which has a thread of its own, still runs after `close`."""
        return self._reader is not None and self._reader.is_stuck()


calls_operators(SourceHead)


class InputHead:
    """The head of a task with producers: reads the task's gates.

    `second` gets the batches of port 1, if the operator has two inputs. `output` gets everything else.
    """

    def __init__(self, task_input: TaskInput, output: Chained, second: Chained | None = None) -> None:
        self._input = task_input
        self._output = output
        self._second = second
        self._batch_at: float | None = None  # when the last step began, if it processed a batch

    @property
    def waits_for(self) -> Wait:
        return Wait.CHECKPOINT if self._input.is_blocked_by_barrier else Wait.INPUT

    def step(self, now: float) -> float:
        if self._batch_at is not None:
            self._input.took(now - self._batch_at)
            self._batch_at = None
        element = self._input.next()
        if element is None:
            if self._input.catch_up():
                return MORE
            return END if self._input.is_finished else WAIT
        if isinstance(element, WatermarkElement):
            self._output.emit_watermark(element.time)
        elif isinstance(element, WatermarkStatus):
            self._output.emit_status(element.active)
        elif isinstance(element, LatencyMarker):
            self._output.emit_marker(element)
        else:
            self._batch_at = now
            (self._output if self._second is None or self._input.port == 0 else self._second).emit(element)
        return MORE

    def end(self) -> None:
        self._output.end_input()

    def on_backpressure(self, begins: bool, now: float) -> None: ...

    def close(self) -> None: ...
