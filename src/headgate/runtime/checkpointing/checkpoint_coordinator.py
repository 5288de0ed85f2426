"""Decides when a job takes checkpoints, and whether each checkpoint succeeds.

The coordinator does no I/O and reads no clock. Callers pass times, in seconds of one clock. Flink's class is
CheckpointCoordinator (FLIP-147 describes checkpoints after some tasks have ended).

The coordinator triggers a checkpoint at its roots: the sources, and the tasks whose producers have all ended. Barriers
carry the checkpoint to the other tasks. Each task takes its part and acknowledges. When all tasks have acknowledged,
the driver stores the metadata. Then the sinks commit. Only one checkpoint is under way at a time.

**Metadata that comes late.** The coordinator gives up a checkpoint when the timeout has passed, even while the metadata
is being stored. If the metadata is stored after all, the checkpoint is complete, although it does not count as a
success. If the job restarts before another checkpoint is stored, the driver resumes from this one. No row is lost or
doubled, because pending results stay pending. Either this program commits them with its next checkpoint, or the program
that resumes from this checkpoint commits them. A checkpoint is complete once its metadata is stored, however long the
commit takes.

**Tasks that end.** A task counts as ended when its consumers have processed all that the task sent. If an ended task
took no part in a checkpoint, its part is "finished". Such a part has no state. All that the task sent is in the parts
of its consumers: a consumer takes its part only when each of its channels has delivered the barrier or has ended. A
task ends only after its producers. So if a task is finished in a checkpoint, its producers are finished in it, too.

A task may end before the barrier of the current checkpoint reaches it. If all producers of a consumer do so, no barrier
reaches the consumer: the coordinator makes it a root of the current checkpoint. If one producer has passed the barrier
on, the barrier reaches the consumer.

A root may process its last row before its barrier comes, while the report of its end is on the way to the coordinator.
The root then takes no part in the checkpoint. If it took a part, this part would not contain the results that its sinks
have pending at its end.

A task that took part in a checkpoint and then ended is not finished in that checkpoint. The order in which the two
reports come does not matter: the report of the end names the last checkpoint that the task took part in.

**Pending results of sinks** do not depend on a checkpoint's success. A sink may flush results for a checkpoint that
fails, or too late for a checkpoint. These results are committed with the next checkpoint that completes. So each task
must report every checkpoint that it took part in, by `Acknowledged` or `Declined`, in the order of checkpoints. The
results that are pending at a task's end come after the task's last part. They are committed with the first checkpoint
in which the task is finished.

**Checkpoints on request.** A savepoint is a checkpoint on request. It starts at once, or when the current checkpoint is
over. A savepoint that fails does not fail the job. A savepoint that is requested before the job's end is taken before
the end. A savepoint under way fails when the job restarts. Waiting requests stay queued until the job runs again.

**A stop** is a checkpoint after which sources read nothing. Once sinks have committed it, the job is over, although its
tasks have not ended. If the checkpoint fails, the sources continue to read. After a restart the stop is tried again.

**The end.** When all tasks have ended, one more checkpoint completes, in which all tasks are finished. All results that
are still pending are committed with it. Then the coordinator stops. This last checkpoint begins at once. If it fails,
the next try waits as long as a checkpoint of a running job.

**The table.** `_RULES` has the steps for each event in each phase. The coordinator first drops events of another
attempt, repeated events and events of unknown tasks. An empty entry means that the event comes too late.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headgate.errors import CheckpointError
from headgate.plan.execution import ExecutionPlan
from headgate.runtime.checkpointing.checkpoint_events import (
    AbortCheckpoint,
    Acknowledged,
    Action,
    Commit,
    Committed,
    Declined,
    Event,
    Fail,
    FromTask,
    Interrupted,
    NotStored,
    Request,
    Requested,
    Started,
    Stored,
    StoreMetadata,
    TaskEnded,
    TaskId,
    TimePassed,
    TriggerCheckpoint,
)
from headgate.runtime.checkpointing.checkpoint_record import HISTORY, CheckpointRecord
from headgate.state.checkpoint_metadata import Finished, TaskState

#: Replaces the checkpoint's number for results that are pending at a task's end. It sorts after all numbers.
_AT_END: Final = math.inf
_NAMED: Final = 3
#: How many events the trace keeps. An error about an impossible event shows the trace.
_TRACED: Final = 30


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The options of a coordinator. Times are in seconds.

    `interval` is the time from one trigger to the next; if it is infinite, only requested checkpoints are taken.
    `min_pause` is the least time from a checkpoint's end to the next trigger. `timeout` is the most time that a
    checkpoint may take. More failures in a row than `tolerable_failures` fail the job.
    """

    interval: float
    min_pause: float = 0.0
    timeout: float = 600.0
    tolerable_failures: int = 0


