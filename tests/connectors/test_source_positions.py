"""Readers resume from positions, at any place and with any parallelism: every row and bad line comes once."""

from __future__ import annotations

import bz2
import copy
import gzip
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.connectors.connector import Source, SourceReader
from headgate.connectors.file_sources import line_parser, line_source, lines
from headgate.demo.replay import Replay
from tests.connectors.conftest import drain, reader_context
from tests.examples import examples

ROWS = 40
SCHEMA = pa.schema({"n": pa.int64()})
WAIT = 60.0


def numbers(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.arange(start, start + n)})


class Run:
    """The readers of a source through restarts, with the rows that they returned and their positions."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rows: Counter[Any] = Counter()
        self.bad: Counter[tuple[str, int]] = Counter()
        self.positions: list[Any] | None = None
        self.readers: list[SourceReader] = []
        self.now = 0.0

    def start(self, parallelism: int) -> None:
        contexts = [
            reader_context(n, parallelism, started_at=self.now, clock=lambda: self.now, bad=self._take_bad)
            for n in range(parallelism)
        ]
        self.readers = [self.source.reader(replace(context, positions=self.positions)) for context in contexts]

    def _take_bad(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows
        self.bad.update((row["file"], row["line"]) for row in batch.to_pylist())

    def read(self, subtask: int) -> bool:
        """Read a batch with one reader. Returns False at its end."""
        reader = self.readers[subtask]
        until = time.monotonic() + WAIT
        while (batch := reader.read()) is None:
            if reader.finished or not self.source.bounded:
                return False
            assert time.monotonic() < until
            self.now += 0.7
            time.sleep(0.0001)
        self.rows.update(tuple(row.values()) for row in batch.to_pylist())
        return True

    def stop(self) -> None:
        """Take the positions, as a checkpoint from which the next readers resume, and close the readers."""
        self.positions = json.loads(json.dumps([reader.position() for reader in self.readers]))
        for reader in self.readers:
            reader.close()

    def finish(self, parallelism: int) -> None:
        self.start(parallelism)
        for subtask in range(parallelism):
            while self.read(subtask):
                pass
        self.stop()


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", 40)
        patch.setattr(line_source, "BLOCK_BYTES", 40)
        patch.setattr(line_source, "_MOST_ROWS", 3)
        patch.setattr(line_parser, "_ATTEMPTS", 5)
        yield


def put_lines(folder: Path, line: Callable[[int], str], head: str, name: str, pack: Callable[[bytes], bytes]) -> None:
    """`ROWS` lines in three files, the last without a line break at its end."""
    folder.mkdir()
    for number, some in enumerate((range(19), range(19, 20), range(20, ROWS))):
        (folder / f"{number}.{name}").write_bytes(pack((head + "\n".join(map(line, some))).encode()))


def csv_line(row: int) -> str:
    return "oops" if row % 7 == 3 or 20 <= row < 25 else str(row)


def json_line(row: int) -> str:
    return '{"n": "oops"}' if row % 7 == 3 else f'{{"n": {row}}}'


def batches(subtask: int, subtasks: int) -> Iterator[pa.RecordBatch]:
    return (numbers(start, 2) for start in range(2 * subtask, ROWS, 2 * subtasks))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    root = tmp_path_factory.mktemp("sources")
    put_lines(root / "csv", csv_line, "n\n", "csv", bytes)
    put_lines(root / "bom", csv_line, "\ufeff", "csv", bytes)
    put_lines(root / "csv.gz", csv_line, "n\n", "csv.gz", gzip.compress)
    put_lines(root / "json", json_line, "", "jsonl", bytes)
    put_lines(root / "text", str, "", "bz2", bz2.compress)
    (root / "parquet").mkdir()
    for name, start, stop in [("a", 0, 23), ("b", 23, 23), ("c", 23, ROWS)]:
        pq.write_table(pa.table(numbers(start, stop - start)), root / "parquet" / name, row_group_size=7)

    def csv(folder: str, **options: Any) -> Source:
        return hg.sources.csv(root / folder, schema=SCHEMA, **options)

    def watched(folder: str, **options: Any) -> Source:
        return hg.sources.files(root / folder, watch=True, **options)

    found = {
        "generate": hg.sources.generate(numbers, rows=ROWS, batch_rows=4),
        "paced": hg.sources.generate(numbers, rows=ROWS, rate=5.0),
        "list": hg.sources.iterable([numbers(2 * (i // 2), 2 * (i % 2)) for i in range(ROWS)]),
        "factory": hg.sources.iterable(batches, SCHEMA),
        "csv": csv("csv", split_size=30),
        "csv in one split": csv("csv"),
        "csv with a byte order mark": csv("bom", header=False),
        "csv.gz": csv("csv.gz"),
        "json": hg.sources.json_lines(root / "json", schema=SCHEMA, split_size=200),
        "text": hg.sources.text(root / "text"),
        "parquet": hg.sources.parquet(root / "parquet", batch_rows=3, split_size=100),
        "parquet by row group": hg.sources.parquet(root / "parquet", batch_rows=100, split_size=1),
        "watched csv": watched("csv", format="csv", schema=SCHEMA),
        "watched parquet": watched("parquet", format="parquet", batch_rows=5),
        "replay": replayed_csv(root),
    }
    for source in found.values():
        source.prepare()
    return found


def replayed_csv(root: Path) -> Source:
    """Give the files times that are a second apart, in the order of splits."""
    folder = root / "times"
    folder.mkdir()
    for number, some in enumerate((range(19), range(19, ROWS))):
        (folder / f"{number}.csv").write_text("n\n" + "".join(f"1970-01-01 00:00:{row:02}\n" for row in some))
    inner = hg.sources.csv(folder, schema=pa.schema({"n": pa.timestamp("us", "UTC")}))
    return Replay(inner, "n", datetime(1970, 1, 1, tzinfo=UTC), 1.0)


NAMES = [
    "generate", "paced", "list", "factory", "csv", "csv in one split", "csv with a byte order mark", "csv.gz", "json",
    "text", "parquet", "parquet by row group", "watched csv", "watched parquet", "replay",
]  # fmt: skip


def whole(source: Source) -> Run:
    """Return a run without a stop."""
    run = Run(source)
    run.finish(1)
    return run


@pytest.mark.parametrize("name", NAMES)
def test_every_row_comes_once_without_a_stop(sources: dict[str, Source], name: str) -> None:
    run = whole(sources[name])
    assert set(run.rows.values()) == {1}
    assert set(run.bad.values()) <= {1}
    assert len(run.rows) + len(run.bad) == ROWS
    assert bool(run.bad) == ("csv" in name or name == "json")


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_row_comes_once_after_a_stop_at_any_position(sources: dict[str, Source], name: str) -> None:
    source = sources[name]
    expected = whole(source)
    for reads in range(1000):
        run = Run(source)
        run.start(1)
        going_on = all(run.read(0) for _ in range(reads))
        run.stop()
        run.finish(1 + 2 * (reads % 2))
        assert (run.rows, run.bad) == (expected.rows, expected.bad), f"after {reads} reads"
        if not going_on:
            return
    raise AssertionError("it has no end")


#: A parallelism, and the readers that read, in order.
PHASES = st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(0, 3), max_size=25)), min_size=1, max_size=4)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=examples(8))
@example([(2, [0] * 25), (3, [1] * 25), (2, [0, 0, 1]), (2, [1]), (4, [0, 1, 2, 3])])
@example([(4, [3] * 9), (1, [0] * 5), (4, [0, 2]), (3, [])])
@example([(1, [0] * 2), (2, [0] * 3), (2, [0] * 3)])
@given(phases=PHASES)
def test_every_row_comes_once_after_any_number_of_stops(
    sources: dict[str, Source], name: str, phases: Sequence[tuple[int, list[int]]]
) -> None:
    source = sources[name]
    expected = whole(source)
    run = Run(source)
    for parallelism, subtasks in phases:
        run.start(parallelism)
        for subtask in subtasks:
            run.read(subtask % parallelism)
        run.stop()
    run.finish(2)
    assert (run.rows, run.bad) == (expected.rows, expected.bad)
    run.finish(3)
    assert (run.rows, run.bad) == (expected.rows, expected.bad), "what has finished stays so"


@pytest.mark.parametrize("name", ["csv in one split", "csv.gz", "json"])
def test_blocks_may_end_elsewhere_after_a_stop(
    sources: dict[str, Source], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then rows and bad lines come in other pieces, and a part of a piece was returned before."""
    expected = whole(sources[name])
    for reads in range(10):
        run = Run(sources[name])
        run.start(1)
        assert all(run.read(0) for _ in range(reads))
        run.stop()
        with monkeypatch.context() as patch:
            patch.setattr(lines, "BLOCK_BYTES", 1000)
            patch.setattr(line_parser, "_ATTEMPTS", 1000)
            run.finish(1)
        assert (run.rows, run.bad) == (expected.rows, expected.bad), f"after {reads} reads"


