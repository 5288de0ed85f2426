"""When a job takes checkpoints, and what becomes of each. No I/O, no clock: times are given, in seconds on one clock.

A checkpoint is triggered at its roots: the sources, and tasks whose producers have all ended. Barriers carry it from
there on; each task takes its part and acknowledges. When all have, the driver is to store the metadata and then to
commit. One is under way at a time. Flink's is CheckpointCoordinator (FLIP-147 for jobs of which parts have ended).

**Metadata that comes late.** A checkpoint is given up when its time is over, also while its metadata is being stored.
If it comes to be stored after all it does not count, but it is complete: the driver goes on from it when the job starts
again before another one is stored. Nothing is lost or doubled: what is pending stays so, and is committed by whoever
goes on from it, or with the next. A checkpoint is complete once its metadata is stored, however long the commit takes.

**Tasks that end.** A task counts as ended when its consumers have worked on all that it sent. In checkpoints that it
took no part in its part is then "finished": it holds nothing, and all that it sent is in the parts of its consumers,
who take theirs only when each of their channels has delivered the barrier or has ended. Since a task ends only after
its producers, those who are finished in a checkpoint have only finished ones above them. So a task may well end before
the barrier of a checkpoint under way reaches it. If all the producers of some task do so, no barrier will ever come to
it: it becomes a root of the checkpoint that is under way. If one of them had passed the barrier on, it will come.

A root may have handled its last row before its barrier comes, its end being on its way to the coordinator. It takes no
part then: what its sinks have pending at their end would be in none.

A task that took part in a checkpoint and ended then is not finished in that one, whatever is heard first of its
acknowledgement and its end: its end says which checkpoint it took part in last.

**What sinks have pending** does not depend on a checkpoint's success: what was flushed for one that failed, or was too
late for it, is committed with the next one that completes. So each task must say of every checkpoint it took part in
that it did, by `acknowledged` or `declined`, in the order of checkpoints. What it has pending at its end comes after
its last part, and is committed with the first checkpoint in which it is finished.

**On request.** A savepoint is a checkpoint that somebody asked for. It begins at once, or when that under way is over;
one that cannot be had is no failure of the job's. Those that are asked for before the job is over are taken before it
is. One that is under way when the job restarts has failed; others wait for the job to run again.

**A stop** is a checkpoint behind which sources read nothing: when it is stored the job is over, though its tasks have
not ended. If it fails they read on. A restart begins it anew.

**The end.** When all tasks have ended one more checkpoint completes, in which all are finished; what is still pending
is committed with it, and the coordinator is over.

What comes from another attempt, for the second time, or from a task that is not of the plan is not minded.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from headgate.errors import CheckpointError
from headgate.plan.execution import ExecutionPlan
from headgate.state.checkpoint_metadata import Finished, Kind, StateFile, TaskState

#: How many checkpoints the history has.
HISTORY: Final = 10
#: Where what a task has pending at its end stands among what it had pending at checkpoints.
_AT_END: Final = math.inf
_NAMED: Final = 3


class TaskId(NamedTuple):
    """One subtask of a vertex."""

    vertex: int
    subtask: int


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """Seconds: from one trigger to the next (infinite: there are none but those that are asked for), between two
    checkpoints at the least, and until one is given up. More failures in a row than `tolerable_failures` fail the
    job."""

    interval: float
    min_pause: float = 0.0
    timeout: float = 600.0
    tolerable_failures: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A checkpoint that somebody asked for: a savepoint, whose folder is to be in `uri`, or with None another one of
    the job's own. With `stops` the job is over with it. With `at_end` it is for when all tasks have ended, and another
    one is taken in its place when the job restarts meanwhile."""

    uri: str | None
    stops: bool = False
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Inject the barrier at these tasks. May come more than once for a checkpoint, with other tasks."""

    checkpoint: int
    tasks: tuple[TaskId, ...]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Store the metadata, and say `stored` or `not_stored`; `pending`, by node key, is what is to be committed."""

    checkpoint: int
    duration: float
    parts: Mapping[TaskId, TaskState]
    pending: Mapping[str, Sequence[Any]]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The checkpoint is complete: commit what is pending, and say `committed`."""

    complete: StoreMetadata


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """The checkpoint failed: what was written for it can be removed, unless its metadata may be there."""

    checkpoint: int
    reason: str
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The job cannot go on without a checkpoint. Nothing more is triggered until `start`."""

    error: CheckpointError


Action: TypeAlias = TriggerCheckpoint | StoreMetadata | Commit | AbortCheckpoint | Fail


class Phase(enum.Enum):
    STOPPED = "the job does not run"
    WAITING = "for the time of the next checkpoint"
    COLLECTING = "a checkpoint is under way"
    STORING = "all tasks have their part in it; its metadata is being written"
    COMMITTING = "its metadata is stored; what sinks have pending is being committed"
    OVER = "the last checkpoint of the job is stored"


