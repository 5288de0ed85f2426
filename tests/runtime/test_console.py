"""What functions print in TaskManager processes: all of it, in order, with the name of who printed it."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.runtime.control_messages import Printed
from headgate.runtime.printed_lines import LINE_LENGTH, show
from headgate.runtime.taskmanager.console import LINES_PER_SECOND, Console
from tests.runtime.jobs import NUMBERS, counted, endless, environment, error_of


def test_prints_have_the_subtasks_name(capfd: pytest.CaptureFixture[str]) -> None:
    def tell(batch: pa.RecordBatch, _info: Any) -> None:
        print("rows:", batch.num_rows)
        print("half a line, ", end="")
        print("and the rest", file=sys.stdout)
        sys.stderr.write("two\nlines\n")

    env = environment(processes=True)
    batches = [[{"n": 1}] * 3, [{"n": 2}] * 4]
    env.from_source(hg.sources.iterable(batches)).sink_to(hg.sinks.for_each_batch(tell)).name("teller")
    env.execute()
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == [
        "teller[0] | half a line, and the rest",
        "teller[0] | rows: 3",
        "teller[1] | half a line, and the rest",
        "teller[1] | rows: 4",
    ]
    assert sorted(err.splitlines()) == ["teller[0] | lines", "teller[0] | two", "teller[1] | lines", "teller[1] | two"]


def test_last_words_before_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_batch: pa.RecordBatch) -> pa.RecordBatch:
        for number in range(100):
            print("step", number)
        print("and then", end="")
        raise ValueError("no")

    env = environment(processes=True, taskmanagers=1, parallelism=1)
    endless(env).map_batches(fail, schema=NUMBERS).sink_to(hg.sinks.null())
    assert type(error_of(env.execute_async())) is hg.UserFunctionError
    steps = [f"map_batches[0] | step {number}" for number in range(100)]
    assert capfd.readouterr().out.splitlines() == [*steps, "map_batches[0] | and then"]


def test_logging_and_warnings_and_threads(capfd: pytest.CaptureFixture[str]) -> None:
    """`logging` without any set-up shows warnings, as everywhere in Python."""

    def log(batch: pa.RecordBatch) -> pa.RecordBatch:
        logging.getLogger("mine").warning("look out")
        logging.getLogger("mine").info("not shown")
        helper = threading.Thread(target=print, args=("from a helper",))
        helper.start()
        helper.join()
        return batch

    env = environment(processes=True, taskmanagers=1, parallelism=1)
    stream = env.from_source(hg.sources.iterable([[{"n": 1}]]))
    stream.map_batches(log, schema=NUMBERS).name("logger").sink_to(hg.sinks.null())
    env.execute()
    out, err = capfd.readouterr()
    assert err == "logger[0] | look out\n"
    assert out == "TaskManager 0 | from a helper\n"


def test_an_iterators_prints(capfd: pytest.CaptureFixture[str]) -> None:
    """It runs on a thread of its own."""

    def batches(subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        print("opening", subtask)
        yield pa.record_batch({"n": pa.array([1], pa.int64())})

    env = environment(processes=True, taskmanagers=1)
    env.from_source(hg.sources.iterable(batches, schema=NUMBERS)).name("tape").sink_to(hg.sinks.null())
    env.execute()
    assert sorted(capfd.readouterr().out.splitlines()) == ["tape[0] | opening 0", "tape[1] | opening 1"]


def test_in_threads_prints_simply_appear(capsys: pytest.CaptureFixture[str]) -> None:
    def tell(_batch: pa.RecordBatch, _info: Any) -> None:
        print("here")

    env = environment(parallelism=1)
    counted(env, rows=10).sink_to(hg.sinks.for_each_batch(tell))
    env.execute()
    assert capsys.readouterr().out == "here\n"


class Wire:
    """The driver's side of a console, and a clock that is held."""

    def __init__(self) -> None:
        self.now = 0.0
        self.messages: list[Printed] = []
        self.console = Console("TaskManager 3", lambda: self.now)
        self.console.connect(self.messages.append)

    @property
    def lines(self) -> list[str]:
        return [line for message in self.messages for line in message.lines]


def test_more_lines_than_allowed_are_counted() -> None:
    wire = Wire()
    for number in range(LINES_PER_SECOND + 50):
        wire.console.write("stdout", f"{number}\n")
    assert wire.lines == [str(number) for number in range(LINES_PER_SECOND)]
    wire.now += 0.1
    wire.console.write("stdout", "later\n")
    assert wire.lines[-2:] == ["... 50 lines dropped: more than 200 in a second", "later"]
    wire.console.write("stdout", "x\n" * 1000)
    wire.console.flush()
    assert wire.lines[-1] == "... 981 lines dropped: more than 200 in a second"
    assert len(wire.lines) == LINES_PER_SECOND + 2 + 19 + 1
    wire.now += 1000
    wire.console.write("stdout", "x\n" * 1000)
    assert len(wire.lines) == 2 * LINES_PER_SECOND + 2 + 19 + 1, "the bucket holds one second's lines"


def test_streams_have_limits_of_their_own_and_long_lines_are_cut() -> None:
    wire = Wire()
    wire.console.write("stdout", "x\n" * 1000)
    wire.console.write("stderr", "y" * (LINE_LENGTH + 5) + "\n")
    assert wire.messages[-1].stream == "stderr"
    assert wire.messages[-1].task == "TaskManager 3"
    assert wire.lines[-1] == "y" * LINE_LENGTH + " ... (5 more characters)"


def test_a_line_without_end_takes_no_memory() -> None:
    wire = Wire()
    for _ in range(100):
        wire.console.write("stdout", "z" * LINE_LENGTH)
    wire.console.write("stdout", "\n")
    assert len(wire.lines) == 1
    assert len(wire.lines[0]) < LINE_LENGTH + 50


def test_the_streams_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler made in one job writes where the next job's streams lead, and between jobs where the worker's do."""
    worker = io.StringIO()
    monkeypatch.setattr(sys, "stderr", worker)
    first, second = Wire(), Wire()
    with first.console.installed():
        handler = logging.StreamHandler()
        handler.emit(logging.makeLogRecord({"msg": "one"}))
    assert sys.stderr is worker
    handler.emit(logging.makeLogRecord({"msg": "between"}))
    with second.console.installed():
        handler.emit(logging.makeLogRecord({"msg": "two"}))
    assert (first.lines, second.lines, worker.getvalue()) == (["one"], ["two"], "between\n")


def test_what_is_printed_before_the_driver_is_reached_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    own = io.StringIO()
    monkeypatch.setattr(sys, "stdout", own)
    console = Console("TaskManager 0")
    with console.installed():
        print("early")
    assert own.getvalue() == "early\n"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_the_driver_shows_what_its_terminal_can(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    show(Printed(stream="stdout", task="map[0]", lines=["caf\u00e9 \ud800"]))
    shown = terminal.buffer.getvalue().decode(encoding)
    assert shown == ("map[0] | caf\\xe9 \\ud800\n" if encoding == "ascii" else "map[0] | caf\u00e9 \\ud800\n")


def test_a_driver_without_a_terminal_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    show(Printed(stream="stdout", task="map[0]", lines=["unheard"]))
    monkeypatch.setattr(sys, "stdout", None)
    show(Printed(stream="stdout", task="map[0]", lines=["unheard"]))
