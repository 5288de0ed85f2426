"""A rule machine over the checkpoint coordinator, with a small job as it is: readers, workers that hold a row, writers,
to which readers may send rows, too; channels with aligned barriers and ends; messages that are late, doubled or of an
old attempt.

Rows are numbered. Each complete checkpoint must be a cut: what is committed and what its workers hold is what its
readers had read, no row twice. Savepoints, and a stop, are asked for at any time; each is taken at once,
or next, or at the end. What is being stored when its checkpoint is given up, or the job fails, may come to be there all
the same: then the job resumes from that.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.runtime.checkpointing.checkpoint_coordinator import (
    CheckpointCoordinator,
    CheckpointOptions,
    Phase,
    all_finished,
)
from headgate.runtime.checkpointing.checkpoint_events import (
    AbortCheckpoint,
    Acknowledged,
    Action,
    Commit,
    Committed,
    Declined,
    Event,
    Fail,
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
from headgate.state.checkpoint_metadata import Finished, StateFile
from tests.runtime.checkpointed_plan import three_vertices

READ, WORK, WRITE = range(3)
END = "end"
Row = tuple[int, int]
Step = Callable[[], None]


@dataclass(kw_only=True)
class SimTask:
    """A task: `channels` by producer hold rows, ids of barriers, and END."""

    task: TaskId
    consumers: list[SimTask] = field(default_factory=list)
    channels: dict[TaskId, deque[Any]] = field(default_factory=dict)
    closed: set[TaskId] = field(default_factory=set)
    #: The barrier that is being aligned, and who has delivered it.
    barrier: int = 0
    arrived: set[TaskId] = field(default_factory=set)
    #: Rows read; the row that a worker holds; rows that a writer has not flushed, and those of its end.
    position: int = 0
    held: Row | None = None
    buffer: list[Row] = field(default_factory=list)
    at_end: list[Row] = field(default_factory=list)
    took_part: int = 0
    injected: deque[int] = field(default_factory=deque)
    #: Parts on their way to the driver, in order: checkpoint, state, rows flushed.
    told: deque[tuple[int, Any, list[Row]]] = field(default_factory=deque)
    over: bool = False
    #: Reads nothing, for the job is to stop.
    stands: bool = False
    has_said_so: bool = False

    def send(self, item: Any, consumer: int | None = None) -> None:
        wanted = self.consumers if consumer is None else [self.consumers[consumer % len(self.consumers)]]
        for each in wanted:
            each.channels[self.task].append(item)

    def open_channels(self) -> list[TaskId]:
        """Return the producers whose channel has something to take."""
        return [one for one, queue in self.channels.items() if queue and one not in self.arrived]

    def emit(self) -> None:
        self.send((self.task.subtask, self.position), self.position)
        self.position += 1

    def take(self, producer: TaskId) -> None:
        item = self.channels[producer].popleft()
        if item == END:
            self.closed.add(producer)
        elif isinstance(item, tuple):
            self.process(item)
            return
        elif item > max(self.barrier, self.took_part):
            self.barrier, self.arrived = item, {producer}
        elif item == self.barrier:
            self.arrived.add(producer)
        if self.barrier > self.took_part and self.arrived | self.closed == set(self.channels):
            self.take_part(self.barrier)

    def process(self, row: Row) -> None:
        if self.task.vertex == WRITE:
            self.buffer.append(row)
            return
        if self.held is not None:
            self.send(self.held, sum(self.held))
        self.held = row

    def inject(self) -> None:
        checkpoint = self.injected.popleft()
        if not self.over:
            assert checkpoint > self.took_part, "triggered twice"
            assert self.closed == set(self.channels), "triggered, and a producer is alive"
            self.take_part(checkpoint)

    def take_part(self, checkpoint: int) -> None:
        self.took_part, self.barrier, self.arrived = checkpoint, checkpoint, set()
        self.send(checkpoint)
        self.told.append((checkpoint, self.position if self.task.vertex == READ else self.held, self.buffer))
        self.buffer = []

    def end(self) -> None:
        if self.held is not None:
            self.send(self.held, sum(self.held))
            self.held = None
        self.send(END)
        self.at_end, self.buffer = self.buffer, []
        self.over = True

    def is_worked_on(self) -> bool:
        return self.over and all(self.task in consumer.closed for consumer in self.consumers)


class CoordinatorMachine(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        sizes=st.tuples(*[st.integers(1, 2)] * 3),
        tolerable=st.integers(0, 2),
        pause=st.sampled_from([0, 7]),
        branches=st.booleans(),
    )
    def begin(self, sizes: tuple[int, int, int], tolerable: int, pause: int, branches: bool) -> None:
        self.sizes, self.branches = sizes, branches
        self.options = CheckpointOptions(10.0, pause, 50.0, tolerable)
        self.coordinator = CheckpointCoordinator(three_vertices(*sizes, branches=branches), self.options)
        self.now = 0.0
        self.attempt = -1
        self.last = 0
        self.under_way: int | None = None
        self.complete: StoreMetadata | None = None
        self.committing: StoreMetadata | None = None
        #: What is being stored, one after the other, also of checkpoints that were given up.
        self.errands: deque[StoreMetadata] = deque()
        #: What the job would resume from, and whether it is committed.
        self.latest: StoreMetadata | None = None
        self.is_committed = True
        self.stopped = self.over = self.retries_end = False
        self.failures = 0
        self.triggered_at = self.ended_at = -math.inf
        self.files: dict[str, Any] = {}
        self.committed: list[Row] = []
        self.restored: dict[TaskId, Any] = {}
        self.stale: list[Step] = []
        self.asked: deque[Request] = deque()
        self.request: Request | None = None
        self.triggered: set[TaskId] = set()
        self.restart()

    # ---- the job

    @precondition(lambda self: hasattr(self, "coordinator"))
    @rule(fails=st.integers(0, 9), at_once=st.booleans(), well=st.booleans())
    def may_fail(self, fails: int, at_once: bool, well: bool) -> None:
        if self.stopped or fails == 0:
            self.restart(at_once=at_once, well=well)

    def restart(self, *, at_once: bool = False, well: bool = True) -> None:
        """From the last complete checkpoint, once it is known what is stored: when the job fails, or later. What the
        old attempt had still to say comes late."""
        while at_once and self.errands:
            self.store(well)
        self.interrupt()
        while self.errands:
            self.store(well)
        if self.latest is not None:
            self.commit_latest(self.latest)
        self.stale = [step for task in getattr(self, "tasks", {}).values() for step in self.words_of(task)]  # type: ignore[misc]
        self.attempt += 1
        self.over = self.retries_end = False
        self.build()
        self.triggered_at, self.ended_at = self.now, -math.inf
        self.carry_out(self.hear(Started(self.attempt)))

    def interrupt(self) -> None:
        if self.under_way is not None and self.request is not None and (self.request.stops or self.request.at_end):
            self.asked.appendleft(self.request)
            self.request = None
        actions = self.hear(Interrupted("the job failed"))
        if self.committing is not None:
            assert actions == [], "what is complete was aborted"
            self.committing = self.under_way = None
        self.stopped, self.failures = False, 0
        self.carry_out(actions, counts=False)
        assert self.under_way is None, "under way through a restart"

    def build(self) -> None:
        vertices = [
            [SimTask(task=TaskId(vertex, each)) for each in range(size)] for vertex, size in enumerate(self.sizes)
        ]
        joined = [*pairwise(vertices), *([(vertices[READ], vertices[WRITE])] if self.branches else [])]
        for producers, consumers in joined:
            for producer in producers:
                producer.consumers = [*producer.consumers, *consumers]
                for consumer in consumers:
                    consumer.channels[producer.task] = deque()
        self.tasks = {task.task: task for vertex in vertices for task in vertex}
        for where, state in self.restored.items():
            self.tasks[where].position = state if where.vertex == READ else 0
            self.tasks[where].held = state if where.vertex == WORK else None

    def steps(self, *, heal: bool = False, mute: bool = False, ends: bool = True) -> list[Step]:
        """What can happen next, likely things several times. In a job that heals nothing fails, and all comes to its
        end; from one that is mute no part is heard."""
        found: list[Step] = []
        for task in () if self.over else self.tasks.values():
            found += [task.inject] * bool(task.injected) * 3
            if not task.over and task.closed == set(task.channels):
                emit = [task.emit] * 3 * (not task.stands)
                found += [task.end] if task.channels or heal else emit + [task.end] * ends
            for one in task.open_channels():
                found += [partial(task.take, one)] * 4
            if task.told and not mute:
                found += [partial(self.tell, task)] * 4
                if not heal:
                    found += [partial(self.tell, task, twice=True), partial(self.tell, task, fails=True)]
            if task.is_worked_on() and not task.has_said_so:
                found.append(partial(self.say_over, task))
        if not heal and self.errands:
            found += [partial(self.store, True)] * 6 + [partial(self.store, False)]
        if not heal and self.committing is not None:
            found += [self.commit] * 6 + [self.restart]
        if not heal and self.coordinator.phase is Phase.WAITING:
            found += [partial(self.tick, 0)] * 4
        return found

    @rule(seed=st.integers(0, 1 << 32), mute=st.booleans(), ends=st.integers(0, 3))
    def run(self, seed: int, mute: bool, ends: int) -> None:
        chance = random.Random(seed)
        for _ in range(chance.randrange(10, 60)):
            if possible := self.steps(mute=mute, ends=ends == 0):
                chance.choice(possible)()

    def tell(self, task: SimTask, *, twice: bool = False, fails: bool = False) -> None:
        word, again = self.word(task, fails=fails), self.word(task)
        task.told.popleft()
        self.carry_out(word())
        assert not twice or again() == [], "heard twice"

    def word(self, task: SimTask, at: int = 0, *, fails: bool = False) -> Callable[[], list[Action]]:
        checkpoint, state, flushed = task.told[at]
        pending, attempt = {"out": flushed} if flushed else {}, self.attempt
        if fails:
            return partial(self.hear, Declined(task.task, attempt, checkpoint, pending, "no room"))
        path = str(len(self.files))
        self.files[path] = state
        file = StateFile(path, 1, "")
        return partial(
            self.hear,
            Acknowledged(task=task.task, attempt=attempt, checkpoint=checkpoint, pending=pending, state=file, part={}),
        )

    def say_over(self, task: SimTask) -> None:
        task.has_said_so = True
        self.carry_out(self.last_word(task)())
        assert self.last_word(task)() == [], "ended twice"

    def last_word(self, task: SimTask) -> Callable[[], list[Action]]:
        pending = {"out": task.at_end} if task.at_end else {}
        positions = {"src": task.position} if task.task.vertex == READ else {}
        attempt, where, took_part = self.attempt, task.task, task.took_part
        return partial(self.hear, TaskEnded(where, attempt, took_part, positions, pending))

    def words_of(self, task: SimTask) -> list[Callable[[], list[Action]]]:
        said = [self.word(task, at) for at in range(len(task.told))]
        return [*said, self.last_word(task)] if task.over and not task.has_said_so else said

    @precondition(lambda self: getattr(self, "stale", None))  # type: ignore[arg-type, return-value]
    @rule()
    def hear_the_old_attempt(self) -> None:
        for word in self.stale:
            assert word() == [], "something followed from what an old attempt said"
        self.stale = []

    @precondition(lambda self: hasattr(self, "coordinator") and self.coordinator.phase is not Phase.OVER)
    @rule(times=st.integers(1, 2), at_end=st.integers(0, 3))
    def ask_for_savepoints(self, times: int, at_end: int) -> None:
        for _ in range(times):
            self.ask(Request("savepoints", at_end=not at_end))

    @precondition(lambda self: hasattr(self, "coordinator") and self.coordinator.phase is not Phase.OVER)
    @rule(chance=st.integers(0, 3), uri=st.sampled_from([None, "savepoints"]))
    def ask_for_a_stop(self, chance: int, uri: str | None) -> None:
        if not chance:
            self.ask(Request(uri, stops=True))

    def ask(self, request: Request) -> None:
        self.asked.append(request)
        self.carry_out(self.hear(Requested(request)))

    def next_asked(self) -> Request | None:
        """The first that can be taken now."""
        return next((each for each in self.asked if self.have_ended() or not each.at_end), None)

    def have_ended(self) -> bool:
        return all(task.has_said_so and not task.told for task in self.tasks.values())

    # ---- time and storage

    @precondition(lambda self: hasattr(self, "coordinator"))
    @rule(patience=st.integers(0, 5))
    def tick(self, patience: int) -> None:
        """The time of the next checkpoint; at times the end of that for the one under way."""
        deadline = self.coordinator.deadline
        if patience and self.under_way is not None:
            return
        if self.under_way is not None and self.committing is None:
            assert deadline == self.triggered_at + self.options.timeout, "no timeout"
        if deadline is not None:
            before = self.under_way
            assert self.coordinator.handle(TimePassed(), deadline - 0.5) == [], "too early"
            self.now = max(self.now, deadline)
            self.carry_out(self.hear(TimePassed()))
            assert self.under_way != before, "nothing happened in time"

    @rule(by=st.integers(1, 9))
    def time_passes(self, by: int) -> None:
        deadline = self.coordinator.deadline
        self.now = min(self.now + by, math.inf if deadline is None else max(self.now, deadline))

    def store(self, well: bool) -> None:
        """Too late if the checkpoint was given up: then nothing follows."""
        complete = self.errands.popleft()
        in_time = complete is self.complete
        if not well:
            actions = self.hear(NotStored(complete.checkpoint, "no room"))
            assert in_time or actions == [], "given up twice"
            self.carry_out(actions)
            return
        assert self.hear(Stored(complete.checkpoint)) == [Commit(complete)] * in_time, "to be committed, or not"
        self.latest, self.is_committed = complete, False
        self.restored = {task: self.state_of(part) for task, part in complete.parts.items()}
        if in_time:
            self.complete, self.committing = None, complete

    def commit_latest(self, complete: StoreMetadata) -> None:
        self.committed += [] if self.is_committed else rows_in(complete)
        self.is_committed = True

    def commit(self) -> None:
        complete, self.committing = self.committing, None
        assert complete is not None
        self.commit_latest(complete)
        self.under_way, self.failures, self.ended_at = None, 0, self.now
        self.over = self.request is not None and self.request.stops
        is_last = self.over or (all_finished(complete.parts) and not any(each.uri for each in self.asked))
        self.carry_out(self.hear(Committed(complete.checkpoint)))
        assert (self.coordinator.phase is Phase.OVER) == is_last, "over, or not"

    def state_of(self, part: Any) -> Any:
        return part.positions.get("src") if isinstance(part, Finished) else self.files[part.path]

    def hear(self, event: Event) -> list[Action]:
        return self.coordinator.handle(event, self.now)

    # ---- what must follow

    def carry_out(self, actions: list[Action], *, counts: bool = True) -> None:
        for action in actions:
            assert not self.stopped, "something happened after the failure"
            match action:
                case TriggerCheckpoint(checkpoint, tasks, request):
                    self.on_begun(checkpoint, request)
                    for task in tasks:
                        assert not self.tasks[task].has_said_so, "triggered after its end"
                        assert task not in self.triggered, "triggered twice"
                        self.triggered.add(task)
                        self.tasks[task].injected.append(checkpoint)
                        self.tasks[task].stands = request is not None and request.stops
                case StoreMetadata():
                    self.on_begun(action.checkpoint, action.request)
                    self.on_complete(action)
                case AbortCheckpoint(checkpoint, _, request):
                    assert (checkpoint, request) == (self.under_way, self.request), "another one was aborted"
                    is_last = self.complete is not None and all_finished(self.complete.parts)
                    self.retries_end |= counts and is_last and request is None
                    self.under_way, self.complete, self.ended_at = None, None, self.now
                    self.failures += counts and request is None
                    for each in self.tasks.values():
                        each.stands = False
                case Fail():
                    assert self.failures > self.options.tolerable_failures, "failed too early"
                    self.stopped = True
        assert self.stopped or self.failures <= self.options.tolerable_failures, "failures without an end"
        if counts and self.under_way is None and self.coordinator.phase is Phase.COLLECTING:
            self.on_begun(self.coordinator.last, self.coordinator._request)  # of tasks that have all ended

    def on_begun(self, checkpoint: int, request: Request | None) -> None:
        if checkpoint == self.under_way:
            assert request is self.request, "a savepoint became another, or none"
            return
        assert self.under_way is None, "one at a time, each newer than the last"
        assert checkpoint > self.last, "one at a time, each newer than the last"
        self.request = self.next_asked()
        assert request is self.request, "not what was asked for first"
        if request is not None:
            self.asked.remove(request)
        if self.request is None and (self.retries_end or not all(task.has_said_so for task in self.tasks.values())):
            assert self.now >= self.triggered_at + self.options.interval, "before the interval had passed"
            assert self.now >= self.ended_at + self.options.min_pause, "without a pause"
        self.under_way = self.last = checkpoint
        self.triggered = set()
        self.triggered_at = self.now

    def on_complete(self, complete: StoreMetadata) -> None:
        assert complete.parts.keys() == self.tasks.keys(), "a part is missing"
        states = {task: self.state_of(part) for task, part in complete.parts.items()}
        held = [row for task, row in states.items() if task.vertex == WORK and row is not None]
        read = [(task.subtask, at) for task, end in states.items() if task.vertex == READ for at in range(end)]
        assert sorted([*self.committed, *rows_in(complete), *held]) == sorted(read), "no cut"
        self.complete = complete
        self.errands.append(complete)

    @invariant()
    def books_agree(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        self.coordinator.validate()
        assert (self.coordinator.phase is Phase.STORING) == (self.complete is not None)
        assert (self.coordinator.phase is Phase.COMMITTING) == (self.committing is not None)
        assert self.coordinator.phase is not Phase.WAITING or not self.next_asked(), "a savepoint waits for nothing"
        assert self.coordinator.phase is not Phase.WAITING or self.retries_end or not self.have_ended(), "the end waits"
        is_whole = self.complete is not None or self.committing is not None
        assert (self.coordinator.phase is Phase.COLLECTING) == (self.under_way is not None and not is_whole)
        assert len(self.coordinator.history) <= 10
        for where, task in self.tasks.items():
            producers = [self.tasks[each] for each in task.channels]
            if self.under_way is not None and not task.has_said_so and all(each.has_said_so for each in producers):
                comes = any(each.took_part == self.under_way for each in producers)
                assert comes != (where in self.triggered), "no barrier will come, or two"

    def teardown(self) -> None:
        """Nothing fails any more, and all tasks go on to their end: the job must come to its own. One that was stopped
        goes on in another program."""
        if not hasattr(self, "coordinator"):
            return
        self.heal()
        if self.over:
            self.coordinator = CheckpointCoordinator(
                three_vertices(*self.sizes, branches=self.branches), self.options, self.last + 1
            )
            self.asked.clear()
            self.restart()
            self.heal()
        read = [(task.task.subtask, at) for task in self.tasks.values() for at in range(task.position)]
        assert sorted(self.committed) == sorted(read), "lost or doubled"

    def heal(self) -> None:
        for _ in range(2000):
            steps = self.steps(heal=True)
            if steps:
                steps[0]()
            elif self.errands:
                self.store(True)
            elif self.committing is not None:
                self.commit()
            elif self.stopped:
                self.restart()
            elif self.coordinator.deadline is not None:
                self.tick(0)
            else:
                break
        assert self.coordinator.phase is Phase.OVER, "stuck: the last checkpoint never completes"
        assert self.over or not any(each.uri for each in self.asked), "over before a savepoint"


def rows_in(complete: StoreMetadata) -> list[Row]:
    return [row for flushed in complete.pending.get("out", ()) for row in flushed]
