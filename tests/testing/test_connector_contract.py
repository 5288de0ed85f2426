"""The contract kit: the built-in connectors keep the contract, and connectors that break it are found."""

from __future__ import annotations

import gc
import io
import json
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.connectors.collect_sink import CollectSink
from headgate.testing import check_sink, check_source, sink_contract, source_contract, source_run
from headgate.testing.line_crash import SimulatedCrash
from headgate.testing.sink_program import EPOCHS, SinkProgram, StoredJob

ROWS = 30
NUMBERS = [{"n": n} for n in range(ROWS)]
SCHEMA = pa.schema({"n": pa.int64()})


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def generated(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.arange(start, start + n)})


# --- sources


def lines(folder: Path, line: Callable[[int], str], head: str = "") -> str:
    folder.mkdir(exist_ok=True)
    for number in range(3):
        (folder / f"{number}.txt").write_text(
            head + "".join(line(n) + "\n" for n in range(number * 10, number * 10 + 10))
        )
    return str(folder)


def json_line(n: int) -> str:
    return json.dumps({"n": n})


def test_generate_keeps_the_contract() -> None:
    check_source(lambda: hg.sources.generate(generated, rows=ROWS, batch_rows=4), NUMBERS)
    check_source(lambda: hg.sources.generate(generated, rows=ROWS, rate=1000.0), NUMBERS)


#: Rows that the functions below have taken. They are pickled by name, so all copies of a source count here.
TAKEN: list[int] = []


def pairs(subtask: int, subtasks: int) -> Iterator[pa.RecordBatch]:
    for start in range(2 * subtask, ROWS, 2 * subtasks):
        TAKEN.extend((start, start + 1))
        yield batch(start, start + 1)


def test_iterable_keeps_the_contract() -> None:
    def make() -> hg.Source:
        TAKEN.clear()
        return hg.sources.iterable(pairs, SCHEMA)

    check_source(lambda: hg.sources.iterable([batch(n) for n in range(ROWS)]), NUMBERS)
    check_source(make, NUMBERS, taken=lambda: len(TAKEN), most_ahead=8)


