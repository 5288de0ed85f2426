"""`check_sink`: runs a sink through everything that jobs may do to it, and crashes at every step."""

from __future__ import annotations

import gc
import itertools
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from headgate.connectors.connector import Sink
from headgate.errors import ConfigError, HeadgateError, JobCancelled
from headgate.testing.line_crash import LineCrash, SimulatedCrash
from headgate.testing.same_rows import assert_same_rows, counted
from headgate.testing.sink_program import EPOCHS, SinkProgram, StoredJob
from headgate.testing.source_contract import GivenRows, listed
from headgate.testing.source_run import LONGEST_CALL

#: The steps of an epoch, in order. A program may crash before each of them, and after the last.
_STEPS: Final = ("write", "flush", "store", "commit")
#: What a test writes if it gives no rows.
_ROWS: Final = [{"n": n, "s": f"row {n}"} for n in range(40)]
#: After so many lines at which a program has ended, all objects are collected.
_COLLECTED_AFTER: Final = 20


def check_sink(
    make: Callable[[str], Sink],
    read: Callable[[str], GivenRows],
    *,
    rows: GivenRows | None = None,
    broken: Callable[[], Sink] | None = None,
    stalled: Callable[[], Sink] | None = None,
    checkpoints: Collection[int] = range(1, EPOCHS + 1),
    lines: int = 150,
    timeout: float = 30.0,
) -> None:
    """Run a sink of your own through the whole contract of `hg.Sink`. Raises AssertionError, which says what broke.

    `make(name)` returns a new sink that writes to the place `name`, such as a folder or a table. The kit uses many
    names, and calls `make` several times with the same name: each call is another program. `read(name)` returns the
    rows that readers see there, or no rows if there is no such place. `rows` are what the kit writes: a few dozen rows
    that differ. The default has the columns `n int64` and `s string`.

    The kit takes three checkpoints. It ends the program at every step: before and after each write, flush, checkpoint
    and commit. It also ends the program before every line that the sink's own modules run in `commit` and `rollback`,
    and when a program resumes, up to `claim` and `begin`. Then another program resumes, with another number of writers.
    The kit checks that

    - with `exactly_once`, readers see each row once; otherwise at least once,
    - with `shows_at_commit`, readers never see rows whose checkpoint is not complete,
    - `commit` may be called again, and changes nothing then,
    - `published_after` finds no rows after the last checkpoint, also if the checkpoint does not name the sink,
    - a restart in the same program takes back the rows after the checkpoint, while old writers still run,
    - a program that was paused before its commit, and replaced, changes nothing,
    - `abort` leaves the rows of the last checkpoint.

    A crash costs as much as a small job. For a slow target, crash at fewer places. `checkpoints` names the checkpoints,
    of 1, 2 and 3, at whose steps the program ends. `lines` is the most lines of `commit` before which it ends, and the
    same for `rollback` and the claim; these lines are spread over the call. With `lines=0` the program never ends
    within a call. For example, `checkpoints=[2], lines=1` is quick, and a longer test takes the defaults.

    The other arguments add checks:

    - `broken()` returns a sink that cannot write. It raises SinkError within `timeout` seconds.
    - `stalled()` returns a sink whose target takes no rows. Its `write` waits after at most 64 MiB, and a cancel ends
      the wait.

    >>> import os, pyarrow.parquet
    >>> def read(name):
    ...     return pa.parquet.read_table(name) if os.path.isdir(name) else []
    >>> hg.testing.check_sink(hg.sinks.parquet, read)
    >>> hg.testing.check_sink(lambda name: hg.sinks.parquet("quick" + name), lambda name: read("quick" + name),
    ...                       checkpoints=[2], lines=1)
    """
    if not set(checkpoints) <= set(range(1, EPOCHS + 1)) or lines < 0:
        raise ConfigError(
            f"check_sink: checkpoints={checkpoints!r} must be of 1 to {EPOCHS}, and lines={lines!r} at least 0"
        )
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(listed(_ROWS if rows is None else rows))
    with tempfile.TemporaryDirectory() as home:
        check = _Check(make, read, table, home)
        check.crashes_between_steps(checkpoints)
        for call in ("commit", "rollback", "claim") if lines else ():
            check.crashes_within(call, lines)
        check.joins()
        check.commits_again()
        check.restarts()
        check.aborts()
        if check.is_exactly_once:
            check.is_superseded()
        if broken is not None:
            check.fails(broken(), timeout)
        if stalled is not None:
            check.waits(stalled(), timeout)
        gc.collect()  # programs that have crashed, which nobody closed, hold no threads or connections


