"""Several programs that run one job, of which any may be paused, or lost, before each operation on a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate.connectors.file_sinks.file_sink import Mode
from headgate.errors import CheckpointError, HeadgateError, JobCancelled, ResultsGone, SinkError
from headgate.runtime.checkpointing.resume import LATEST_IF_ANY
from headgate.state.checkpoint_line import CheckpointName
from headgate.state.checkpoint_metadata import LAST_ID
from headgate.state.checkpoint_storage import KEEP, CheckpointStorage, discard
from tests.runtime.calling_sink import Calls
from tests.runtime.owner_driver import ROWS, Driver, Event, Lost
from tests.runtime.owner_files import step_before_operations
from tests.runtime.owner_uploads import Uploads


class OwnerMachine:
    """The programs, and the folder they share.

    `events` are what happens, by program and checkpoint. `keep` is how many checkpoints are kept. `mode` is that of the
    file sink. With `calls` there is a sink like `foreach_dataframe`, too. With `uploads` the sink's folder is in an
    object store, and hidden files are uploads.
    """

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        events: set[tuple[Event, int, int]] | None = None,
        *,
        keep: int = KEEP,
        mode: Mode = "append",
        calls: bool = False,
        uploads: bool = False,
    ) -> None:
        self.folder = folder
        self.uploads = Uploads(self.before_an_operation) if uploads else None
        self.keep = keep
        self.mode = mode
        self.calls = Calls(folder, patch, self.before_an_operation) if calls else None
        self.savepoints = str(folder / "savepoints")
        self.drivers: list[Driver] = []
        self.by_thread: dict[threading.Thread, Driver] = {}
        self._events = events or set()
        #: Whether a savepoint is gone that a job might resume from.
        self.has_deleted = False
        step_before_operations(patch, self.before_an_operation, str(folder / "out") if uploads else None)
        if self.uploads is not None:
            self.uploads.use(patch)

    def before_an_operation(self) -> None:
        driver = self.by_thread.get(threading.current_thread())
        if driver is not None:
            driver.before_an_operation()

    def happens(self, what: Event, driver: int, checkpoint: int) -> bool:
        """Once each."""
        happens = (what, driver, checkpoint) in self._events
        self._events.discard((what, driver, checkpoint))
        return happens

    def start(self, resume: str | None = LATEST_IF_ANY) -> Driver:
        driver = Driver(self, len(self.drivers), resume)
        self.drivers.append(driver)
        driver.start()
        return driver

    # --- what is there

    def complete(self) -> list[str]:
        """The folders of all checkpoints that are complete, also of those that do not count any more."""
        return sorted(str(path.parent) for path in (self.folder / "checkpoints").glob("*/chk-*/_metadata"))

    def saved(self) -> list[str]:
        """The folders of all complete savepoints."""
        return sorted(str(path.parent) for path in Path(self.savepoints).glob("*/sp-*/_metadata"))

    def delete(self, savepoint: str) -> None:
        """A user does."""
        discard(savepoint)
        self.has_deleted = True

    @property
    def newest(self) -> Driver:
        """That which claimed the job last."""
        return max(self.drivers, key=lambda driver: driver.epoch)

    def rows(self) -> list[int]:
        """All that is visible."""
        return sorted(row for rows in self._rows_by_run().values() for row in rows)

    def _rows_by_run(self) -> dict[str, list[int]]:
        """By the program that started afresh."""
        rows: dict[str, list[int]] = {driver.run: [] for driver in self.drivers}
        for path in sorted((self.folder / "out").rglob("part-*")):
            run = path.name.removeprefix("part-")[: len(self.drivers[0].run)]
            rows[run] += [int(line) for line in path.read_text().splitlines()[1:]]
        return {run: sorted(found) for run, found in rows.items()}

    def has(self, pattern: str) -> bool:
        """Whether there is such a file."""
        return any(self.folder.glob(pattern))

    def hidden(self) -> list[str]:
        uploads = [] if self.uploads is None else self.uploads.names
        return sorted(path.name for path in (self.folder / "out").rglob("_part-*")) + uploads

    # --- how it ends

    def end(self, order: Callable[[list[Driver]], Driver]) -> None:
        """One more program starts, and all that are left go on in any order until each has ended. If the newest was
        cancelled, another one follows."""
        while True:
            last = self.start()
            while left := [driver for driver in self.drivers if not driver.has_ended]:
                order(left).step()
            newest = self.newest if last.epoch else last  # it was refused before its claim
            if not isinstance(newest.error, JobCancelled):
                return self.check(newest)

    def close(self) -> None:
        for driver in self.drivers:
            if not driver.has_ended:
                driver.lose()

    def check(self, newest: Driver) -> None:
        """The newest program has run to its end, and its rows are there once; or the job was refused, and no row is
        there twice."""
        for driver in self.drivers:
            assert isinstance(driver.error, HeadgateError | Lost | None), repr(driver.error)
        if newest.error is not None:
            assert isinstance(newest.error, self._refusals(newest)), f"the newest program ended with {newest.error!r}"
        else:
            self._check_line(newest)
            assert self._own_rows(newest) == list(range(ROWS))
        for rows in self._rows_by_run().values() if self.mode == "append" else [self.rows()]:
            assert rows == list(range(len(rows))), "rows are lost, or are there twice"
        if self.calls is not None:
            called = self.calls.rows(lambda key: self._is_in_line(newest, *key))
            assert called == list(range(len(called) if newest.error else ROWS))

    def _refusals(self, newest: Driver) -> tuple[type[HeadgateError], ...]:
        """Where a checkpoint was named it may be an older one. A job that starts afresh may find results."""
        if any(driver.resume not in (None, LATEST_IF_ANY) for driver in self.drivers):
            return CheckpointError, ResultsGone
        if self.has_deleted:
            return (CheckpointError,)
        return (SinkError,) if newest.resume is None and self.mode == "error" else ()

    def _own_rows(self, newest: Driver) -> list[int]:
        """The visible rows of its line; of all, where no others may be."""
        *_, (first, _) = self._line(newest)
        return self._rows_by_run()[first.run] if self.mode == "append" else self.rows()

    def _line(self, driver: Driver) -> Iterator[tuple[Driver, int]]:
        """The programs whose results it goes on with, the newest first, each with its last checkpoint that counts."""
        by_epoch = {driver.epoch: driver for driver in self.drivers}
        yield driver, LAST_ID
        while driver.resumed is not None:
            driver, last = by_epoch[driver.resumed.owner], driver.resumed.id
            yield driver, last

    def _is_in_line(self, newest: Driver, run: str, checkpoint: int) -> bool:
        return any(driver.run == run and checkpoint <= last for driver, last in self._line(newest))

    def _check_line(self, newest: Driver) -> None:
        """None counts that an older program completed when it had been replaced."""
        by_epoch = {driver.epoch: driver for driver in self.drivers}
        last: CheckpointName | None = CheckpointName(newest.epoch, LAST_ID)
        counting = CheckpointStorage(self.folder / "checkpoints", "job").completed()
        for folder in counting:
            if folder.startswith(self.savepoints):
                continue
            name = CheckpointName.of(folder.rpartition("/")[2])
            assert name is not None
            while last is not None and last.owner > name.owner:
                last = by_epoch[last.owner].resumed or by_epoch[last.owner].before
            assert last is not None, f"{name} counts, in {counting}"
            assert last.owner == name.owner, f"{name} counts, in {counting}"
            assert name <= last, f"{name} counts, in {counting}"

    def name_of(self, run: str, checkpoint: int) -> CheckpointName:
        """A checkpoint by the run that took it."""
        [driver] = [driver for driver in self.drivers if driver.run == run]
        return CheckpointName(driver.epoch, checkpoint)