def test_files_keep_the_contract(tmp_path: Path) -> None:
    csv, jsonl = lines(tmp_path / "csv", str, "n\n"), lines(tmp_path / "json", json_line)
    for start in range(0, ROWS, 10):
        pq.write_table(pa.table(batch(*range(start, start + 10))), tmp_path / f"{start}.parquet", row_group_size=3)
    missing = str(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    idle = str(tmp_path / "empty" / "*.csv")
    check_source(
        lambda: hg.sources.csv(csv, schema=SCHEMA, split_size=8), NUMBERS,
        broken=lambda: hg.sources.csv(missing, schema=SCHEMA),
    )  # fmt: skip
    check_source(lambda: hg.sources.json_lines(jsonl, schema=SCHEMA, split_size=30), NUMBERS)
    check_source(lambda: hg.sources.text(csv), [{"value": str(n) if n >= 0 else "n"} for n in [-1, *range(10), -1,
                 *range(10, 20), -1, *range(20, 30)]])  # fmt: skip
    check_source(lambda: hg.sources.parquet(f"{tmp_path}/*.parquet", batch_rows=2, split_size=1), NUMBERS)
    check_source(
        lambda: hg.sources.files(csv, format="csv", schema=SCHEMA, watch=True), NUMBERS,
        idle=lambda: hg.sources.files(idle, format="csv", schema=SCHEMA, watch=True),
        broken=lambda: hg.sources.files(missing, format="csv", schema=SCHEMA, watch=True),
    )  # fmt: skip


@pytest.mark.turns(3)
@pytest.mark.parametrize("kind", ["persons", "auctions", "bids"])
def test_nexmark_keeps_the_contract(kind: Any) -> None:
    def make() -> hg.Source:
        return hg.sources.nexmark(kind, events=1000, rate=100_000, paced=True)

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    check_source(make, env.from_source(hg.sources.nexmark(kind, events=1000, rate=100_000)).collect())


def test_bad_lines_come_once_too(tmp_path: Path) -> None:
    def line(n: int) -> str:
        return "oops" if n % 7 == 3 else str(n)

    folder = lines(tmp_path / "csv", line, "n\n")
    bad = [n for n in range(ROWS) if n % 7 == 3]
    run = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    aside = hg.sinks.collect()
    run.from_source(hg.sources.csv(folder, schema=SCHEMA)).side_output("bad").sink_to(aside)
    run.execute()
    assert aside.rows == len(bad)
    check_source(
        lambda: hg.sources.csv(folder, schema=SCHEMA, split_size=8),
        [{"n": n} for n in range(ROWS) if n not in bad],
        sides={"bad": aside.to_table()},
    )


def test_socket_lines_keep_the_contract() -> None:
    with serving(b"".join(b"%d\n" % n for n in range(ROWS))) as port, serving(b"", closes=False) as silent:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            nobody = unused.getsockname()[1]
        check_source(
            lambda: hg.sources.socket_lines("127.0.0.1", port), [{"value": str(n)} for n in range(ROWS)],
            idle=lambda: hg.sources.socket_lines("127.0.0.1", silent),
            broken=lambda: hg.sources.socket_lines("127.0.0.1", nobody),
        )  # fmt: skip


def test_socket_lines_hold_the_server_back() -> None:
    """Lines that the server has sent are with the reader, or in the buffers of the kernel: at most 6 MiB there."""
    sent = [f"{n:02}" + "x" * (1 << 19) for n in range(40)]
    with counting([line.encode() + b"\n" for line in sent]) as (port, taken):
        check_source(
            lambda: hg.sources.socket_lines("127.0.0.1", port), [{"value": line} for line in sent],
            taken=taken, most_ahead=24,
        )  # fmt: skip


@contextmanager
def counting(sent: Sequence[bytes]) -> Iterator[tuple[int, Callable[[], int]]]:
    """Send the lines to everyone who connects. Yields the port, and how many lines the last one got so far."""
    count = 0

    def serve() -> None:
        nonlocal count
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            count = 0
            with connection, suppress(OSError):  # a reader that closes before its end
                for line in sent:
                    connection.sendall(line)
                    count += 1

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], lambda: count
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def serving(text: bytes, closes: bool = True) -> Iterator[int]:
    """Send the text to everyone who connects, and then close the connection."""
    held = []

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            connection.sendall(text)
            if closes:
                connection.close()
            else:
                held.append(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    for connection in held:
        connection.close()


def newer(split: str, last: Any) -> Any:
    """Ten numbers of each split."""
    first = {"a": 0, "b": 10, "c": 20}[split]
    begin = first if last is None else last
    rows = [{"n": n} for n in range(begin, min(begin + 3, first + 10))]
    return (rows, begin + len(rows)) if rows else None


def fails(_split: str, _last: Any) -> Any:
    raise ConnectionError("nobody answers")


def taken_newer(split: str, last: Any) -> Any:
    answer = newer(split, last)
    TAKEN.extend(row["n"] for row in (answer or ([],))[0])
    return answer


def test_poll_keeps_the_contract() -> None:
    def make() -> hg.Source:
        TAKEN.clear()
        return hg.sources.poll(taken_newer, SCHEMA, ["a", "b", "c"], bounded=True)

    check_source(
        make, NUMBERS,
        idle=lambda: hg.sources.poll(lambda split, last: ([], last), SCHEMA, ["a", "b"], interval="10 ms"),
        broken=lambda: hg.sources.poll(fails, SCHEMA),
        taken=lambda: len(TAKEN), most_ahead=4 * 3,
    )  # fmt: skip


# --- sinks


def read_parquet(name: str) -> Any:
    return pq.read_table(name) if Path(name).is_dir() else []


def read_csv(name: str) -> Any:
    tables = [pa.csv.read_csv(path) for path in Path(name).rglob("*.csv") if not path.name.startswith("_")]
    return [row for table in tables for row in table.to_pylist()]


def read_lines(name: str) -> Any:
    files = [path for path in Path(name).rglob("*.jsonl") if not path.name.startswith("_")]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def test_file_sinks_keep_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    check_sink(hg.sinks.parquet, read_parquet, broken=lambda: hg.sinks.parquet(tmp_path / "file"))
    check_sink(lambda name: hg.sinks.csv("csv" + name), lambda name: read_csv("csv" + name), lines=20)


def test_json_sinks_keep_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"n": n, "s": f"part {n % 3}"} for n in range(30)]

    def read(name: str) -> Any:
        folders = [(path, path.name.partition("=")[2]) for path in Path(name).glob("s=*")]
        return [{**row, "s": value} for path, value in folders for row in read_lines(str(path))]

    check_sink(lambda name: hg.sinks.json(name, partition_by="s"), read, rows=rows, lines=20)
    check_sink(lambda name: hg.sinks.json("json" + name), lambda name: read_lines("json" + name), lines=20)


