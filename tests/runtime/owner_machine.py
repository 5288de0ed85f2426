"""Several programs that run one job, of which any may be paused, or lost, before each operation on a file.

A program does what a driver does with its storage and its sink, by the driver's own objects, in a thread that goes on
only when it is told: one program moves at a time, so that a run is the same each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import headgate as hg
from headgate import filesystems, ownership
from headgate.config import Config
from headgate.connectors.connector import WriterContext
from headgate.connectors.file_sinks import file_sink, ledger
from headgate.errors import CheckpointError, HeadgateError, ResultsGone
from headgate.ownership import Program
from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import build_job_graph
from headgate.plan.node_keys import node_key
from headgate.runtime.checkpointing.checkpoint_events import StoreMetadata, TaskId
from headgate.runtime.checkpointing.checkpoints import Checkpoints
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors
from headgate.runtime.checkpointing.resume import LATEST_IF_ANY
from headgate.state import checkpoint_files
from headgate.state.checkpoint_files import read_state
from headgate.state.checkpoint_line import CheckpointName
from headgate.state.checkpoint_metadata import LAST_ID
from headgate.state.checkpoint_storage import KEEP, CheckpointStorage, write_part

#: Rows of the job, and between two checkpoints.
ROWS, STEP = 6, 2
SCHEMA = pa.schema({"n": pa.int64()})


class Lost(BaseException):
    """The program is gone."""


class Driver:
    """A program that runs the job from its newest checkpoint, or from the one that it is told. It stands before an
    operation, or has ended."""

    def __init__(self, machine: OwnerMachine, number: int, resume: str) -> None:
        self._machine = machine
        self._number = number
        self.resume = resume
        self._goes_on = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._is_lost = False
        self._checkpoints: Checkpoints | None = None
        #: The checkpoint that it resumed from, when it owns the job.
        self.resumed: CheckpointName | None = None
        self.has_ended = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"driver-{number}", daemon=True)

    @property
    def epoch(self) -> int:
        """By its claim to the job's folder; 0 before."""
        storage = None if self._checkpoints is None else self._checkpoints._storage
        return 0 if storage is None or storage._ownership is None else storage.owner

    def start(self) -> None:
        """Go to before the first operation."""
        self._machine.by_thread[self._thread] = self
        self._thread.start()
        assert self._stands.acquire(timeout=60)

    def step(self, steps: int = 1) -> None:
        """Do so many operations; less if it ends."""
        for _ in range(steps):
            if self.has_ended:
                return
            self._goes_on.release()
            assert self._stands.acquire(timeout=60)

    def lose(self) -> None:
        """End it where it stands."""
        self._is_lost = True
        self.step()
        self._thread.join(60)

    def before_an_operation(self) -> None:
        """On its thread. A program that is lost cleans nothing up."""
        if self._is_lost:
            raise Lost
        self._stands.release()
        assert self._goes_on.acquire(timeout=120)
        if self._is_lost:
            raise Lost

    def _run(self) -> None:
        try:
            self._drive()
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self._stands.release()

    # --- what a driver does

    def _drive(self) -> None:
        out = hg.sinks.csv(self._machine.folder / "out", mode="append")
        env = hg.StreamEnvironment(parallelism=1)
        rows = env.from_source(hg.sources.generate(_rows, rows=ROWS))
        graph = env._jobs.graph.graph([rows.sink_to(out)._node_id])
        plan = ExecutionPlan(build_job_graph(graph), 1)
        run = f"0-{self._number:08x}"
        ends = DriverConnectors(plan.job, run)
        config = Config(checkpoint_dir=self._machine.folder / "checkpoints")
        checkpoints = Checkpoints(
            "job",
            run,
            plan=plan,
            config=config,
            ends=ends,
            send=_ignore,
            stopped=_ignore,
            finished=_ignore,
            done=_ignore,
            resume=self.resume,
        )
        self._checkpoints = checkpoints
        checkpoints.prepare()
        ends.prepare(checkpoints.latest)
        checkpoints.take_over(Program.this(run))
        self.resumed = CheckpointName.of(checkpoints.resumption.place.rpartition("/")[2])
        self._resume_and_end(plan, checkpoints, ends, out)

    def _resume_and_end(self, plan: ExecutionPlan, checkpoints: Checkpoints, ends: DriverConnectors, out: Any) -> None:
        [vertex] = plan.job.vertices
        key = node_key(vertex.nodes[-1])
        storage: Any = checkpoints._storage
        position = _position(checkpoints)
        number, attempt = checkpoints.next_id, 0
        pending: list[Any] = []
        writer = out.writer(self._context(attempt))
        while position < ROWS:
            writer.write(_rows(position, STEP))
            position += STEP
            pending.append(writer.flush(number))
            state = write_part(storage.folder_of(number), attempt, "task", [str(position).encode()])
            complete = StoreMetadata(number, 0.0, {TaskId(vertex.id, 0): state}, {key: list(pending)})
            number += 1
            if self._machine.fails(self._number, number):  # the attempt is lost: the next one begins again
                attempt += 1
                checkpoints.next_id = number
                checkpoints._stored.roll_back(*checkpoints.resumption.results, number - 1)
                position, pending = _position(checkpoints), []
                writer = out.writer(self._context(attempt))
                continue
            metadata = checkpoints._metadata(complete, "checkpoint")
            checkpoints._stored.store(metadata, None)
            checkpoints.resumption.use((storage.folder_of(metadata.id), metadata))
            checkpoints._stored.commit(complete.pending, metadata.id)
            pending = []
            storage.retain(self._machine.keep)
        ends.finish()

    def _context(self, attempt: int) -> WriterContext:
        return WriterContext(
            job="job", operator="sink", subtask=0, parallelism=1, schema=SCHEMA, deliver=print, attempt=attempt
        )


