"""How many windows are open while sources of one group, splits of one subtask, or files of one reader are read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.errors import PlanError
from headgate.exchange import writer

MINUTE = 60_000_000
SCHEMA = pa.schema({"at": pa.timestamp("us", "UTC"), "part": pa.int64()})


def rows(part: int, begin: int, end: int) -> pa.RecordBatch:
    """Return a row of `part` for each minute in the range."""
    minutes = range(begin, end)
    times = pa.array([minute * MINUTE for minute in minutes], SCHEMA.field("at").type)
    return pa.record_batch([times, pa.array([part] * len(minutes), pa.int64())], schema=SCHEMA)


@pytest.fixture(autouse=True)
def each_batch_leaves_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that waits would hold back the batches that its task has joined and not flushed yet."""
    monkeypatch.setattr(writer, "PROMPT_SHARE", 1.0)


class OpenWindows:
    """The most windows of a minute that were open at once.

    A batch of part 0 waits until the windows before `behind` minutes ago have fired, so that few rows are on their way,
    and until `may_go_on(the last minute of part 1)`.
    """

    def __init__(self, behind: int = 60, may_go_on: Callable[[int], bool] = lambda minute: True) -> None:
        self.most = 0
        self._behind = behind
        self._may_go_on = may_go_on
        self._opened: set[int] = set()
        self._fired: set[int] = set()
        self._last = -1
        self._changed = threading.Condition()

    def opened(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        minutes = _minutes(batch["at"])
        with self._changed:
            if batch["part"][0].as_py() == 0:
                assert self._changed.wait_for(lambda: self._is_free(minutes[0]), timeout=60)
            else:
                self._last = max(self._last, *minutes)
            self._opened.update(minutes)
            self.most = max(self.most, len(self._opened - self._fired))
            self._changed.notify_all()
        return batch

    def _is_free(self, minute: int) -> bool:
        due = {each for each in self._opened if each < minute - self._behind}
        return self._may_go_on(self._last) and due <= self._fired

    def fired(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with self._changed:
            self._fired.update(_minutes(batch["window_start"]))
            self._changed.notify_all()
        return batch

    def count(self, env: hg.StreamEnvironment, stream: hg.DataStream) -> tuple[int, int]:
        """Return the rows that the windows counted, and the late rows."""
        counts = stream.key_by().window(hg.tumble("1 min")).aggregate(rows=hg.count())
        seen: list[int] = []
        fired = counts.map_batches(self.fired, schema=counts.schema)
        fired.sink_to(hg.sinks.for_each_batch(lambda batch, _: seen.extend(batch["rows"].to_pylist())))
        late = env.execute().late_rows
        return sum(seen), late


def _minutes(times: pa.Array) -> list[int]:
    return [time // MINUTE for time in times.cast(pa.int64()).to_pylist()]


def environment(parallelism: int) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(
        parallelism=parallelism,
        config=hg.Config(buffer_timeout="0 ms", message_size=1, watermark_interval="1 ms"),  # a message for each batch
        deployment=hg.LocalDeployment(processes=False),
    )


def two_sources(folder: Path, parallelism: int, group: str | None, windows: OpenWindows) -> int:
    """Read two sources of 3,000 minutes each, and return the most windows that were open at once."""
    env, streams = environment(parallelism), []
    for part, drift in enumerate(["1 h", "20 min"]):
        path = folder / f"{part}.parquet"
        pq.write_table(pa.Table.from_batches([rows(part, 0, 3_000)]), path)
        watermark = hg.Watermark("at", max_drift=drift, group=group)
        source = env.from_source(hg.sources.parquet(str(path), batch_rows=10), watermark=watermark)
        streams.append(source.map_batches(windows.opened, schema=SCHEMA))
    assert windows.count(env, streams[0].union(streams[1])) == (6_000, 0)
    return windows.most


@pytest.mark.parametrize("parallelism", [1, 2])
def test_sources_of_a_group_wait_for_the_slowest(tmp_path: Path, parallelism: int) -> None:
    after_the_other = OpenWindows(may_go_on=lambda minute: minute == 2_999)
    assert two_sources(tmp_path, parallelism, None, after_the_other) > 2_980
    # Part 0 is at most 60 windows behind what has fired, and part 1 at most 20 and a batch ahead of part 0.
    assert two_sources(tmp_path, parallelism, "all", OpenWindows()) <= 60 + 20 + 3 * 10


def old_tables(parallelism: int, drift: str | None) -> int:
    """Ask for three tables of 3,000 minutes: each answer has ten minutes of "slow", or 200 of the others. Return the
    most windows that were open at once."""

    def newer(table: str, after: int | None) -> tuple[pa.RecordBatch, int] | None:
        begin, size = after or 0, 10 if table == "slow" else 200
        return None if begin >= 3_000 else (rows(int(table != "slow"), begin, begin + size), begin + size)

    windows, env = OpenWindows(), environment(parallelism)
    tables = hg.sources.poll(newer, SCHEMA, ["slow", "fast", "faster"], bounded=True)
    stream = env.from_source(tables, watermark=hg.Watermark("at", max_drift=drift))
    assert windows.count(env, stream.map_batches(windows.opened, schema=SCHEMA)) == (9_000, 0)
    return windows.most


@pytest.mark.parametrize("parallelism", [1, 2])
def test_splits_that_one_subtask_reads_at_once_wait_for_the_slowest(parallelism: int) -> None:
    assert old_tables(parallelism, None) > 2_500
    # The reader may have three answers ready when a split must wait.
    assert old_tables(parallelism, "1 h") <= 60 + 60 + 4 * 200


def test_a_reader_of_one_file_after_the_other_needs_no_more_windows_than_its_bound(tmp_path: Path) -> None:
    for part in range(3):  # each begins 40 minutes before the one before it ends
        file = pa.Table.from_batches([rows(0, 1_000 * part, 1_000 * part + 1_040)])
        pq.write_table(file, tmp_path / f"{part}.parquet")
    windows, env = OpenWindows(), environment(1)
    watermark = hg.Watermark("at", out_of_orderness="40 min", max_drift="1 h")
    stream = env.from_source(hg.sources.parquet(str(tmp_path), batch_rows=10), watermark=watermark)
    assert windows.count(env, stream.map_batches(windows.opened, schema=SCHEMA)) == (3 * 1_040, 0)
    assert windows.most <= 40 + 60 + 2 * 10


@pytest.mark.parametrize("options", [{"group": "all"}, {"group": "", "max_drift": 1}, {"group": 7, "max_drift": 1}])
def test_a_group_that_aligns_nothing_is_an_error(options: Any) -> None:
    with pytest.raises(PlanError, match="group="):
        hg.Watermark("at", **options)