def started(source: Source, positions: list[Any] | None = None, **where: Any) -> SourceReader:
    return source.reader(replace(reader_context(**where), positions=positions))


def test_due_times_stay_the_same_after_a_restart() -> None:
    """A reader that resumes later has to catch up."""
    source = hg.sources.generate(numbers, rows=8, rate=1.0, time="due")
    before = started(source, started_at=100.0, clock=lambda: 102.5)
    assert [before.read().num_rows for _ in range(3)] == [1, 1, 1]
    after = started(source, [before.position()], started_at=105.9, clock=lambda: 106.0)
    due = []
    while (batch := after.read()) is not None:
        due += [round(time.timestamp()) for time in batch["due"].to_pylist()]
    assert due == [103, 104, 105, 106]
    assert after.next_read() == 107.0


def test_generated_blocks_must_keep_their_size() -> None:
    positions = [started(hg.sources.generate(numbers, batch_rows=4)).position()]
    with pytest.raises(
        hg.CheckpointError, match="^the checkpoint counts blocks of 4 rows, not 5; resume with the batch_rows="
    ):
        started(hg.sources.generate(numbers, batch_rows=5), positions)


def test_a_position_is_small(tmp_path: Path) -> None:
    """Also with a thousand splits or endless blocks, after three changes of the parallelism, with readers far apart."""
    (tmp_path / "a.txt").write_text("line\n" * 1000)
    text = hg.sources.text(tmp_path / "a.txt", split_size=5)
    text.prepare()
    for source in (hg.sources.generate(numbers, batch_rows=1), text):
        positions: list[Any] | None = None
        shares = random.Random(1)
        for parallelism in (7, 5, 8, 3):
            readers = [started(source, positions, subtask=n, parallelism=parallelism) for n in range(parallelism)]
            for reader in readers:
                for _ in range(shares.randrange(30)):
                    reader.read()
            positions = [reader.position() for reader in readers]
        assert max(len(json.dumps(position)) for position in positions or ()) < 700
        for reader in readers:
            for _ in range(200):
                reader.read()
        assert max(len(json.dumps(reader.position())) for reader in readers) < 100, "what lies behind is forgotten"