class OwnerMachine:
    """The programs, and the folder they share. `failures` says, by program and checkpoint, which attempts fail, `keep`
    how many checkpoints are kept."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, failures: set[tuple[int, int]] | None = None, keep: int = KEEP
    ) -> None:
        self.folder = folder
        self.keep = keep
        self.drivers: list[Driver] = []
        self.by_thread: dict[threading.Thread, Driver] = {}
        self._failures = failures or set()
        stepping = _Stepping(self)
        locate, create = filesystems.locate, filesystems._create_local

        def create_local(path: str, content: bytes) -> bool:
            self.before_an_operation()
            return create(path, content)

        for module in (filesystems, ownership, checkpoint_files, file_sink, ledger):
            patch.setattr(module, "locate", lambda path: (stepping, locate(path)[1]))
        patch.setattr(filesystems, "_create_local", create_local)

    def before_an_operation(self) -> None:
        driver = self.by_thread.get(threading.current_thread())
        if driver is not None:
            driver.before_an_operation()

    def fails(self, driver: int, checkpoint: int) -> bool:
        """Once each."""
        if (driver, checkpoint) in self._failures:
            self._failures.discard((driver, checkpoint))
            return True
        return False

    def start(self, resume: str = LATEST_IF_ANY) -> Driver:
        driver = Driver(self, len(self.drivers), resume)
        self.drivers.append(driver)
        driver.start()
        return driver

    def complete(self) -> list[str]:
        """The folders of all checkpoints that are complete, also of those that do not count any more."""
        return sorted(str(path.parent) for path in (self.folder / "checkpoints").glob("*/chk-*/_metadata"))

    @property
    def newest(self) -> Driver:
        """That which claimed the job last."""
        return max(self.drivers, key=lambda driver: driver.epoch)

    def rows(self) -> list[int]:
        """All that is visible."""
        files = list((self.folder / "out").rglob("part-*"))
        return sorted(int(line) for path in files for line in path.read_text().splitlines()[1:])

    def hidden(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "out").rglob("_part-*"))

    def end(self, order: Callable[[list[Driver]], Driver]) -> None:
        """One more program starts, and all that are left go on in any order until each has ended."""
        self.start()
        while left := [driver for driver in self.drivers if not driver.has_ended]:
            order(left).step()
        self.check(self.newest)

    def check(self, newest: Driver) -> None:
        """Where a checkpoint was named that may be an older one, the job may have been refused; never is a row there
        twice."""
        is_named = any(driver.resume != LATEST_IF_ANY for driver in self.drivers)
        if is_named and isinstance(newest.error, CheckpointError | ResultsGone):
            assert self.rows() == list(range(len(self.rows()))), "rows are lost, or are there twice"
        else:
            self._check_line(newest)
            assert newest.error is None, f"the newest program ended with {newest.error!r}"
            assert self.rows() == list(range(ROWS))
        for driver in self.drivers:
            assert isinstance(driver.error, HeadgateError | Lost | None), repr(driver.error)

    def _check_line(self, newest: Driver) -> None:
        """None counts that an older program completed when it had been replaced."""
        by_epoch = {driver.epoch: driver for driver in self.drivers}
        last: CheckpointName | None = CheckpointName(newest.epoch, LAST_ID)
        counting = CheckpointStorage(self.folder / "checkpoints", "job").completed()
        for name in [CheckpointName.of(folder.rpartition("/")[2]) for folder in counting]:
            assert name is not None
            while last is not None and last.owner > name.owner:
                last = by_epoch[last.owner].resumed
            assert last is not None, f"{name} counts, in {counting}"
            assert last.owner == name.owner, f"{name} counts, in {counting}"
            assert name <= last, f"{name} counts, in {counting}"

    def notes(self) -> list[str]:
        """What owners have left in the folder of checkpoints."""
        return sorted(path.name for path in (self.folder / "checkpoints").glob("*/owners/*"))

    def close(self) -> None:
        for driver in self.drivers:
            if not driver.has_ended:
                driver.lose()


class _Stepping(fs.LocalFileSystem):
    """The local filesystem; each operation that a program asks for waits until it may go on."""

    def __init__(self, machine: OwnerMachine) -> None:
        super().__init__()
        self._machine = machine


def _stepped(name: str) -> Any:
    original = getattr(fs.LocalFileSystem, name)

    def method(self: _Stepping, *arguments: Any, **options: Any) -> Any:
        self._machine.before_an_operation()
        return original(self, *arguments, **options)

    return method


for _name in ("move", "delete_file", "delete_dir", "delete_dir_contents", "get_file_info", "create_dir",
              "open_output_stream", "open_input_file"):  # fmt: skip
    setattr(_Stepping, _name, _stepped(_name))


def _rows(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + n), pa.int64())], schema=SCHEMA)


def _position(checkpoints: Checkpoints) -> int:
    latest = checkpoints.latest
    if latest is None:
        return 0
    [state] = latest.states
    return int(read_state(state).to_pybytes())


def _ignore(*_: object) -> None: ...