@dataclass(slots=True)
class CheckpointRecord:
    """What became of a checkpoint or savepoint. `triggered_at` is in seconds since the epoch (within the coordinator,
    on its clock), `duration` in seconds from then until it was committed, or given up, and `size` in bytes, of all
    tasks. `failure` is None if it completed. `parts` are what tasks told of theirs, by the task's name: see
    `docs/checkpoints.md`."""

    checkpoint: int
    triggered_at: float
    duration: float = 0.0
    size: int = 0
    failure: str | None = None
    kind: Kind = "checkpoint"
    parts: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        began = datetime.fromtimestamp(self.triggered_at, UTC)
        end = "complete" if self.failure is None else f"failed: {self.failure}"
        size = f"{self.duration:.2f} s, {self.size} bytes"
        return f"CheckpointRecord({self.checkpoint}, {self.kind}, {began:%Y-%m-%d %H:%M:%S} UTC, {size}, {end})"


class CheckpointCoordinator:
    """See the module. Each method returns what is to be done, in order."""

    def __init__(self, plan: ExecutionPlan, options: CheckpointOptions, first_id: int = 1) -> None:
        self.state = Phase.STOPPED
        self.history: deque[CheckpointRecord] = deque(maxlen=HISTORY)
        self.completed = 0
        self.failed = 0
        self._options = options
        self._names = {vertex.id: vertex.name for vertex in plan.job.vertices}
        self._consumers = _consumers(plan)
        self._producers = dict.fromkeys(self._consumers, 0)
        for task in self._consumers:
            for consumer in self._consumers_of(task):
                self._producers[consumer] += 1
        self._attempt = -1
        self._last = first_id - 1
        self._next_trigger = math.inf
        self._failures = 0
        #: Asked for and not begun; and that which is under way, or was the last.
        self._requests: deque[Request] = deque()
        self._request: Request | None = None
        self._record = CheckpointRecord(self._last, 0.0)
        self._parts: dict[TaskId, TaskState] = {}
        self._complete: StoreMetadata | None = None
        #: Tasks that the barrier of the checkpoint under way comes to from a producer that has ended since.
        self._reached: set[TaskId] = set()
        #: Of the attempt: how many producers have not ended, the last checkpoint each task told of, the last that each
        #: of those that have ended took part in, and where its readers ended.
        self._live: dict[TaskId, int] = {}
        self._told: dict[TaskId, int] = {}
        self._ended: dict[TaskId, tuple[int, Finished]] = {}
        #: What is not committed yet, by checkpoint (or `_AT_END`) and task.
        self._pending: dict[tuple[float, TaskId], Mapping[str, Any]] = {}

    # --- the driver's side

    @property
    def last(self) -> int:
        """The number of the last checkpoint that was triggered."""
        return self._last

    def start(self, attempt: int, now: float) -> list[Action]:
        """All tasks run, again if the attempt is not the first; then what the last one left is forgotten."""
        actions = self.interrupted("the job restarts", now)
        self._attempt = attempt
        self.state = Phase.WAITING
        self._next_trigger = now + self._options.interval
        self._failures = 0
        self._live = dict(self._producers)
        self._told = dict.fromkeys(self._producers, 0)
        self._ended = {}
        self._pending = {}
        return [*actions, *self._advance(now)]

    def interrupted(self, reason: str, now: float) -> list[Action]:
        """The job has failed, or ended: what is under way comes to nothing. What only was to be committed is complete;
        whoever goes on from it commits it."""
        if self._is_under_way and self._request is not None and (self._request.stops or self._request.at_end):
            self._requests.appendleft(self._request)
            self._request = None
        actions: list[Action] = []
        if self.state is Phase.COMMITTING:
            self._succeed(now)
        elif self._is_under_way:
            actions = [self._give_up(reason, now)]
        self.state = Phase.STOPPED
        return actions

    def request(self, request: Request, now: float) -> list[Action]:
        """Somebody wants a checkpoint. What becomes of it is said with the actions, unless the job ends before."""
        self._requests.append(request)
        return self._advance(now)

    @property
    def _is_under_way(self) -> bool:
        return self.state in (Phase.COLLECTING, Phase.STORING, Phase.COMMITTING)

    @property
    def deadline(self) -> float | None:
        """When `on_time` is to be called, if nothing happens before."""
        if self.state in (Phase.COLLECTING, Phase.STORING):
            return self._record.triggered_at + self._options.timeout
        if self.state is Phase.WAITING and len(self._ended) < len(self._producers) and self._next_trigger < math.inf:
            return self._next_trigger
        return None

    def on_time(self, now: float) -> list[Action]:
        if (deadline := self.deadline) is None or now < deadline:
            return []
        if self.state is Phase.WAITING:
            return self._trigger(now, None)
        limit = f"{self._options.timeout:g} s (checkpoint_timeout)"
        return self._fail(f"it took longer than {limit}; {self._missing()}", now)

    def _missing(self) -> str:
        missing = [task for task in self._producers if task not in self._parts]
        if not missing:
            return "all tasks have acknowledged, but its metadata was not stored by then"
        named = ", ".join(map(self.name, missing[:_NAMED])) + (", ..." if len(missing) > _NAMED else "")
        return f"{len(missing)} of {len(self._producers)} tasks have not acknowledged: {named}"

    def stored(self, checkpoint: int) -> list[Action]:
        """The metadata is there. Nothing follows if the checkpoint was given up before."""
        if self.state is not Phase.STORING or checkpoint != self._last:
            return []
        assert self._complete is not None
        self.state = Phase.COMMITTING
        return [Commit(self._complete)]

    def committed(self, checkpoint: int, now: float) -> list[Action]:
        """What was pending is committed."""
        if self.state is not Phase.COMMITTING or checkpoint != self._last:
            return []
        for key in self._covered():
            del self._pending[key]
        self._failures = 0
        self._succeed(now)
        is_last = all_finished(self._parts) and not any(request.uri for request in self._requests)
        if is_last or (self._request is not None and self._request.stops):
            self.state = Phase.OVER
            return []
        return self._advance(now)

    def not_stored(self, checkpoint: int, reason: str, now: float) -> list[Action]:
        """The metadata could not be written."""
        if self.state is not Phase.STORING or checkpoint != self._last:
            return []
        return self._fail(reason, now)

    def name(self, task: TaskId) -> str:
        """What people call it."""
        return f"{self._names[task.vertex]}[{task.subtask}]"

    # --- the tasks' side

    def acknowledged(self, task: TaskId, attempt: int, checkpoint: int, state: StateFile,
                     pending: Mapping[str, Any], part: Any, now: float) -> list[Action]:  # fmt: skip
        """A task took its part and has written it. `pending` is what its sinks flushed, by node key."""
        if not self._is_news(task, attempt, checkpoint):
            return []
        self._note(task, checkpoint, pending)
        if self.state is Phase.COLLECTING and checkpoint == self._last:
            self._parts[task] = state
            self._record.size += state.size + state.in_flight_bytes
            self._record.parts[self.name(task)] = part
        return self._advance(now)

    def declined(self, task: TaskId, attempt: int, checkpoint: int, reason: str,
                 pending: Mapping[str, Any], now: float) -> list[Action]:  # fmt: skip
        """A task could not take its part, or took it and could not write it."""
        if not self._is_news(task, attempt, checkpoint):
            return []
        self._note(task, checkpoint, pending)
        if self.state is Phase.COLLECTING and checkpoint == self._last:
            return self._fail(f"{self.name(task)}: {reason}", now)
        return self._advance(now)

    def finished(self, task: TaskId, attempt: int, took_part: int, positions: Mapping[str, Any],
                 pending: Mapping[str, Any], now: float) -> list[Action]:  # fmt: skip
        """A task has ended, and all that it sent has been worked on. `took_part` is the last checkpoint it took its
        part in, 0 for none; `positions` and `pending` are those at its end, by node key."""
        if attempt != self._attempt or task not in self._producers or task in self._ended:
            return []
        self._ended[task] = took_part, Finished(positions)
        if pending:
            self._pending[_AT_END, task] = pending
        return [*self._roots_below(task, took_part), *self._advance(now)]

    def _is_news(self, task: TaskId, attempt: int, checkpoint: int) -> bool:
        if attempt != self._attempt or task not in self._producers:
            return False
        most = self._ended[task][0] if task in self._ended else self._last
        return self._told[task] < checkpoint <= most

    def _note(self, task: TaskId, checkpoint: int, pending: Mapping[str, Any]) -> None:
        self._told[task] = checkpoint
        if pending:
            self._pending[checkpoint, task] = pending

    def _roots_below(self, task: TaskId, took_part: int) -> list[Action]:
        """Of the checkpoint under way, as this task has ended."""
        roots = []
        for consumer in self._consumers_of(task):
            self._live[consumer] -= 1
            if took_part == self._last:
                self._reached.add(consumer)
            elif not self._live[consumer] and consumer not in self._reached and consumer not in self._ended:
                roots.append(consumer)
        collecting = self.state is Phase.COLLECTING
        return [TriggerCheckpoint(self._last, tuple(roots), self._request)] if collecting and roots else []

    # --- one checkpoint

    def _trigger(self, now: float, request: Request | None) -> list[Action]:
        self._last += 1
        self.state = Phase.COLLECTING
        self._request = request
        is_savepoint = request is not None and request.uri is not None
        self._record = CheckpointRecord(self._last, now, kind="savepoint" if is_savepoint else "checkpoint")
        self._parts, self._reached = {}, set()
        roots = tuple(task for task, live in self._live.items() if not live and task not in self._ended)
        return (
            [TriggerCheckpoint(self._last, roots, self._request), *self._advance(now)] if roots else self._advance(now)
        )

    def _advance(self, now: float) -> list[Action]:
        """What follows when something was heard of a task."""
        if self.state is Phase.WAITING:
            have_ended = all(map(self._is_heard, self._producers))
            request = next((each for each in self._requests if have_ended or not each.at_end), None)
            if request is not None:
                self._requests.remove(request)
            return self._trigger(now, request) if have_ended or request is not None else []
        if self.state is not Phase.COLLECTING:
            return []
        for task, (_, finished) in self._ended.items():
            if task not in self._parts and self._is_heard(task):
                self._parts[task] = finished
        if len(self._parts) < len(self._producers):
            return []
        self.state = Phase.STORING
        pending: dict[str, list[Any]] = {}
        for key in self._covered():
            for node, what in self._pending[key].items():
                pending.setdefault(node, []).append(what)
        duration = now - self._record.triggered_at
        self._complete = StoreMetadata(self._last, duration, dict(self._parts), pending, self._request)
        return [self._complete]

    def _is_heard(self, task: TaskId) -> bool:
        """It has ended, and told of all checkpoints that it took part in."""
        return task in self._ended and self._told[task] >= self._ended[task][0]

    def _covered(self) -> list[tuple[float, TaskId]]:
        """What is pending and came before the cut of the checkpoint under way, in order."""
        keys = sorted(self._pending)
        return [key for key in keys if key[0] < _AT_END or isinstance(self._parts.get(key[1]), Finished)]

    def _fail(self, reason: str, now: float) -> list[Action]:
        """The checkpoint under way failed."""
        checkpoint = self._last
        abort = self._give_up(reason, now)
        self._failures += abort.request is None
        if self._failures <= self._options.tolerable_failures:
            return [abort, *self._advance(now)]
        self.state = Phase.STOPPED
        often = f"{self._failures} checkpoints in a row failed, the last was" if self._failures > 1 else "checkpoint"
        tolerated = f"tolerable_failed_checkpoints is {self._options.tolerable_failures}"
        return [abort, Fail(CheckpointError(f"{often} {checkpoint}: {reason} ({tolerated})"))]

    def _succeed(self, now: float) -> None:
        self.completed += 1
        self._close(None, now)

    def _give_up(self, reason: str, now: float) -> AbortCheckpoint:
        self.failed += 1
        self._close(reason, now)
        return AbortCheckpoint(self._last, reason, self._request)

    def _close(self, failure: str | None, now: float) -> None:
        self.state = Phase.WAITING
        self._record.failure = failure
        self._record.duration = now - self._record.triggered_at
        self.history.append(self._record)
        due = self._record.triggered_at + self._options.interval
        self._next_trigger = max(due, now + self._options.min_pause)

    def _consumers_of(self, task: TaskId) -> list[TaskId]:
        """One for each channel."""
        return [TaskId(vertex, subtask) for vertex, subtasks in self._consumers[task] for subtask in subtasks]

    def validate(self) -> None:
        """Raises AssertionError when the coordinator broke its own rules."""
        is_whole = self.state in (Phase.STORING, Phase.COMMITTING)
        assert not self._is_under_way or set(self._parts) <= set(self._producers), "a part of an unknown task"
        assert not is_whole or len(self._parts) == len(self._producers), "stored without a part"
        assert self.state is not Phase.OVER or not self._covered(), "over, and something was not committed"
        assert self._failures <= self._options.tolerable_failures or self.state is Phase.STOPPED, "too many failures"
        assert all(count >= 0 for count in self._live.values()), "a producer ended twice"
        assert all(told <= self._last for told in self._told.values()), "told of a checkpoint that is to come"


def all_finished(parts: Mapping[TaskId, TaskState]) -> bool:
    """Whether a checkpoint of these parts is the last of its job."""
    return all(isinstance(part, Finished) for part in parts.values())


def _consumers(plan: ExecutionPlan) -> dict[TaskId, list[tuple[int, range]]]:
    """Of every task: whom it has channels to, by vertex."""
    tasks = [TaskId(vertex.id, subtask) for vertex in plan.job.vertices for subtask in range(vertex.parallelism)]
    found: dict[TaskId, list[tuple[int, range]]] = {task: [] for task in tasks}
    for edge in plan.job.edges:
        for subtask in range(plan.job.vertex(edge.source).parallelism):
            found[TaskId(edge.source, subtask)].append((edge.target, plan.consumers(edge, subtask)))
    return found
