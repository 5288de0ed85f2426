"""Sinks that cannot be made ready, written or committed: nothing of the results shows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from tests.runtime.jobs import NUMBERS, counted, environment, error_of, files_below, keyed


class Ledger(Sink):
    """Notes what is asked of it, and fails where it is told to."""

    def __init__(self, fails: str = "", error: Exception | None = None) -> None:
        self.fails = fails
        self.error = error or OSError("the disk is full")
        self.calls: list[str] = []

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.fails:
            raise self.error

    def prepare(self, job: str, schema: pa.Schema) -> None:
        self._note("prepare")

    def writer(self, context: WriterContext) -> SinkWriter:
        return LedgerWriter(self.fails, self.error, context)

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        if self.fails == "deliver":
            raise self.error

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        self._note("commit")

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        self._note("abort")


class LedgerWriter(SinkWriter):
    def __init__(self, fails: str, error: Exception, context: WriterContext) -> None:
        self.fails, self.error, self.context = fails, error, context
        if fails == "open":
            raise error

    def write(self, batch: pa.RecordBatch) -> None:
        self.context.deliver(batch)
        if self.fails == "write":
            raise self.error

    def finish(self) -> Any:
        if self.fails == "finish":
            raise self.error

    def close(self) -> None:
        if self.fails == "close":
            raise self.error


def test_all_is_committed_once_in_the_end(processes: bool) -> None:
    ledger = Ledger()
    env = environment(processes)
    keyed(counted(env)).sink_to(ledger)
    env.execute()
    assert ledger.calls == ["prepare", "commit"]


def test_a_commit_that_fails(tmp_path: Path, processes: bool) -> None:
    """Two sinks: the one that was committed already is taken back."""
    ledger = Ledger("commit")
    env = environment(processes)
    stream = keyed(counted(env))
    stream.sink_to(hg.sinks.parquet(tmp_path / "out"))
    stream.sink_to(ledger).name("books")
    error = error_of(env.execute_async())
    assert type(error) is hg.SinkError
    assert (error.operator, error.subtask, error.message) == ("books", None, "OSError: the disk is full")
    assert ledger.calls == ["prepare", "commit", "abort"]
    assert files_below(tmp_path) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("where", ["open", "write", "finish", "close"])
def test_a_writer_that_fails(where: str, tmp_path: Path, processes: bool) -> None:
    ledger = Ledger(where, hg.SinkError("the tray is jammed"))
    env = environment(processes)
    stream = counted(env)
    stream.sink_to(hg.sinks.csv(tmp_path / "out"))
    stream.sink_to(ledger).name("printout")
    error = error_of(env.execute_async())
    assert type(error) is hg.SinkError
    assert error.operator == "printout"
    assert error.subtask in (0, 1)
    assert error.message.startswith("the tray is jammed")  # a slow machine may add that it killed a process
    assert ledger.calls == ["prepare", "abort"]
    assert files_below(tmp_path) == []


def test_a_delivery_that_fails_on_the_driver(processes: bool) -> None:
    ledger = Ledger("deliver", BrokenPipeError("nobody reads"))
    env = environment(processes)
    keyed(counted(env)).sink_to(ledger).name("screen")
    error = error_of(env.execute_async())
    assert type(error) is hg.SinkError
    assert (error.operator, error.message) == ("screen", "BrokenPipeError: nobody reads")
    assert ledger.calls == ["prepare", "abort"]


def test_a_sink_that_cannot_be_made_ready(tmp_path: Path) -> None:
    """The sinks before it leave nothing behind. The same plan runs once the cause is gone."""
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "old.csv").write_text("n\n")
    env = environment()
    stream = counted(env)
    stream.sink_to(hg.sinks.parquet(tmp_path / "first"))
    stream.sink_to(hg.sinks.csv(tmp_path / "second")).name("second")
    with pytest.raises(hg.SinkError, match="the folder is not empty") as caught:
        env.execute("two sinks")
    assert (caught.value.job, caught.value.operator) == ("two sinks", "second")
    assert files_below(tmp_path) == ["second/old.csv"]
    assert not (tmp_path / "first").exists()


def test_preparing_with_an_error_of_python() -> None:
    ledger = Ledger("prepare")
    env = environment()
    counted(env).sink_to(ledger).name("books")
    with pytest.raises(hg.SinkError, match="OSError: the disk is full") as caught:
        env.execute()
    assert caught.value.operator == "books"
    assert ledger.calls == ["prepare", "abort"]


def test_a_failed_job_shows_no_file(tmp_path: Path, processes: bool) -> None:
    """Files are written all along, and hidden ones are gone, too."""

    def fail_late(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() > 100_000:
            raise ValueError("too many")
        return batch

    env = environment(processes)
    stream = counted(env, rows=1 << 40)
    stream.sink_to(hg.sinks.csv(tmp_path / "out", mode="append"))
    stream.map_batches(fail_late, schema=NUMBERS).sink_to(hg.sinks.null())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "before.csv").write_text("n\n")
    error = error_of(env.execute_async())
    assert type(error) is hg.UserFunctionError
    assert files_below(tmp_path) == ["out/before.csv"]


def test_the_error_names_what_abort_could_not_clean_up() -> None:
    ledger = Ledger("abort")
    env = environment()

    def fail(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no")

    counted(env).map_batches(fail, schema=NUMBERS).sink_to(ledger).name("books")
    error = error_of(env.execute_async())
    assert type(error) is hg.UserFunctionError
    assert error.message.endswith("(sink books could not clean up: the disk is full)")


def test_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    """Root may write everywhere, so a file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    env = environment()
    counted(env).sink_to(hg.sinks.csv(os.path.join(tmp_path, "file", "out")))
    with pytest.raises(hg.SinkError, match="cannot be written") as caught:
        env.execute()
    assert caught.value.operator == "csv"
