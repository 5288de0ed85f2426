"""The checkpoint coordinator: what follows from what it hears, and when."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from headgate.runtime.checkpointing.checkpoint_coordinator import (
    _RULES,
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

READ, WORK, WRITE = TaskId(0, 0), TaskId(1, 0), TaskId(2, 0)
FILE = StateFile("f", 10, "00")


class Driver:
    """A coordinator of three tasks in a row, and short ways to tell it something."""

    def __init__(self, **options: float) -> None:
        self.now = 0.0
        tolerable = int(options.pop("tolerable_failures", 0))
        self.coordinator = CheckpointCoordinator(
            three_vertices(), CheckpointOptions(interval=10.0, tolerable_failures=tolerable, **options), first_id=5
        )
        assert self.hear(Started(0)) == []

    def hear(self, event: Event) -> list[Action]:
        return self.coordinator.handle(event, self.now)

    def at(self, now: float) -> list[Action]:
        self.now = now
        return self.hear(TimePassed())

    def ack(self, task: TaskId, checkpoint: int, *, attempt: int = 0, pending: str = "") -> list[Action]:
        what = {"out": pending} if pending else {}
        return self.hear(
            Acknowledged(
                task=task, attempt=attempt, checkpoint=checkpoint, pending=what, state=FILE, part={"alignment_s": 1.0}
            )
        )

    def decline(self, task: TaskId, checkpoint: int, *, pending: str = "") -> list[Action]:
        what = {"out": pending} if pending else {}
        return self.hear(Declined(task, 0, checkpoint, what, "no room"))

    def succeed(self, checkpoint: int) -> list[Action]:
        """It is stored and committed."""
        [commit] = self.hear(Stored(checkpoint))
        assert isinstance(commit, Commit)
        assert commit.complete.checkpoint == checkpoint
        return self.hear(Committed(checkpoint))

    def end(self, task: TaskId, took_part: int = 0, *, pending: str = "") -> list[Action]:
        what = {"out": pending} if pending else {}
        return self.hear(TaskEnded(task, 0, took_part, {"src": 7}, what))


def test_a_checkpoint_from_the_trigger_to_the_end() -> None:
    driver = Driver(min_pause=3.0)
    coordinator = driver.coordinator
    assert coordinator.deadline == 10.0
    assert driver.at(9.9) == []
    assert driver.at(10.0) == [TriggerCheckpoint(5, (READ,))]
    for task in (WORK, READ, READ):
        assert driver.ack(task, 5) == []
    driver.now = 12.0
    parts = {READ: FILE, WORK: FILE, WRITE: FILE}
    [complete] = driver.ack(WRITE, 5, pending="a")
    assert complete == StoreMetadata(5, 2.0, parts, {"out": ["a"]})
    assert not all_finished(complete.parts)
    assert coordinator.deadline == 610.0
    assert coordinator.phase is Phase.STORING
    assert driver.hear(Stored(5)) == [Commit(complete)]
    assert driver.hear(Stored(5)) == []
    assert coordinator.deadline is None
    assert coordinator.phase is Phase.COMMITTING
    driver.now = 18.0
    for _ in range(2):
        assert driver.hear(Committed(5)) == []
    assert coordinator.deadline == 21.0, "three seconds after the end of the last, though it was due at 20"
    [record] = coordinator.history
    assert (record.checkpoint, record.duration, record.size, record.failure) == (5, 8.0, 30, None)
    assert record.parts["write[0]"] == {"alignment_s": 1.0}
    assert coordinator.completed == 1
    line = "5, checkpoint, 1970-01-01 00:00:10 UTC, 8.00 s, 30 bytes"
    assert repr(record) == f"CheckpointRecord({line}, complete)"
    assert repr(dataclasses.replace(record, failure="no")) == f"CheckpointRecord({line}, failed: no)"


def test_late_and_repeated_reports_and_those_of_another_attempt_are_ignored() -> None:
    driver = Driver()
    driver.at(10.0)
    assert (
        driver.ack(READ, 6)
        == driver.ack(READ, 4)
        == driver.ack(READ, 5, attempt=1)
        == driver.ack(TaskId(3, 0), 5)
        == []
    )
    for task in (READ, WORK, READ, READ):
        assert driver.ack(task, 5) == []
    assert len(driver.ack(WRITE, 5)) == 1
    assert driver.ack(WRITE, 5) == driver.decline(WRITE, 5) == []


def test_a_checkpoint_that_takes_too_long_fails_and_says_for_whom_it_waited() -> None:
    driver = Driver(timeout=4.0, tolerable_failures=1)
    driver.at(10.0)
    driver.ack(READ, 5)
    assert driver.coordinator.deadline == 14.0
    [abort] = driver.at(14.0)
    reason = "it took longer than 4 s (checkpoint_timeout); 2 of 3 tasks have not acknowledged: work[0], write[0]"
    assert abort == AbortCheckpoint(5, reason)
    assert driver.at(20.0) == [TriggerCheckpoint(6, (READ,))]
    abort, fail = driver.decline(WORK, 6)
    assert abort == AbortCheckpoint(6, "work[0]: no room")
    assert isinstance(fail, Fail)
    assert str(fail.error) == (
        "2 checkpoints in a row failed, the last was 6: work[0]: no room (tolerable_failed_checkpoints is 1)"
    )
    assert driver.coordinator.deadline is None
    assert driver.coordinator.failed == 2
    driver.now = 30.0
    assert driver.hear(Started(1)) == []
    assert driver.coordinator.deadline == 40.0


def test_metadata_that_is_stored_too_late_does_not_count_and_what_is_pending_stays_so() -> None:
    driver = Driver(timeout=4.0, tolerable_failures=1)
    driver.at(10.0)
    driver.ack(READ, 5)
    driver.ack(WORK, 5)
    driver.ack(WRITE, 5, pending="a")
    reason = "it took longer than 4 s (checkpoint_timeout); all tasks have acknowledged, but the metadata was not"
    assert driver.at(13.9) == []
    assert driver.at(14.0) == [AbortCheckpoint(5, f"{reason} stored in time")]
    assert driver.hear(Stored(5)) == driver.hear(NotStored(5, "no room")) == []
    assert driver.at(20.0) == [TriggerCheckpoint(6, (READ,))]
    assert driver.hear(Stored(5)) == []
    for task in (READ, WORK):
        driver.ack(task, 6)
    [complete] = driver.ack(WRITE, 6, pending="b")
    assert isinstance(complete, StoreMetadata)
    assert complete.pending == {"out": ["a", "b"]}
    assert driver.succeed(6) == []
    assert (driver.coordinator.completed, driver.coordinator.failed) == (1, 1)


def test_a_job_that_fails_while_a_checkpoint_is_committed_has_that_checkpoint() -> None:
    driver = Driver()
    driver.at(10.0)
    for task in (READ, WORK, WRITE):
        driver.ack(task, 5)
    driver.hear(Stored(5))
    assert driver.hear(Interrupted("the job failed")) == []
    assert [record.failure for record in driver.coordinator.history] == [None]
    assert driver.hear(Started(1)) == driver.hear(Committed(5)) == []


def test_what_was_flushed_for_a_failed_checkpoint_is_committed_with_the_next() -> None:
    driver = Driver(tolerable_failures=5)
    driver.at(10.0)
    driver.decline(WRITE, 5, pending="a")
    driver.at(20.0)
    driver.decline(READ, 6)
    driver.ack(WRITE, 6, pending="b")
    driver.at(30.0)
    for task in (READ, WORK):
        driver.ack(task, 7)
    [complete] = driver.ack(WRITE, 7, pending="c")
    assert isinstance(complete, StoreMetadata)
    assert complete.pending == {"out": ["a", "b", "c"]}
    driver.hear(NotStored(7, "no room"))
    driver.at(40.0)
    for task in (READ, WORK):
        driver.ack(task, 8)
    [complete] = driver.ack(WRITE, 8)
    assert isinstance(complete, StoreMetadata)
    assert complete.pending == {"out": ["a", "b", "c"]}
    driver.succeed(8)
    driver.at(50.0)
    for task in (READ, WORK):
        driver.ack(task, 9)
    assert driver.ack(WRITE, 9) == [StoreMetadata(9, 0.0, {READ: FILE, WORK: FILE, WRITE: FILE}, {})], "and only once"


def test_a_task_that_ends_before_the_barrier_reaches_it_is_finished() -> None:
    driver = Driver()
    driver.at(10.0)
    assert driver.end(READ) == [TriggerCheckpoint(5, (WORK,))], "no barrier will come to it"
    driver.ack(WORK, 5)
    [complete] = driver.ack(WRITE, 5)
    assert isinstance(complete, StoreMetadata)
    assert complete.parts[READ] == Finished({"src": 7})
    driver.succeed(5)
    assert driver.at(20.0) == [TriggerCheckpoint(6, (WORK,))]
    assert driver.end(WORK, 5) == [TriggerCheckpoint(6, (WRITE,))]
    [complete] = driver.ack(WRITE, 6)
    gone = Finished({"src": 7})
    assert complete == StoreMetadata(6, 0.0, {READ: gone, WORK: gone, WRITE: FILE}, {})


def test_a_task_that_took_part_and_ended_has_its_part_whatever_is_reported_first() -> None:
    driver = Driver()
    driver.at(10.0)
    assert driver.end(READ, 5) == [], "its barrier goes on"
    assert driver.end(WORK, 5) == []
    assert driver.end(WRITE, 5, pending="after") == []
    for task in (WORK, READ):
        assert driver.ack(task, 5) == []
    [complete] = driver.ack(WRITE, 5, pending="before")
    assert isinstance(complete, StoreMetadata)
    assert complete.parts == {READ: FILE, WORK: FILE, WRITE: FILE}
    assert complete.pending == {"out": ["before"]}
    [complete] = driver.succeed(5)
    assert isinstance(complete, StoreMetadata)
    assert all_finished(complete.parts)
    assert complete.pending == {"out": ["after"]}
    assert driver.succeed(6) == []
    assert driver.coordinator.phase is Phase.OVER


def test_the_end_of_all_waits_for_what_is_still_being_written() -> None:
    driver = Driver(tolerable_failures=2)
    driver.at(10.0)
    driver.decline(READ, 5)
    for task in (READ, WORK, WRITE):
        assert driver.end(task, 5, pending="end" if task is WRITE else "") == []
    assert driver.coordinator.deadline is None
    driver.ack(WORK, 5)
    [complete] = driver.ack(WRITE, 5, pending="barrier")
    assert isinstance(complete, StoreMetadata)
    assert all_finished(complete.parts)
    assert complete.pending == {"out": ["barrier", "end"]}
    driver.now = 12.0
    assert driver.hear(NotStored(6, "no room")) == [AbortCheckpoint(6, "no room")]
    assert driver.coordinator.deadline == 20.0
    [again] = driver.at(20.0)
    assert isinstance(again, StoreMetadata)
    assert again.checkpoint == 7
    assert isinstance(driver.hear(NotStored(7, "no room"))[-1], Fail)


def test_the_last_checkpoint_is_tried_again_after_the_pause_of_a_running_job() -> None:
    driver = Driver(tolerable_failures=9, min_pause=7.0, timeout=4.0)
    driver.now = 1.0
    driver.end(READ)
    driver.end(WORK)
    assert isinstance(driver.end(WRITE)[-1], StoreMetadata), "the first begins at once"
    assert driver.at(4.9) == []
    [abort] = driver.at(5.0)
    assert isinstance(abort, AbortCheckpoint)
    assert driver.coordinator.deadline == 12.0, "seven seconds after the end of the last, though it was due at 11"
    assert driver.at(11.9) == []
    assert isinstance(driver.at(12.0)[-1], StoreMetadata)
    driver.now = 13.0
    assert driver.hear(NotStored(6, "no room")) == [AbortCheckpoint(6, "no room")]
    request = Request("savepoints")
    driver.now = 14.0
    [savepoint] = driver.hear(Requested(request))
    assert isinstance(savepoint, StoreMetadata), "a savepoint begins at once"
    assert driver.hear(NotStored(7, "no room")) == [AbortCheckpoint(7, "no room", request)], (
        "and nothing begins in its place"
    )
    assert driver.coordinator.deadline == 24.0
    driver.at(24.0)
    assert driver.succeed(8) == []
    assert driver.coordinator.phase is Phase.OVER


def test_the_last_checkpoint_begins_at_once_after_a_savepoint_that_fails_and_after_a_restart() -> None:
    driver = Driver(tolerable_failures=9)
    request = Request("savepoints", at_end=True)
    driver.hear(Requested(request))
    for attempt in range(2):
        for task in (READ, WORK, WRITE):
            actions = driver.hear(TaskEnded(task, attempt, 0, {}, {}))
        [first] = actions
        assert isinstance(first, StoreMetadata)
        if first.request is not None:
            [_, first] = driver.hear(NotStored(5, "no room"))
        assert isinstance(first, StoreMetadata)
        assert driver.hear(NotStored(first.checkpoint, "no room")) == [AbortCheckpoint(first.checkpoint, "no room")]
        driver.hear(Interrupted("the job failed"))
        driver.hear(Started(attempt + 1))


def test_a_restart_forgets_what_the_last_attempt_left() -> None:
    driver = Driver()
    driver.end(READ, pending="old")
    assert driver.at(10.0) == [TriggerCheckpoint(5, (WORK,))]
    driver.now = 11.0
    assert driver.hear(Interrupted("the job failed")) == [AbortCheckpoint(5, "the job failed")]
    assert driver.hear(Started(1)) == []
    assert driver.at(21.0) == [TriggerCheckpoint(6, (READ,))]
    assert driver.ack(READ, 6) == driver.end(WORK) == []
    assert driver.coordinator.failed == 1
    assert driver.coordinator.deadline == 21.0 + 600


def test_every_subtask_takes_part() -> None:
    coordinator = CheckpointCoordinator(three_vertices(2, 3, 1), CheckpointOptions(1.0))
    coordinator.handle(Started(0), 0.0)
    assert coordinator.handle(TimePassed(), 1.0) == [TriggerCheckpoint(1, (TaskId(0, 0), TaskId(0, 1)))]
    assert coordinator.handle(TaskEnded(TaskId(0, 0), 0, 0, {}, {}), 1.0) == []
    assert coordinator.handle(TaskEnded(TaskId(0, 1), 0, 0, {}, {}), 1.0) == [
        TriggerCheckpoint(1, (TaskId(1, 0), TaskId(1, 1), TaskId(1, 2)))
    ]
    coordinator.validate()


def test_the_error_for_an_impossible_event_lists_the_events_before_it() -> None:
    driver = Driver()
    driver.at(10.0)
    driver.ack(READ, 5)
    with pytest.raises(RuntimeError) as failure:
        driver.hear(Started(1))
    assert str(failure.value).splitlines() == [
        "Started(attempt=1) is impossible in phase COLLECTING (a checkpoint is under way); the events before it:",
        "0.000 STOPPED: Started(attempt=0)",
        "10.000 WAITING: TimePassed()",
        "10.000 COLLECTING: Acknowledged(task=TaskId(vertex=0, subtask=0), attempt=0, checkpoint=5)",
    ]


def test_the_table_has_a_row_for_each_event_and_a_place_for_each_phase() -> None:
    assert set(_RULES) == set(get_args(Event))
    missing = {(event, phase) for event, row in _RULES.items() for phase in Phase if phase not in row}
    assert missing == {(Started, phase) for phase in Phase if phase is not Phase.STOPPED}