class _Check:
    def __init__(self, make: Callable[[str], Sink], read: Callable[[str], GivenRows], rows: pa.Table,
                 home: str) -> None:  # fmt: skip
        self._make = make
        self._read = read
        self._rows = rows
        self._home = home
        self._names = (f"check-{number}" for number in itertools.count())
        sink = make(next(self._names))
        self.is_exactly_once = sink.exactly_once
        self._shows_at_commit = sink.shows_at_commit

    def _program(self, name: str, stored: StoredJob, subtasks: int = 2) -> SinkProgram:
        program = SinkProgram(self._make(name), stored, self._rows, home=self._home, subtasks=subtasks)
        program.start()
        return program

    def _expect(self, name: str, epochs: int, when: str, without: int = 0) -> None:
        """Check that readers see the rows of the first `epochs` epochs, but not of the first `without`."""
        expected = [row for number, row in enumerate(self._rows.to_pylist()) if without <= number % EPOCHS < epochs]
        seen = listed(self._read(name))
        if not self.is_exactly_once:  # each row at least once
            seen = list({repr(sorted(row.items())): row for row in seen}.values())
        try:
            assert_same_rows(seen, expected)
        except AssertionError as error:
            raise AssertionError(f"{when}: {error}") from None

    def _expect_no_more(self, name: str, epochs: int, when: str) -> None:
        """With `shows_at_commit`, check that readers see no row too early, and with `exactly_once` no row twice."""
        allowed = [row for number, row in enumerate(self._rows.to_pylist()) if number % EPOCHS < epochs]
        seen = counted(listed(self._read(name)))
        if self._shows_at_commit and (early := seen - _times(counted(allowed), 1 if self.is_exactly_once else 1000)):
            raise AssertionError(
                f"{when}: readers see {len(early)} rows too early or twice, such as {next(iter(early))}"
            )

    def crashes_between_steps(self, checkpoints: Iterable[int]) -> None:
        """End the program before each step of these checkpoints, and after the last step; another program resumes."""
        for checkpoint, step in itertools.product(checkpoints, range(len(_STEPS) + 1)):
            epoch = checkpoint - 1
            name, stored = next(self._names), StoredJob()
            program = self._program(name, stored)
            for _ in range(epoch):
                _run(program, _STEPS)
            _run(program, _STEPS[:step])
            when = f"the program ended {_place(epoch, step)}"
            self._expect_no_more(name, stored.checkpoint, when)
            self._program(name, stored, 1 + epoch).go_on()
            self._expect(name, EPOCHS, f"{when}, and another one resumed")

    def crashes_within(self, call: str, most: int) -> None:
        """End the program before at most `most` lines of a commit, or of the claim or the rollback after it; another
        program resumes."""
        lines = self._crash(call, None)
        distance = max(1, -(-lines // most))
        for number in range((distance - 1) // 2, lines, distance):
            self._crash(call, number)

    def _crash(self, call: str, number: int | None) -> int:
        name, stored = next(self._names), StoredJob()
        program = self._program(name, stored)
        _run(program, _STEPS[:3])
        if call != "commit":
            program = SinkProgram(self._make(name), stored, self._rows, home=self._home, subtasks=2)
        if call == "rollback":
            program.claim()
        crash = LineCrash(program.sink, number)
        with suppress(SimulatedCrash), crash.active():
            if call == "claim":
                program.claim()
            else:
                getattr(program.sink, call)(stored.pending, stored.checkpoint)
        lines = crash.lines
        del program, crash
        # A program that has ended holds nothing, such as a connection that it did not close. To collect what has lived
        # for long takes long, so it is done less often.
        gc.collect(1 if number is None or number % _COLLECTED_AFTER else 2)
        when = f"the program ended in {call}(), before its line {number}"
        self._expect_no_more(name, stored.checkpoint, when)
        self._program(name, stored, 3).go_on()
        self._expect(name, EPOCHS, f"{when}, and another one resumed")
        return lines

    def joins(self) -> None:
        """Let a job resume from a checkpoint that does not name the sink. Then another program resumes with it."""
        name, stored = next(self._names), StoredJob(checkpoint=1, run="test-earlier", owner=1)
        try:
            program = self._program(name, stored)
        except HeadgateError as error:
            raise AssertionError(f"a job could not resume with one more sink: {error}") from error
        _run(program, _STEPS)
        self._program(name, stored, 3).go_on()
        self._expect(name, EPOCHS, "a job resumed with one more sink, and then once more", without=1)

    def commits_again(self) -> None:
        name, stored = next(self._names), StoredJob()
        program = self._program(name, stored)
        _run(program, _STEPS)
        program.commit()
        self._expect(name, 1, "a checkpoint was committed twice")
        for _ in range(1, EPOCHS):
            _run(program, (*_STEPS, "commit"))
        program.go_on()
        program.sink.finish()
        self._expect(name, EPOCHS, "every checkpoint was committed twice")

    def restarts(self) -> None:
        for steps in (_STEPS[:1], _STEPS[:2], _STEPS[:3], _STEPS):
            name, stored = next(self._names), StoredJob()
            program = self._program(name, stored)
            _run(program, _STEPS)
            old = list(program._writers)
            _run(program, steps)
            program.roll_back()
            program.go_on()
            for writer in old:
                writer.close()
            self._expect(name, EPOCHS, f"the job restarted in the same program {_place(1, len(steps))}")

    def aborts(self) -> None:
        for epochs in (0, 1):
            name, stored = next(self._names), StoredJob()
            program = self._program(name, stored)
            for _ in range(epochs):
                _run(program, _STEPS)
            _run(program, _STEPS[:2])
            program.close()
            program.sink.abort(stored.pending, stored.checkpoint)
            if self._shows_at_commit:
                self._expect(name, epochs, f"the job was cancelled after {epochs} checkpoints")

    def is_superseded(self) -> None:
        """Pause a program before its commit, until another one has finished the job."""
        name, stored = next(self._names), StoredJob()
        paused = self._program(name, stored)
        _run(paused, _STEPS[:3])
        pending, checkpoint = stored.pending, stored.checkpoint
        self._program(name, stored).go_on()
        for late in (paused.sink.commit, paused.sink.rollback, paused.sink.abort):
            with suppress(HeadgateError):  # such as Superseded
                late(pending, checkpoint)
            self._expect(name, EPOCHS, f"a paused and replaced program called {late.__name__}()")

    def fails(self, sink: Sink, timeout: float) -> None:
        began = time.monotonic()
        program = SinkProgram(sink, StoredJob(), self._rows, home=self._home, subtasks=1)
        try:
            program.start()
            _run(program, _STEPS)
        except HeadgateError as error:
            assert str(error), "the error has no message"
        else:
            raise AssertionError("a sink that cannot write must raise SinkError")
        program.close()
        sink.abort()
        took = time.monotonic() - began
        assert took < timeout, f"the error came after {took:.0f} s, not within {timeout:g} s"

    def waits(self, sink: Sink, timeout: float) -> None:
        """Write until the sink waits, then cancel."""
        program = SinkProgram(sink, StoredJob(), self._rows, home=self._home, subtasks=1)
        program.start()
        outcome: list[Any] = []

        def write() -> None:
            batch, written = self._rows.combine_chunks().to_batches()[0], 0
            try:
                while written < 64 << 20:
                    program._writers[0].write(batch)
                    written += batch.nbytes
                outcome.append("write() took 64 MiB for a target that takes no rows, without waiting")
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        thread.join(1.0)
        program.is_cancelled = True
        thread.join(timeout)
        assert outcome, f"a cancel did not end the wait of write() within {timeout:g} s: wait by context.wait_until"
        assert isinstance(outcome[0], JobCancelled), outcome[0]
        began = time.monotonic()
        program.close()
        took = time.monotonic() - began
        assert took < LONGEST_CALL, f"close() took {took:.1f} s"
        sink.abort()


def _run(program: SinkProgram, steps: tuple[str, ...]) -> None:
    for step in steps:
        getattr(program, step)()


def _times(rows: Counter[Any], factor: int) -> Counter[Any]:
    return Counter({row: count * factor for row, count in rows.items()})


def _place(epoch: int, step: int) -> str:
    name = f"before {_STEPS[step]}" if step < len(_STEPS) else "after commit"
    return f"{name} of checkpoint {epoch + 1}"
