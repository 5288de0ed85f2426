"""With `max_drift` and without `idle_timeout`, a split without rows stops the others of its subtask, and the log says
so."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pytest

from headgate.connectors.connector import SourceReader
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.operators.operator import OperatorContext
from headgate.runtime.task.chain import Chained
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.task.heads import MORE, WAIT, SourceHead

SCHEMA = pa.schema({"at": pa.timestamp("us")})


class Ignored(Chained):
    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


class Reader(SourceReader):
    """Reads the splits 0 and 1 at once. Each batch has a row of split 0."""

    open_splits = (0, 1)

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.paused: Collection[int] = ()

    def read(self) -> pa.RecordBatch | None:
        if self.batches == 0:
            return None
        self.batches -= 1
        self.rows_by_split = [(0, 1)]
        return pa.RecordBatch.from_arrays([pa.array([1_000_000], pa.timestamp("us"))], schema=SCHEMA)

    def pause_splits(self, splits: Collection[int]) -> None:
        self.paused = splits

    def split_key(self, split: int) -> str:
        return f"orders/{split}"

    def position(self) -> int:
        return 0


class Rig:
    def __init__(self, idle_timeout: float | None) -> None:
        self.now = 100.0
        self.reader = Reader(1)
        clock = lambda: self.now  # noqa: E731
        self.head = SourceHead(
            self._open,
            schema=SCHEMA,
            plain=None,
            watermarks=WatermarkGenerator("at", SCHEMA, idle_timeout=idle_timeout, max_drift=1, clock=clock),
            idle_timeout=idle_timeout,
            output=Ignored(),
            context=OperatorContext("job", "orders", 3, 4, 8),
            clocks=Clocks(clock, clock),
        )

    def _open(self, positions: Sequence[object] | None) -> SourceReader:
        return self.reader


def test_a_split_without_rows_stops_the_others_and_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(idle_timeout=None)
    assert rig.head.step(rig.now) == MORE
    assert rig.reader.paused == {0}
    assert rig.head.step(rig.now) == rig.now + 10
    rig.now += 9.5
    rig.head.step(rig.now)
    assert not caplog.records
    rig.now += 0.5
    assert rig.head.step(rig.now) == WAIT
    rig.now += 100
    rig.head.step(rig.now)
    assert [record.getMessage() for record in caplog.records] == [
        "orders[3]: orders/1 has had no rows for 10 s, and other splits (1) wait for it, because of max_drift; if it "
        "may be empty, use hg.Watermark(..., idle_timeout=...)"
    ]


def test_an_idle_split_stops_no_other_and_needs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(idle_timeout=2.0)
    rig.head.step(rig.now)
    assert rig.reader.paused == {0}
    for _ in range(20):
        rig.now += 1.0
        rig.head.step(rig.now)
    assert rig.reader.paused == frozenset()
    assert not caplog.records
