"""A program that does what a driver does with its storage and its sinks, by the driver's own objects.

It runs in a thread that goes on only when it is told: one program moves at a time, so that a run is the same each time.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

import headgate as hg
from headgate.config import Config
from headgate.connectors.connector import Sink, WriterContext
from headgate.errors import HeadgateError, JobCancelled, Superseded
from headgate.ownership import Program
from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import Node
from headgate.plan.job_graph import build_job_graph
from headgate.plan.node_keys import node_key
from headgate.runtime.checkpointing.checkpoint_events import Request, StoreMetadata, TaskId
from headgate.runtime.checkpointing.checkpoints import Checkpoints
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors
from headgate.state.checkpoint_files import read_state
from headgate.state.checkpoint_line import CheckpointName
from headgate.state.checkpoint_storage import discard, write_part

if TYPE_CHECKING:
    from tests.runtime.owner_machine import OwnerMachine

#: Rows of the job, and between two checkpoints.
ROWS, STEP = 6, 2
SCHEMA = pa.schema({"n": pa.int64()})
#: What happens at a checkpoint: there are no rows for it, it is a savepoint, its attempt fails, or the job is cancelled
#: before it is stored or, late, before it is committed.
Event = Literal["is idle", "is saved", "fails", "is cancelled", "is cancelled late"]


class Lost(BaseException):
    """The program is gone."""


class Driver:
    """A program that runs the job, afresh or from a checkpoint. It stands before an operation, or has ended."""

    def __init__(self, machine: OwnerMachine, number: int, resume: str | None) -> None:
        self._machine = machine
        self._number = number
        self.run = f"0-{number:08x}"
        self.resume = resume
        self._goes_on = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._is_lost = False
        self._checkpoints: Checkpoints | None = None
        #: When it owns the job: the checkpoint that it resumed from, and for a fresh start the newest one before.
        self.resumed: CheckpointName | None = None
        self.before: CheckpointName | None = None
        self.has_ended = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_until_lost, name=f"driver-{number}", daemon=True)

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

    def _run_until_lost(self) -> None:
        try:
            self._drive()
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self._stands.release()

    # --- what a driver does

    def _drive(self) -> None:
        sinks = self._sinks()
        env = hg.StreamEnvironment(parallelism=1)
        rows = env.from_source(hg.sources.generate(_rows, rows=ROWS))
        plan = ExecutionPlan(build_job_graph(env._jobs.graph.graph([rows.sink_to(sink)._node_id for sink in sinks])), 1)
        ends = DriverConnectors(plan.job, self.run)
        self._checkpoints = checkpoints = Checkpoints(
            "job",
            self.run,
            plan=plan,
            config=Config(checkpoint_dir=self._machine.folder / "checkpoints"),
            ends=ends,
            send=_ignore,
            stopped=_ignore,
            finished=_ignore,
            done=_ignore,
            resume=self.resume,
        )
        checkpoints.prepare()
        try:
            checkpoints.take_over(Program.this(self.run))
        except HeadgateError:
            checkpoints.abort()
            raise
        self._note_start(checkpoints)
        try:
            _Run(self._machine, self._number, plan, checkpoints, ends).resume_and_end()
        except HeadgateError as error:
            if isinstance(error, Superseded):
                ends.superseded()
            else:
                checkpoints.abort()
            raise

    def _sinks(self) -> list[Sink]:
        sinks: list[Sink] = [hg.sinks.csv(self._machine.folder / "out", mode=self._machine.mode)]
        return sinks if self._machine.calls is None else [*sinks, self._machine.calls.sink()]

    def _note_start(self, checkpoints: Checkpoints) -> None:
        storage: Any = checkpoints._storage
        self.before = storage._newest_at_claim
        if (latest := checkpoints.latest) is not None:
            self.resumed = self._machine.name_of(latest.run, latest.id)


class _AttemptFailed(Exception):
    """A task has failed."""


class _Run:
    """What the program does with the job that it owns."""

    def __init__(self, machine: OwnerMachine, driver: int, plan: ExecutionPlan, checkpoints: Checkpoints,
                 ends: DriverConnectors) -> None:  # fmt: skip
        self._machine = machine
        self._driver = driver
        self._plan = plan
        self._checkpoints = checkpoints
        self._stored = checkpoints._stored
        self._ends = ends
        self._storage: Any = checkpoints._storage
        self._sinks = [node for vertex in plan.job.vertices for node in vertex.nodes if node.sink is not None]
        #: The number of the next checkpoint.
        self._next = checkpoints.next_id

    def resume_and_end(self) -> None:
        attempt, is_over = 0, False
        while not is_over:
            try:
                self._read_all(attempt)
                is_over = True
            except _AttemptFailed:
                attempt += 1
                self._stored.roll_back(*self._checkpoints.resumption.results, self._next - 1)
        self._ends.finish()

    def _read_all(self, attempt: int) -> None:
        """One attempt: a checkpoint follows each batch."""
        position = _position(self._checkpoints)
        writers = {node_key(node): _sink_of(node).writer(_context(attempt)) for node in self._sinks}
        while position < ROWS:
            rows, pending = 0 if self._happens("is idle", self._next) else STEP, {}
            for key, writer in writers.items():
                if rows:
                    writer.write(_rows(position, rows))
                pending[key] = [writer.flush(self._next)]
            position += rows
            self._take(self._next, attempt, position, pending)

    def _take(self, number: int, attempt: int, position: int, pending: dict[str, list[Any]]) -> None:
        """A checkpoint, or a savepoint."""
        request = Request(self._machine.savepoints) if self._happens("is saved", number) else None
        savepoint = self._stored.savepoint(number, request)
        folder = savepoint or self._storage.folder_of(number)
        state = [write_part(folder, attempt, "task", [str(position).encode()]) for _ in self._plan.job.vertices]
        parts = {TaskId(vertex.id, 0): each for vertex, each in zip(self._plan.job.vertices, state, strict=True)}
        complete = StoreMetadata(number, 0.0, parts, pending, request)
        self._next += 1
        if self._happens("fails", number):
            if savepoint is not None:
                discard(savepoint)
            raise _AttemptFailed
        if self._happens("is cancelled", number):
            raise JobCancelled("before its checkpoint was stored")
        metadata = self._checkpoints._metadata(complete, "checkpoint" if savepoint is None else "savepoint")
        self._stored.store(metadata, savepoint)
        self._checkpoints.resumption.use((self._storage.folder_of(number), metadata))
        if self._happens("is cancelled late", number):
            raise JobCancelled("before its checkpoint was committed")
        self._stored.commit(complete.pending, number)
        self._storage.retain(self._machine.keep)

    def _happens(self, what: Event, checkpoint: int) -> bool:
        return self._machine.happens(what, self._driver, checkpoint)


def _sink_of(node: Node) -> Sink:
    assert node.sink is not None
    return node.sink


def _context(attempt: int) -> WriterContext:
    return WriterContext(
        job="job",
        operator="sink",
        subtask=0,
        parallelism=1,
        schema=SCHEMA,
        deliver=print,
        attempt=attempt,
        clock=time.time,
        sleep=time.sleep,
        wait_until=_ignore,
    )


def _rows(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + n), pa.int64())], schema=SCHEMA)


def _position(checkpoints: Checkpoints) -> int:
    latest = checkpoints.latest
    return 0 if latest is None else int(read_state(next(iter(latest.states))).to_pybytes())


def _ignore(*_: object) -> None: ...