class Phase(enum.Enum):
    STOPPED = "the job does not run"
    WAITING = "the coordinator waits for the time of the next checkpoint"
    COLLECTING = "a checkpoint is under way"
    STORING = "all tasks have acknowledged the checkpoint; its metadata is being written"
    COMMITTING = "the checkpoint's metadata is stored; sinks commit their pending results"
    OVER = "the last checkpoint of the job is stored"


class CheckpointCoordinator:
    """The coordinator of one job, for all its attempts. `handle` takes an event and returns the actions to do."""

    def __init__(self, plan: ExecutionPlan, options: CheckpointOptions, first_id: int = 1) -> None:
        self.phase = Phase.STOPPED
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
        self._now = 0.0
        self._actions: list[Action] = []
        self._trace: deque[str] = deque(maxlen=_TRACED)
        self._attempt = -1
        self._last = first_id - 1
        self._next_trigger = math.inf
        self._failures = 0
        #: Whether the job's last checkpoint has failed in this attempt. The next try then waits for the interval.
        self.retries_end = False
        #: Requests that wait.
        self._requests: deque[Request] = deque()
        #: The request of the current or last checkpoint, if it was requested.
        self._request: Request | None = None
        self._record = CheckpointRecord(checkpoint=self._last, triggered_at=0.0)
        self._parts: dict[TaskId, TaskState] = {}
        self._complete: StoreMetadata | None = None
        #: Tasks whose producer passed the current checkpoint's barrier on and then ended: the barrier will reach them.
        self._reached: set[TaskId] = set()
        #: For each task of the attempt, how many producers have not ended.
        self._live: dict[TaskId, int] = {}
        #: For each task of the attempt, the last checkpoint that it reported.
        self._last_reported: dict[TaskId, int] = {}
        #: For each ended task, the last checkpoint that it took part in, and the final positions of its readers.
        self._ended: dict[TaskId, tuple[int, Finished]] = {}
        #: The results of sinks that are not committed yet, by checkpoint (or `_AT_END`) and task.
        self._pending: dict[tuple[float, TaskId], Mapping[str, Any]] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take an event, and return the actions to carry out, in order.

        Raises RuntimeError for an event that is impossible in this phase. The error lists the last events.
        """
        steps = _RULES[type(event)].get(self.phase)
        if steps is None:
            phase = f"phase {self.phase.name} ({self.phase.value})"
            raise RuntimeError(f"{_describe(event)} is impossible in {phase}; the events before it:\n{self.trace}")
        self._trace.append(f"{now:.3f} {self.phase.name}: {_describe(event)}")
        self._now = now
        if self._counts(event):
            for step in steps:
                step(self, event)
        actions, self._actions = self._actions, []
        return actions

    @property
    def last(self) -> int:
        """The number of the last checkpoint that was triggered."""
        return self._last

    @property
    def deadline(self) -> float | None:
        """The time when the caller must send `TimePassed`; None means never. Other events may change this time."""
        if self.phase in (Phase.COLLECTING, Phase.STORING):
            return self._record.triggered_at + self._options.timeout
        is_timed = self.retries_end or len(self._ended) < len(self._producers)
        if self.phase is Phase.WAITING and is_timed and self._next_trigger < math.inf:
            return self._next_trigger
        return None

    @property
    def trace(self) -> str:
        """The last events, one to a line: time, phase, event."""
        return "\n".join(self._trace)

    def name(self, task: TaskId) -> str:
        """Return the task's name for messages."""
        return f"{self._names[task.vertex]}[{task.subtask}]"

    # --- whether an event counts

    def _counts(self, event: Event) -> bool:
        """Return whether an event counts: it is not too early, too late, repeated, or of another attempt."""
        match event:
            case TimePassed():
                return (deadline := self.deadline) is not None and self._now >= deadline
            case Stored() | NotStored() | Committed():
                return event.checkpoint == self._last
            case Acknowledged() | Declined():
                return self._is_of_attempt(event) and self._is_first_report(event)
            case TaskEnded():
                return self._is_of_attempt(event) and event.task not in self._ended
            case _:
                return True

    def _is_of_attempt(self, event: FromTask) -> bool:
        return event.attempt == self._attempt and event.task in self._producers

    def _is_first_report(self, event: Acknowledged | Declined) -> bool:
        most = self._ended[event.task][0] if event.task in self._ended else self._last
        return self._last_reported[event.task] < event.checkpoint <= most

    # --- steps: the job

    def _start(self, event: Started) -> None:
        """Reset the state for a new attempt, and wait for its first checkpoint."""
        self._attempt = event.attempt
        self.phase = Phase.WAITING
        self._next_trigger = self._now + self._options.interval
        self._failures = 0
        self._live = dict(self._producers)
        self._last_reported = dict.fromkeys(self._producers, 0)
        self._ended = {}
        self._pending = {}
        self.retries_end = False

    def _stop(self, event: Event) -> None:
        self.phase = Phase.STOPPED

    def _ask_again(self, event: Interrupted) -> None:
        """Queue the request of a stop, or of a checkpoint at the end, again. The job takes it when it runs again."""
        if self._request is not None and (self._request.stops or self._request.at_end):
            self._requests.appendleft(self._request)
            self._request = None

    def _interrupt(self, event: Interrupted) -> None:
        self._give_up(event.reason)

    def _queue_request(self, event: Requested) -> None:
        self._requests.append(event.request)

    # --- steps: tasks

    def _note(self, event: Acknowledged | Declined) -> None:
        self._last_reported[event.task] = event.checkpoint
        if event.pending:
            self._pending[event.checkpoint, event.task] = event.pending

    def _add_part(self, event: Acknowledged) -> None:
        if event.checkpoint == self._last:
            self._parts[event.task] = event.state
            self._record.size += event.state.size + event.state.in_flight_bytes
            self._record.parts[self.name(event.task)] = event.part

    def _lack_part(self, event: Declined) -> None:
        if event.checkpoint == self._last:
            self._fail(f"{self.name(event.task)}: {event.reason}")

    def _end_task(self, event: TaskEnded) -> None:
        self._ended[event.task] = event.took_part, Finished(event.positions)
        if event.pending:
            self._pending[_AT_END, event.task] = event.pending
        for consumer in self._consumers_of(event.task):
            self._live[consumer] -= 1

    def _trigger_below(self, event: TaskEnded) -> None:
        """Make the consumers of an ended task roots of the current checkpoint, unless its barrier comes to them."""
        consumers = self._consumers_of(event.task)
        if event.took_part == self._last:
            self._reached.update(consumers)
            return
        others = self._reached.union(self._ended)
        if roots := [each for each in dict.fromkeys(consumers) if not self._live[each] and each not in others]:
            self._actions.append(TriggerCheckpoint(self._last, tuple(roots), self._request))

    # --- steps: one checkpoint

    def _begin_due(self, event: TimePassed) -> None:
        self._trigger(None)

    def _begin_wanted(self, event: Event | None = None) -> None:
        """Trigger the next requested checkpoint. When all tasks have ended, trigger the job's last checkpoint, unless
        it failed before."""
        have_ended = all(map(self._is_reported, self._producers))
        request = next((each for each in self._requests if have_ended or not each.at_end), None)
        if request is not None:
            self._requests.remove(request)
        if request is not None or (have_ended and not self.retries_end):
            self._trigger(request)

    def _complete_if_whole(self, event: Event | None = None) -> None:
        """Let the driver store the metadata if the parts of all tasks are there."""
        if self.phase is not Phase.COLLECTING:  # the checkpoint failed: a part was declined
            return
        for task, (_, finished) in self._ended.items():
            if task not in self._parts and self._is_reported(task):
                self._parts[task] = finished
        if len(self._parts) < len(self._producers):
            return
        self.phase = Phase.STORING
        pending: dict[str, list[Any]] = {}
        for key in self._covered():
            for node, what in self._pending[key].items():
                pending.setdefault(node, []).append(what)
        duration = self._now - self._record.triggered_at
        self._complete = StoreMetadata(self._last, duration, dict(self._parts), pending, self._request)
        self._actions.append(self._complete)

    def _commit(self, event: Stored) -> None:
        assert self._complete is not None
        self.phase = Phase.COMMITTING
        self._actions.append(Commit(self._complete))

    def _settle(self, event: Committed) -> None:
        """Count the checkpoint as a success. After the last one the job is over."""
        for key in self._covered():
            del self._pending[key]
        self._failures = 0
        self._succeed()
        is_last = all_finished(self._parts) and not any(request.uri for request in self._requests)
        if is_last or (self._request is not None and self._request.stops):
            self.phase = Phase.OVER
        else:
            self._begin_wanted()

    def _not_stored(self, event: NotStored) -> None:
        self._fail(event.reason)

    def _take_too_long(self, event: TimePassed) -> None:
        limit = f"{self._options.timeout:g} s (checkpoint_timeout)"
        self._fail(f"it took longer than {limit}; {self._missing()}")

    def _succeed(self, event: Event | None = None) -> None:
        """Count the checkpoint as complete, because its metadata is stored.

        If the commit was interrupted, the program that resumes from the checkpoint commits.
        """
        self.completed += 1
        self._close(None)

    # --- parts of steps

    def _trigger(self, request: Request | None) -> None:
        self._last += 1
        self.phase = Phase.COLLECTING
        self._request = request
        is_savepoint = request is not None and request.uri is not None
        self._record = CheckpointRecord(
            checkpoint=self._last, triggered_at=self._now, kind="savepoint" if is_savepoint else "checkpoint"
        )
        self._parts, self._reached = {}, set()
        if roots := tuple(task for task, live in self._live.items() if not live and task not in self._ended):
            self._actions.append(TriggerCheckpoint(self._last, roots, self._request))
        self._complete_if_whole()

    def _fail(self, reason: str) -> None:
        """Fail the current checkpoint, and the job if there were too many failures in a row."""
        is_asked_for = self._request is not None
        is_last = self.phase is Phase.STORING and all_finished(self._parts)
        self.retries_end |= is_last and not is_asked_for and self._options.interval < math.inf
        self._give_up(reason)
        self._failures += not is_asked_for
        if self._failures <= self._options.tolerable_failures:
            self._begin_wanted()
            return
        checkpoint = self._last
        self.phase = Phase.STOPPED
        often = f"{self._failures} checkpoints in a row failed, the last was" if self._failures > 1 else "checkpoint"
        tolerated = f"tolerable_failed_checkpoints is {self._options.tolerable_failures}"
        self._actions.append(Fail(CheckpointError(f"{often} {checkpoint}: {reason} ({tolerated})")))

    def _give_up(self, reason: str) -> None:
        self.failed += 1
        self._close(reason)
        self._actions.append(AbortCheckpoint(self._last, reason, self._request))

    def _close(self, failure: str | None) -> None:
        self.phase = Phase.WAITING
        self._record.failure = failure
        self._record.duration = self._now - self._record.triggered_at
        self.history.append(self._record)
        due = self._record.triggered_at + self._options.interval
        self._next_trigger = max(due, self._now + self._options.min_pause)

    def _missing(self) -> str:
        missing = [task for task in self._producers if task not in self._parts]
        if not missing:
            return "all tasks have acknowledged, but the metadata was not stored in time"
        named = ", ".join(map(self.name, missing[:_NAMED])) + (", ..." if len(missing) > _NAMED else "")
        return f"{len(missing)} of {len(self._producers)} tasks have not acknowledged: {named}"

    def _is_reported(self, task: TaskId) -> bool:
        """Return whether the task has ended, and has reported all checkpoints that it took part in."""
        return task in self._ended and self._last_reported[task] >= self._ended[task][0]

    def _covered(self) -> list[tuple[float, TaskId]]:
        """Return the keys (checkpoint, task) of the pending results that sinks commit with the current checkpoint, in
        order."""
        keys = sorted(self._pending)
        return [key for key in keys if key[0] < _AT_END or isinstance(self._parts.get(key[1]), Finished)]

    def _consumers_of(self, task: TaskId) -> list[TaskId]:
        """Return the consumers of a task, one for each channel."""
        return [TaskId(vertex, subtask) for vertex, subtasks in self._consumers[task] for subtask in subtasks]

    def validate(self) -> None:
        """Raise AssertionError if the coordinator broke its own rules."""
        is_whole = self.phase in (Phase.STORING, Phase.COMMITTING)
        is_under_way = is_whole or self.phase is Phase.COLLECTING
        assert not self._actions, f"actions that were not returned: {self._actions}"
        assert not is_under_way or set(self._parts) <= set(self._producers), (
            f"parts of unknown tasks: {list(self._parts)}"
        )
        assert not is_whole or len(self._parts) == len(self._producers), (
            f"checkpoint {self._last} is stored: {self._missing()}"
        )
        assert self.phase is not Phase.OVER or not self._covered(), f"not committed: {self._covered()}"
        assert self._failures <= self._options.tolerable_failures or self.phase is Phase.STOPPED, (
            f"{self._failures} failures"
        )
        assert all(count >= 0 for count in self._live.values()), f"a producer ended twice: {self._live}"
        assert all(reported <= self._last for reported in self._last_reported.values()), f"a report after {self._last}"