def test_the_printer_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines may come again after a failure, but none is missing."""
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)

    def read(name: str) -> Any:
        rows = [
            line.removeprefix(f"{name}: ") for line in printed.getvalue().splitlines() if line.startswith(f"{name}: ")
        ]
        return [{"n": int(n), "s": s} for n, s in (row.removeprefix("n=").split(", s=") for row in rows)]

    check_sink(lambda name: hg.sinks.printer(f"{name}: "), read)


def test_for_each_batch_keeps_the_contract() -> None:
    """Rows may come again after a failure, but none is missing."""
    written: dict[str, list[Any]] = {}
    inbox = Inbox(written)
    check_sink(lambda name: hg.sinks.for_each_batch(inbox.function(name)), lambda name: written.get(name, []))


class Inbox:
    """Travels by reference within this process."""

    alive: dict[int, Inbox] = {}  # noqa: RUF012

    def __init__(self, written: dict[str, list[Any]]) -> None:
        self.written = written
        Inbox.alive[id(self)] = self

    def function(self, name: str) -> Callable[[pa.RecordBatch, Any], None]:
        key = id(self)

        def put(rows: pa.RecordBatch, _info: Any) -> None:
            Inbox.alive[key].written.setdefault(name, []).extend(rows.to_pylist())

        return put


def two_phase(name: str) -> hg.Sink:
    folder = Path(name)
    folder.mkdir(exist_ok=True)

    def write(table: pa.Table, info: hg.BatchInfo) -> str:
        hidden = f"_{info.run}-{info.checkpoint_id}-{info.subtask}-{time.monotonic_ns()}"
        (folder / hidden).write_text(json.dumps(table.to_pylist()))
        return hidden

    def commit(written: Sequence[str], _checkpoint: int) -> None:
        for hidden in written:
            if (folder / hidden).exists():
                (folder / hidden).rename(folder / hidden[1:])

    return hg.sinks.two_phase(write, commit)


def read_json(name: str) -> Any:
    return [row for path in Path(name).glob("[!_]*") for row in json.loads(path.read_text())]


def test_two_phase_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_sink(two_phase, read_json)


def test_collect_keeps_what_of_the_contract_one_program_sees(tmp_path: Path) -> None:
    """The rows end with the program, so no other program can show them."""
    made: dict[str, CollectSink] = {}

    def make(name: str) -> hg.Sink:
        made[name] = hg.sinks.collect()
        return made[name]

    check = sink_contract._Check(make, lambda name: made[name].to_table(), pa.table({"n": range(40)}), str(tmp_path))
    check.commits_again()
    check.restarts()
    check.aborts()


def test_null_takes_all_calls_of_a_job(tmp_path: Path) -> None:
    """Nobody sees its rows. It stores nothing in checkpoints, and any other program resumes from them."""
    stored, rows = StoredJob(), pa.table({"n": range(40)})
    program = SinkProgram(hg.sinks.null(), stored, rows, home=str(tmp_path), subtasks=2)
    program.start()
    for step in (program.write, program.flush, program.store, program.commit, program.commit, program.roll_back):
        step()
    assert (program.flushed, stored.prepared) == ([], None)
    another = SinkProgram(hg.sinks.null(), stored, rows, home=str(tmp_path), subtasks=3)
    another.start()
    another.go_on()
    assert stored.checkpoint == EPOCHS


# --- connectors that break the contract


class Broken(hg.Source):
    """A source of NUMBERS in batches of one row, which breaks the contract in a chosen way."""

    schema = SCHEMA

    def __init__(self, how: str) -> None:
        self.how = how
        self.rows = 0

    def prepare(self) -> None:
        self.rows = ROWS

    def prepared(self) -> Any:
        return range(ROWS) if self.how == "prepares a range" else {"rows": self.rows}

    def restore(self, prepared: Any) -> None:
        if self.how != "does not restore":
            self.rows = prepared["rows"]

    def commit(self, pending: Sequence[Any], checkpoint: int) -> None:
        assert [type(values) for values in pending] == [list] * len(pending)

    def reader(self, context: hg.ReaderContext) -> hg.SourceReader:
        return BrokenReader(self.how, self.rows, context)


class BrokenReader(hg.SourceReader):
    def __init__(self, how: str, rows: int, context: hg.ReaderContext) -> None:
        self.how = how
        self.subtask = context.subtask
        positions = [] if context.positions is None else context.positions
        rescales = len(positions) not in (0, context.parallelism)
        taken = {n for position in positions for n in position}
        if how == "forgets its position" and positions:
            taken = set()
        if how == "takes only its own position" and rescales:
            taken = set(positions[0])
        every = range(rows) if how == "every reader reads all" else range(context.subtask, rows, context.parallelism)
        self.left = [n for n in every if n not in taken]
        self.open_splits = self.left  # each row is a split
        self.taken = sorted(taken)
        self.thread: threading.Thread | None = None
        self.woken = threading.Event()
        if how == "leaves a thread":
            threading.Thread(target=self.woken.wait, args=(20,), daemon=True).start()

    def read(self) -> pa.RecordBatch | None:
        if self.how == "waits in read" and self.left:
            time.sleep(0.5)
        if not self.left:
            self.finished = self.how != "has no end"
            return None
        number = self.left.pop(0)
        self.taken.append(number)
        self.rows_by_split = [(number, 1)]
        return pa.record_batch({"m": [number]}) if self.how == "has other columns" else batch(number)

    def position(self) -> Any:
        return self.taken

    def to_commit(self) -> Any:
        return {*self.taken} if self.how == "commits a set" else self.taken

    def split_key(self, split: int) -> str | None:
        if self.how == "every reader reads all":
            return None
        if self.how == "two splits have one key":
            return str(split // 4)
        return f"{self.subtask}/{split}" if self.how == "keys depend on the reader" else str(split)

    def close(self) -> None:
        if self.how == "waits in close":
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("forgets its position", "resumed with 2 readers after its end .*: of 'rows', the rows differ"),
        ("takes only its own position", "resumed with"),
        ("every reader reads all", "with 2 readers"),
        ("waits in read", r"read\(\) took "),
        ("waits in close", r"close\(\) of subtask 0 took "),
        ("has no end", "and set `finished` at its end"),
        ("has other columns", r"read\(\) returned \(m int64\)"),
        ("leaves a thread", "left threads behind"),
        ("does not restore", "resumed with .* each time in another program: of 'rows', the rows differ"),
        ("prepares a range", r"prepared\(\) returned range\(0, 30\), not JSON values"),
        ("commits a set", r"to_commit\(\) returned .*, not JSON values"),
        ("two splits have one key", r"split_key\(\) returned '0' for two splits"),
        ("keys depend on the reader", r"with 2 readers, split_key\(\) returned other keys than with one, such as"),
    ],
)
def test_a_source_that_breaks_the_contract_is_found(how: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only these wait in vain. On a slow machine others would be found for a short wait, not for their flaw.
    if how.startswith("waits"):
        monkeypatch.setattr(source_run, "LONGEST_CALL", 0.3)
    if how == "leaves a thread":
        monkeypatch.setattr(source_contract, "LONGEST_CALL", 0.3)
    with pytest.raises(AssertionError, match=message):
        check_source(lambda: Broken(how), NUMBERS, timeout=0.3 if how == "has no end" else 30.0)


@pytest.mark.parametrize(
    ("taken", "message"),
    [(lambda: 0, r"taken\(\) returned 0 after the source had returned 1 rows\. Count at the input"),
     (lambda: ROWS, "while nobody reads, the source has taken 30 rows; most_ahead is 5")],
)  # fmt: skip
def test_what_a_source_has_taken_is_checked(taken: Callable[[], int], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_source(lambda: Broken("not at all"), NUMBERS, taken=taken, most_ahead=5)


def test_a_source_that_keeps_the_contract_is_not_refused() -> None:
    check_source(lambda: Broken("not at all"), NUMBERS)


class BrokenSink(hg.Sink):
    """Rows in files, written in two phases, with a chosen flaw."""

    exactly_once = True
    shows_at_commit = True

    def __init__(self, name: str, how: str) -> None:
        self.folder = Path(name)
        self.how = how

    def prepare(self, job: str, schema: pa.Schema) -> None:
        self.folder.mkdir(exist_ok=True)

    def published_after(self, checkpoint: int, run: str) -> int:
        if self.how == "wants a checkpoint with its name" and not list(self.folder.iterdir()):
            raise hg.SinkError("the results are gone")
        return checkpoint + 1 if self.how == "counts from 0" else 0

    def writer(self, context: hg.WriterContext) -> hg.SinkWriter:
        return BrokenWriter(self.folder, self.how, context)

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        for name in (name for names in pending for name in names):
            if self.how == "appends at each commit":
                with (self.folder / "all").open("a") as file:
                    file.write((self.folder / name).read_text() + "\n")
                continue
            if self.how != "does not look" and not (self.folder / name).exists():
                continue
            (self.folder / name).rename(self.folder / name[1:])

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        if self.how != "does not commit again":
            self.commit(pending, checkpoint)

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        self.commit(pending, checkpoint)


class BrokenWriter(hg.SinkWriter):
    def __init__(self, folder: Path, how: str, context: hg.WriterContext) -> None:
        self.folder, self.how, self.context = folder, how, context
        self.rows: list[Any] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()
        if self.how == "ignores cancel":
            time.sleep(3600)

    def flush(self, checkpoint: int) -> Any:
        if not self.rows:
            return []
        name = f"{'' if self.how == 'shows at once' else '_'}{time.monotonic_ns()}"
        (self.folder / name).write_text(json.dumps(self.rows))
        if self.how != "keeps its rows":
            self.rows = []
        return [] if self.how in ("shows at once", "loses names") else [name]

    def finish(self) -> Any:
        return self.flush(0)


def read_broken(name: str) -> Any:
    texts = [line for path in Path(name).glob("[!_]*") for line in path.read_text().splitlines()]
    return [row for text in texts for row in json.loads(text)]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("appends at each commit", "too early or twice|committed twice|rows differ"),
        ("does not look", "FileNotFoundError|No such file"),
        ("does not commit again", "the program ended before commit of checkpoint 1, and another one resumed"),
        ("shows at once", "too early or twice"),
        ("keeps its rows", "too early or twice|rows differ"),
        ("loses names", "rows differ"),
        ("wants a checkpoint with its name", "a job could not resume with one more sink: the results are gone"),
        ("counts from 0", r"published_after\(\) returned 2, and 1 is the last checkpoint"),
    ],
)
def test_a_sink_that_breaks_the_contract_is_found(
    how: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, OSError), match=message):
        check_sink(lambda name: BrokenSink(name, how), read_broken)


def test_a_sink_that_keeps_the_contract_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_sink(lambda name: BrokenSink(name, "not at all"), read_broken)


def test_the_places_of_crashes_are_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each crash has a place of its own, whose names `make` gets."""
    monkeypatch.chdir(tmp_path)

    def places(**options: Any) -> int:
        names: set[str] = set()

        def make(name: str) -> hg.Sink:
            names.add(name)
            return BrokenSink(f"{len(options)}-{options}-{name}", "not at all")

        check_sink(make, lambda name: read_broken(f"{len(options)}-{options}-{name}"), **options)
        return len(names)

    none = places(checkpoints=[], lines=0)
    assert places(checkpoints=[2], lines=0) == none + 5, "before each of four steps, and after the last"
    assert places(checkpoints=[2, 3], lines=1) == none + 10 + 6, "a line of three calls, and three counts"
    assert places(checkpoints=(), lines=150) > none + 10
    for wrong in ({"checkpoints": [0]}, {"checkpoints": [4]}, {"lines": -1}):
        with pytest.raises(hg.ConfigError, match="check_sink: checkpoints="):
            places(**wrong)