def watching(folder: Path) -> Run:
    source = hg.sources.files(folder, format="csv", schema=SCHEMA, watch=True, interval=1)
    source.prepare()
    return Run(source)


def test_files_that_come_after_a_stop_are_read_once(tmp_path: Path) -> None:
    run = watching(tmp_path)
    for step, parallelism in enumerate([2, 2, 3, 1, 4]):
        for number in range(3):
            (tmp_path / f"{step}-{number}.csv").write_text(f"n\n{3 * step + number}\n")
        run.finish(parallelism)
        run.now += 5
    assert run.rows == Counter((row,) for row in range(15))


def test_a_half_read_file_is_read_to_the_size_at_which_it_was_found(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n" + "".join(f"{row}\n" for row in range(20)))
    run = watching(tmp_path)
    run.start(1)
    assert run.read(0)
    run.stop()
    with (tmp_path / "a.csv").open("a") as file:
        file.write("1000\n")
    run.finish(2)
    assert run.rows == Counter((row,) for row in range(20))


def half_read(folder: Path, write: Callable[[Path, int], None], **options: Any) -> Run:
    """Return a run that has read a part of a file with the numbers from 0 to 19."""
    write(folder / "a", 0)
    os.utime(folder / "a", ns=(0, 7_000_000_000))
    run = Run(hg.sources.files(folder, watch=True, interval=1, **options))
    run.source.prepare()
    run.start(1)
    assert run.read(0)
    run.stop()
    return run


def put_csv(path: Path, start: int) -> None:
    path.write_text("".join(f"{row:05}\n" for row in range(start, start + 20)))


def put_parquet(path: Path, start: int) -> None:
    pq.write_table(pa.table(numbers(start, 20)), path)


CSV: dict[str, Any] = {"format": "csv", "schema": SCHEMA, "header": False}


@pytest.mark.parametrize(
    ("write", "options"),
    [(put_csv, CSV), (put_parquet, {"format": "parquet", "batch_rows": 5})],
    ids=["csv", "parquet"],
)
def test_another_file_with_the_name_of_a_half_read_one_is_refused(
    tmp_path: Path, write: Callable[[Path, int], None], options: Any
) -> None:
    """Its rows after the place in the old file would follow the old rows, and its first rows would be lost."""
    run = half_read(tmp_path, write, **options)
    old = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(old)  # at another time
    with pytest.raises(hg.SourceError, match=r"/a: was written at .*, after 1970-01-01T00:00:07.*put the old file bac"):
        run.start(2)
    (tmp_path / "a").write_bytes(old[:-3])
    with pytest.raises(hg.SourceError, match=r"/a: has \d+ bytes now, and had \d+; .*put the old file back"):
        run.start(2)
    if write is put_parquet:
        pq.write_table(pa.table(numbers(0, 1000)), tmp_path / "a")
        with pytest.raises(hg.SourceError, match=r"/a: has \d+ bytes now, and had"):
            run.start(2)
    (tmp_path / "a").write_bytes(old)
    os.utime(tmp_path / "a", ns=(0, 7_000_000_000))
    run.finish(2)
    assert run.rows == Counter((row,) for row in range(20))


def test_a_half_read_file_of_an_older_checkpoint_has_no_time(tmp_path: Path) -> None:
    run = half_read(tmp_path, put_csv, **CSV)
    assert run.positions is not None
    [begun] = run.positions[0]["begun"]
    assert begun.pop() == 7_000_000_000
    run.source.check_position(run.positions[0])
    os.utime(tmp_path / "a")
    run.finish(1)
    assert run.rows == Counter((row,) for row in range(20))


def test_iterators_without_end_need_a_reader_each() -> None:
    source = hg.sources.iterable(batches, SCHEMA, bounded=False)
    run = Run(source)
    run.start(3)
    run.stop()
    run.start(5)
    assert [reader.position()["taken"] for reader in run.readers] == [[(0, 0)], [(1, 0)], [(2, 0)], [], []]
    run.stop()
    with pytest.raises(hg.SourceError, match="has 3 iterators without end, .* resume with a parallelism of at least 3"):
        run.start(2)


def test_a_source_that_is_not_replayable_starts_from_its_beginning() -> None:
    source = hg.sources.iterable(batches, SCHEMA, replayable=False)
    run = Run(source)
    run.start(1)
    assert run.read(0)
    run.stop()
    assert (source.replayable, run.positions) == (False, [None])
    run.finish(2)
    assert run.rows[(0,)] == 2
    assert len(run.rows) == ROWS
    assert not hg.sources.socket_lines("localhost", 1).replayable
    assert hg.sources.generate(numbers).replayable


@pytest.mark.parametrize("name", ["csv", "csv.gz", "json", "text", "parquet", "replay"])
def test_another_program_reads_the_same_files(sources: dict[str, Source], name: str) -> None:
    source = sources[name]
    expected = whole(source)
    run = Run(source)
    run.start(2)
    assert run.read(0)
    run.stop()
    value = json.loads(json.dumps(source.prepared()))
    again = copy.deepcopy(source)
    again.restore(value)
    run.source = again
    run.finish(3)
    assert (run.rows, run.bad) == (expected.rows, expected.bad)


def test_another_program_reads_the_same_splits_and_no_newer_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("line\n" * 20)
    first = hg.sources.text(tmp_path, split_size=30)
    first.prepare()
    (tmp_path / "a.txt").write_text("line\n")
    later = hg.sources.text(tmp_path, split_size=1000)
    later.restore(first.prepared())
    known = {str(tmp_path / "b.txt"): [100, (tmp_path / "b.txt").stat().st_mtime_ns]}
    assert later.prepared() == first.prepared() == {"files": known, "split_size": 30}
    assert [drained(later, n) for n in range(4)] == [drained(first, n) for n in range(4)] == [7, 6, 6, 1]


def drained(source: Source, subtask: int) -> int:
    return sum(batch.num_rows for batch in drain(started(source, subtask=subtask, parallelism=4)))


@pytest.mark.parametrize("make", [hg.sources.text, hg.sources.parquet])
def test_files_that_are_gone_or_have_changed_are_named(tmp_path: Path, make: Callable[..., Source]) -> None:
    for name in "ab":
        pq.write_table(pa.table(numbers(0, 5)), tmp_path / name)
    source = make(tmp_path)
    source.prepare()
    value = source.prepared()
    source.restore(value)
    before = (tmp_path / "b").stat()
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes())
    os.utime(tmp_path / "b", ns=(before.st_atime_ns, before.st_mtime_ns + 1_500_000_000))
    with pytest.raises(
        hg.SourceError, match=r"/b: was written at .*, after .*; the job of the checkpoint read it, and"
    ):
        source.restore(value)
    pq.write_table(pa.table(numbers(0, 5000)), tmp_path / "b")
    with pytest.raises(
        hg.SourceError, match=r"/b: has \d+ bytes now, and had \d+; the job of the checkpoint read it: put"
    ):
        source.restore(value)
    (tmp_path / "b").unlink()
    with pytest.raises(hg.SourceError, match=r"/b: is gone; the job of the checkpoint read it: put it back"):
        source.restore(value)
