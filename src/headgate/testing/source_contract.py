"""`check_source`: runs a source through everything that a job may do to it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import pyarrow as pa

from headgate.api.environment import StreamEnvironment
from headgate.config import Config
from headgate.connectors.connector import Source
from headgate.errors import HeadgateError
from headgate.restart import fixed
from headgate.runtime.launch.local import LocalDeployment
from headgate.testing.same_rows import assert_same_rows
from headgate.testing.source_run import LONGEST_CALL, SourceRun

#: A table, or rows as dicts.
GivenRows: TypeAlias = "pa.Table | Iterable[Mapping[str, Any]]"
#: The most positions at which a source is stopped. If it has more batches, some of them are left out.
_MOST_STOPS: Final = 60
#: For each restart, the number of readers, and which of them read a batch, in order.
_RESCALINGS: Final = (
    ((2, (0, 1, 1)), (3, (2, 0)), (1, (0,)), (4, (3, 3, 1, 0)), (2, ())),
    ((4, (3,) * 9), (1, (0,) * 3), (3, (1, 2, 1))),
    ((1, ()), (2, (1, 1, 1)), (2, (0,)), (5, (4, 0))),
)


def check_source(
    make: Callable[[], Source],
    rows: GivenRows,
    *,
    sides: Mapping[str, GivenRows] | None = None,
    idle: Callable[[], Source] | None = None,
    broken: Callable[[], Source] | None = None,
    taken: Callable[[], int] | None = None,
    most_ahead: int | None = None,
    timeout: float = 30.0,
) -> None:
    """Run a source of your own through the whole contract of `hg.Source`. Raises AssertionError, which says what broke.

    `make()` returns a new source over the same input each time. `rows` are all rows of this input: a few dozen, in
    several batches. `sides` has the rows of side outputs, by tag. The kit checks that

    - every row comes once, with 1, 2 and 3 readers, and batches have the source's schema,
    - every row comes once if the readers stop after any batch, and the same or another number of readers resumes,
    - the same in another program, whose source gets what `prepared` returned by `restore`,
    - positions survive as JSON, and `check_position` takes them; `commit` gets what `to_commit` returned,
    - no two splits have the same `split_key`, and a split has the same one with every number of readers,
    - `read` and `close` return quickly, and leave no thread,
    - a job that fails and restarts from its checkpoints reads every row once, if the source is bounded.

    The other arguments add checks:

    - `idle()` returns a source whose input has no rows yet. It waits, and a cancel ends the wait.
    - `broken()` returns a source whose input cannot be read. It raises SourceError within `timeout` seconds.
    - `taken()` returns how many rows the last source of `make` has taken from its input, whether or not they were read.
      While nobody reads, this number stays at `most_ahead` or below: the source feels back-pressure. Count at the
      input: readers run on a pickled copy of the source, which has copies of the test's variables.

    >>> make = lambda: hg.sources.iterable([[{"n": number}] for number in range(20)])
    >>> hg.testing.check_source(make, rows=[{"n": number} for number in range(20)])
    """
    expected = {"rows": listed(rows), **{tag: listed(side) for tag, side in (sides or {}).items()}}
    check = _Check(make, expected, timeout)
    with _no_thread_left():
        check.reads_every_row()
        if make().replayable:
            check.resumes_after_any_batch()
            check.resumes_with_other_readers()
        check.ends_in_the_middle()
        if idle is not None:
            check.waits(idle())
        if taken is not None:
            assert most_ahead is not None, "give most_ahead= with taken="
            check.holds_back(taken, most_ahead)
    if broken is not None:
        _raises(broken, timeout)
    source = make()
    if source.bounded and source.replayable and not sides:
        _restarts_in_a_job(source, expected["rows"])


class _Check:
    def __init__(
        self, make: Callable[[], Source], expected: Mapping[str, list[Mapping[str, Any]]], timeout: float
    ) -> None:
        self._make = make
        self._expected = expected
        self._timeout = timeout
        self._count = sum(map(len, expected.values()))

    def _new(self) -> SourceRun:
        tags = tuple(tag for tag in self._expected if tag != "rows")
        return SourceRun(self._make(), self._count, self._timeout, tags)

    def _compare(self, run: SourceRun, when: str) -> None:
        for tag, table in run.tables().items():
            try:
                assert_same_rows(table, self._expected[tag])
            except AssertionError as error:
                raise AssertionError(f"{when}: of {tag!r}, {error}") from None
        run.source.release()

    def reads_every_row(self) -> None:
        keys: set[str] = set()
        for parallelism in (1, 2, 3):
            run = self._new()
            run.finish(parallelism)
            self._compare(run, f"with {parallelism} readers")
            keys = keys or run.split_keys
            if differences := sorted(keys ^ run.split_keys):
                raise AssertionError(
                    f"with {parallelism} readers, split_key() returned other keys than with one, such as "
                    f"{differences[0]!r}: the key of a split must be the same in every run"
                )

    def resumes_after_any_batch(self) -> None:
        whole = self._new()
        whole.finish(1)
        whole.source.release()
        step = max(1, whole.reads // _MOST_STOPS)
        for reads in range(0, whole.reads + 1, step):
            for parallelism in (1, 3):
                run = self._new()
                run.start(1)
                while run.reads < reads and run.read(0):
                    pass
                run.stop()
                run.finish(parallelism)
                self._compare(run, f"stopped after {reads} batches of one reader, and resumed with {parallelism}")
                run.finish(2)
                self._compare(run, f"resumed with 2 readers after its end (it was stopped after {reads} batches)")

    def resumes_with_other_readers(self) -> None:
        for schedule in _RESCALINGS:
            run = self._new()
            for parallelism, subtasks in schedule:
                run.start(parallelism)
                for subtask in subtasks:
                    if run.source.bounded:
                        run.read(subtask)
                    else:  # another reader may have all remaining rows
                        run.step(subtask)
                run.stop()
                if run.source.resumable:
                    run.move_to(self._make())
            run.finish(2)
            numbers = ", ".join(str(parallelism) for parallelism, _ in schedule)
            self._compare(run, f"stopped and resumed with {numbers} and 2 readers, each time in another program")

    def ends_in_the_middle(self) -> None:
        for reads in (0, 1):
            run = self._new()
            run.start(2)
            for _ in range(reads):
                run.read(0, 1)
            run.close()
            run.source.release()

    def waits(self, source: Source) -> None:
        run = SourceRun(source, 0, self._timeout)
        run.start(2)
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            for subtask, reader in enumerate(run.readers):
                run.step(subtask)
                assert not (reader.finished and all(each.finished for each in run.readers)), "an idle source has ended"
            run._wait(0, 1)
        assert not run.rows, f"an idle source returned {run.rows} rows"
        run.stop()
        source.release()

    def holds_back(self, taken: Callable[[], int], most_ahead: int) -> None:
        run = self._new()
        run.start(1)
        try:
            run.read(0)
            before, until = -1, time.monotonic() + self._timeout
            while (now := taken()) != before and time.monotonic() < until:
                before = now
                time.sleep(0.2)
        finally:
            run.close()
            run.source.release()
        assert now >= run.rows, (
            f"taken() returned {now} after the source had returned {run.rows} rows. Count at the input, or in a "
            "function of a module: readers run on a pickled copy of the source, which copies the test's variables"
        )
        assert now <= most_ahead, f"while nobody reads, the source has taken {now} rows; most_ahead is {most_ahead}"


def _raises(broken: Callable[[], Source], timeout: float) -> None:
    began = time.monotonic()
    run = None
    try:
        run = SourceRun(broken(), 1, timeout)
        run.start(1)
        run.read(0)
    except HeadgateError as error:
        assert str(error), "the error has no message"
    else:
        raise AssertionError("a source whose input cannot be read must raise SourceError")
    finally:
        if run is not None:
            run.close()
            run.source.release()
    took = time.monotonic() - began
    assert took < timeout, f"the error came after {took:.0f} s, not within {timeout:g} s"


def _restarts_in_a_job(source: Source, expected: list[Mapping[str, Any]]) -> None:
    """Run a job that fails once in the middle, and restarts."""
    seen = [0, 0]

    def fail_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen[0] += batch.num_rows
        if seen[0] > len(expected) // 2 and not seen[1]:
            seen[1] = 1
            raise RuntimeError("the failure of the test")
        return batch

    with tempfile.TemporaryDirectory() as folder:
        config = Config(checkpoint_dir=folder, checkpoint_interval="10 ms", restart=fixed(3, "0 s"))
        deployment = LocalDeployment(taskmanagers=1, processes=False)
        env = StreamEnvironment(parallelism=2, config=config, deployment=deployment)
        stream = env.from_source(source).map_batches(fail_once, schema=source.schema)
        table = stream.collect()
    try:
        assert_same_rows(table, expected)
    except AssertionError as error:
        raise AssertionError(f"in a job that failed once and restarted, {error}") from None


@contextmanager
def _no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + LONGEST_CALL
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left, f"the source left threads behind: {', '.join(sorted(thread.name for thread in left))}"


def listed(rows: GivenRows) -> list[Mapping[str, Any]]:
    """Return rows as dicts."""
    return rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)