class SteppingSink(BrokenSink):
    """A sink that keeps the contract, and notes how far a commit came that crashed."""

    crashed: ClassVar[list[int]] = []

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        step = 0
        try:
            step = 1
            step = 2
            step = 3
            super().commit(pending, checkpoint)
            step = 4
            step = 5
            step = 6
        except SimulatedCrash:
            self.crashed.append(step)
            raise


def test_lines_are_spread_over_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SteppingSink, "crashed", [])
    check_sink(lambda name: SteppingSink(name, "not at all"), read_broken, checkpoints=[], lines=1)
    assert SteppingSink.crashed == [3, 3], "in the middle of commit, and of rollback, which commits"
    SteppingSink.crashed.clear()
    check_sink(lambda name: SteppingSink("all" + name, "not at all"), lambda name: read_broken("all" + name))
    assert {*SteppingSink.crashed} == {*range(6)}, "at each line"


def test_a_program_that_crashed_is_gone_when_another_one_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, each crash would leave the connections of its writers open, and a server has room for few."""
    monkeypatch.chdir(tmp_path)
    sinks: weakref.WeakSet[BrokenSink] = weakref.WeakSet()
    left: dict[str, int] = {}

    def make(name: str) -> hg.Sink:
        sinks.add(made := BrokenSink(name, "not at all"))
        return made

    def read(name: str) -> Any:
        left.setdefault(name, sum(sink.folder.name == name for sink in sinks))
        return read_broken(name)

    gc.disable()  # it would move objects to the generation that check_sink leaves alone
    try:
        check_sink(make, read, checkpoints=[], lines=1)
    finally:
        gc.enable()
    assert list(left.values())[:6] == [0] * 6, "without a crash, and with one, in each of three calls"