Step: TypeAlias = Callable[[CheckpointCoordinator, Any], None]


def _rules() -> dict[type, dict[Phase, tuple[Step, ...]]]:
    """Return the steps for each event in each phase.

    A row of the table has one entry for each phase, in the order of `Phase`. None means that the event is impossible
    in the phase. An empty tuple means that the event comes too late, or has no effect in the phase.
    """
    of = CheckpointCoordinator
    note, end = (of._note,), (of._end_task,)
    keep, stop = (of._queue_request,), (of._stop,)
    give_up = (of._ask_again, of._interrupt, of._stop)
    reported = (*note, of._begin_wanted)
    ended = (*end, of._begin_wanted)
    wanted = (*keep, of._begin_wanted)
    too_long = (of._take_too_long,)
    part = (*note, of._add_part, of._complete_if_whole)
    lack = (*note, of._lack_part, of._complete_if_whole)
    below = (*end, of._trigger_below, of._complete_if_whole)
    table: dict[type, tuple[tuple[Step, ...] | None, ...]] = {
        # event        stopped   waiting           collecting  storing            committing              over
        Started:      ((of._start, of._begin_wanted), None, None, None, None, None),
        Interrupted:  ((),       stop,             give_up,    give_up, (of._ask_again, of._succeed, of._stop), stop),
        Requested:    (keep,     wanted,           keep,       keep,              keep,                   ()),
        TimePassed:   ((),       (of._begin_due,), too_long,   too_long,          (),                     ()),
        Stored:       ((),       (),               (),         (of._commit,),     (),                     ()),
        NotStored:    ((),       (),               (),         (of._not_stored,), (),                     ()),
        Committed:    ((),       (),               (),         (),                (of._settle,),          ()),
        Acknowledged: (note,     reported,         part,       note,              note,                   note),
        Declined:     (note,     reported,         lack,       note,              note,                   note),
        TaskEnded:    (end,      ended,            below,      end,               end,                    end),
    }  # fmt: skip
    return {
        event: {phase: steps for phase, steps in zip(Phase, row, strict=True) if steps is not None}
        for event, row in table.items()
    }


_RULES: Final = _rules()


def _describe(event: Event) -> str:
    """Describe an event in one line, without states and rows."""
    fields = {name: getattr(event, name, None) for name in ("task", "attempt", "checkpoint", "took_part", "reason")}
    text = ", ".join(f"{name}={value!r}" for name, value in fields.items() if value is not None)
    return f"{type(event).__name__}({text})"


def all_finished(parts: Mapping[TaskId, TaskState]) -> bool:
    """Return whether a checkpoint with these parts is the last of its job."""
    return all(isinstance(part, Finished) for part in parts.values())


def _consumers(plan: ExecutionPlan) -> dict[TaskId, list[tuple[int, range]]]:
    """Return, for every task, the consumers that it has channels to, by vertex."""
    tasks = [TaskId(vertex.id, subtask) for vertex in plan.job.vertices for subtask in range(vertex.parallelism)]
    consumers: dict[TaskId, list[tuple[int, range]]] = {task: [] for task in tasks}
    for edge in plan.job.edges:
        for subtask in range(plan.job.vertex(edge.source).parallelism):
            consumers[TaskId(edge.source, subtask)].append((edge.target, plan.consumers(edge, subtask)))
    return consumers
