"""`Join`: the operator that joins two streams. It emits a pair of rows as soon as the second one of them arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import time as wall_clock
from typing import Literal

import numpy as np
import pyarrow as pa

from headgate.compat import concat_batches
from headgate.operators.joins.coded_rows import CodedRows, Codes, Spans
from headgate.operators.joins.columns import NO_ROWS, JoinedColumns
from headgate.operators.joins.conditions import Condition
from headgate.operators.joins.join_side import JoinSide
from headgate.operators.joins.join_state import loaded, table_of
from headgate.operators.joins.sorted_runs import Run, SortedRuns
from headgate.operators.operator import MAX_TIME, MIN_TIME, TwoInputOperator
from headgate.records.canonical import Bools, Int64s, as_arrow
from headgate.state import shapes
from headgate.state.snapshot import LazyTables, Snapshot

How = Literal["inner", "left", "right", "full"]
#: Pairs with rows of several runs become one batch, up to about so many rows.
_MOST_ROWS = 1 << 14
#: A join by the clock lets go of old rows eight times per ttl, but at most ten times per second.
_SHARE, _LEAST_PAUSE = 8, 100_000


class Join(TwoInputOperator):
    """The operator that joins the rows of two streams with equal keys under a condition.

    A pair is emitted when its second row arrives. If a side `keeps_all`, its rows without a partner are emitted when
    the watermark shows that no partner can come. The event time of a joined row can be up to `delay` microseconds
    before the watermark of the input, so the watermarks of the result are earlier by `delay`. A row is late, and
    dropped, if it arrives after the watermark and no row in time can be its partner. A null key matches nothing.
    """

    def __init__(
        self,
        left: JoinSide,
        right: JoinSide,
        *,
        condition: Condition,
        columns: JoinedColumns,
        delay: int = 0,
        clock: Callable[[], float] = wall_clock,
    ) -> None:
        super().__init__()
        self.schema = columns.schema
        self._sides = (left, right)
        self._condition = condition
        self._columns = columns
        self._delay = delay
        self._clock = clock
        self._codes = Codes(condition.shift)
        self._kept = tuple(SortedRuns(side.keys, condition.stays(number)) for number, side in enumerate(self._sides))
        self._watermark = MIN_TIME
        self._pause = max(condition.stays(1) // _SHARE, _LEAST_PAUSE) if condition.by_clock else 0

    def state_bytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept)

    def state_keys(self) -> int:
        """Return the number of rows in the state: a join keeps rows, not keys."""
        return sum(map(len, self._kept))

    def process(self, batch: pa.RecordBatch) -> None:
        self._take(0, batch)

    def process_second(self, batch: pa.RecordBatch) -> None:
        self._take(1, batch)

    def _take(self, side: int, batch: pa.RecordBatch) -> None:
        """Join the rows of a batch with the rows of the other side, and keep the batch's rows."""
        if self._condition.by_clock:
            self._expire(self._now())
        batch, times = self._timed(side, batch)
        spans = self._condition.spans(side, times, batch)
        stay = self._kept[side].gone_at(self._watermark) <= spans[1]
        if not stay.all() and not (in_time := stay | (times >= self._watermark)).all():
            self.late_rows += len(in_time) - int(np.count_nonzero(in_time))
            batch, spans = batch.filter(as_arrow(in_time)), _filtered(spans, in_time)
        batch, spans = self._with_keys(side, batch, spans)
        if not batch.num_rows:
            return
        probe = CodedRows.of(batch, self._sides[side].keys, spans, self._codes)
        self._emit_pairs(side, probe)
        self._keep(side, probe)

    def _emit_pairs(self, side: int, probe: CodedRows) -> None:
        pairs: list[pa.RecordBatch] = []
        for probing, batch, positions in self._kept[1 - side].partners(probe, self._codes):
            rows = (probe.rows, probe.at.take(probing)), (batch, positions)
            (left, left_at), (right, right_at) = rows if side == 0 else rows[::-1]
            pairs.append(self._columns.rows(left, left_at, right, right_at, probe.begins.take(probing)))
            if sum(map(len, pairs)) >= _MOST_ROWS:
                self.emit(concat_batches(pairs))
                pairs = []
        if pairs:
            self.emit(concat_batches(pairs))

    def _keep(self, side: int, probe: CodedRows) -> None:
        """Keep the rows that may still find partners. Of the others, emit those without a partner if the side
        `keeps_all`."""
        stay = probe.ends >= self._kept[side].gone_at(self._watermark)
        if stay.all():
            self._kept[side].add(Run.of_rows(probe, None))
            return
        if self._sides[side].keeps_all:
            alone = np.flatnonzero(~stay & ~probe.matched)
            self._emit_alone(side, probe.rows, probe.at.take(alone), probe.begins.take(alone))
        if stay.any():
            self._kept[side].add(Run.of_rows(probe, np.flatnonzero(stay)))

    def _emit_alone(self, side: int, rows: pa.RecordBatch, at: Int64s, starts: Int64s) -> None:
        """Emit rows without a partner."""
        if not len(at):
            return
        if side == 0:
            self.emit(self._columns.rows(rows, at, None, NO_ROWS, starts))
        else:
            self.emit(self._columns.rows(None, NO_ROWS, rows, at, starts))

    def _with_keys(self, side: int, batch: pa.RecordBatch, spans: Spans) -> tuple[pa.RecordBatch, Spans]:
        """Return the rows without a null key. Emit the others if the side `keeps_all`."""
        nulls = self._sides[side].has_null_key(batch)
        if nulls is None:
            return batch, spans
        if self._sides[side].keeps_all:
            at = np.flatnonzero(nulls)
            self._emit_alone(side, batch, at, spans[0].take(at))
        return batch.filter(as_arrow(~nulls)), _filtered(spans, ~nulls)

    def _timed(self, side: int, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
        """Return the rows that have a time, and their times. Rows without an event time are late or an error."""
        if self._condition.by_clock:
            return batch, np.full(batch.num_rows, self._watermark)
        timed, times = self._sides[side].timed(batch)
        self.late_rows += len(batch) - len(timed)
        return timed, times

    # Time

    def process_watermark(self, time: int) -> None:
        if not self._condition.by_clock and time > self._watermark:
            self._expire(time)
        delayed = time if time == MAX_TIME else max(time - self._delay, MIN_TIME)
        self.output.emit_watermark(delayed)

    def next_time(self) -> int | None:
        return self._watermark + self._pause if self._pause and self.state_keys() else None

    def on_processing_time(self) -> None:
        self._expire(self._now())

    def _now(self) -> int:
        """Return the time of the clock in microseconds. It never goes back, even if the clock does."""
        return max(self._watermark, int(self._clock() * 1e6))

    def _expire(self, time: int) -> None:
        """Move the time on, emit rows that have found no partner, and let go of rows that can find none any more."""
        self._watermark = time
        for side, kept in enumerate(self._kept):
            if self._sides[side].keeps_all:
                for run, positions in kept.take_unmatched(time):
                    starts = run.begins.take(positions)
                    for batch, rows, places in run.rows.split(run.at.take(positions)):
                        self._emit_alone(side, batch, rows, starts[places])
            kept.expire(time)

    # State

    def snapshot(self) -> Snapshot:
        of = {
            "the operator": "a join",
            "condition": str(self._condition),
            "keeps rows without a partner": str([side.keeps_all for side in self._sides]),
            "max_parallelism": self.context.max_parallelism,
        }
        tables = {}
        for name, side, kept in zip(("left", "right"), self._sides, self._kept, strict=True):
            runs = kept.frozen()
            tables[name] = partial(table_of, side.schema, side.keys, runs, kept.gone, self.context.max_parallelism)
        return Snapshot(LazyTables(tables), {"of": of, "watermark": self._watermark})

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        ours = self.snapshot()
        for snapshot in snapshots:
            ours.check_same(snapshot)
            shapes.time(snapshot.values.get("watermark"), "watermark")
        for name, side, kept in zip(("left", "right"), self._sides, self._kept, strict=True):
            for run in self._runs_of(name, side, snapshots):
                kept.add(run)
        # A row that was in time for one of the former subtasks stays in time.
        self._watermark = min((snapshot.values["watermark"] for snapshot in snapshots), default=MIN_TIME)

    def _runs_of(self, name: str, side: JoinSide, snapshots: Sequence[Snapshot]) -> Iterator[Run]:
        for snapshot in snapshots:
            if (table := snapshot.tables.get(name)) is not None:
                yield from loaded(table, side.schema, side.keys, self._codes, self.context.max_parallelism)


def _filtered(spans: Spans, mask: Bools) -> Spans:
    begins, ends = spans
    kept = begins[mask]
    return kept, kept if ends is begins else ends[mask]
