"""The checkpoint coordinator of a job that runs, ends in parts, fails and restarts in any order; and the planted bugs
that this finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from headgate.runtime.checkpointing.checkpoint_coordinator import CheckpointCoordinator as Coordinator
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine
from tests.runtime.coordinator_machine import CoordinatorMachine, SimTask

LIST = Path(__file__).parents[2] / "docs" / "planted-bugs.md"
HUNT_COORDINATOR = settings(HUNT, max_examples=10_000, stateful_step_count=20)


def bug(name: str, method: str, right: str, wrong: str) -> PlantedBug:
    return PlantedBug(name, Coordinator, method, right, wrong)


BUGS = [
    bug("what was flushed for a failed checkpoint is lost", "_note", "if pending:",
        "if pending and self.state is Phase.COLLECTING and checkpoint == self._last:"),
    bug("what is pending at a task's end is committed with its part before", "_covered",
        "isinstance(self._parts.get(key[1]), Finished)", "True"),
    bug("what is pending at a task's end is never committed", "_covered",
        "isinstance(self._parts.get(key[1]), Finished)", "False"),
    bug("what is committed stays pending", "committed", "del self._pending[key]", "pass"),
    bug("a task that has ended is finished in what it took part in", "_is_heard",
        "self._told[task] >= self._ended[task][0]", "True"),
    bug("no barrier comes to a task whose producers have ended", "_roots_below", "if collecting and roots", "if False"),
    bug("a task that a barrier comes to is a root too", "_roots_below", "consumer not in self._reached", "True"),
    bug("who was reached by the last checkpoint is by this", "_trigger", "self._parts, self._reached = {}, set()",
        "self._parts = {}"),
    bug("parts of the last checkpoint count for this", "_trigger", "self._parts, self._reached = {}, set()",
        "self._reached = set()"),
    bug("tasks that have ended are triggered", "_trigger", "not live and task not in self._ended", "not live"),
    bug("tasks with producers are triggered", "_trigger", "not live and task", "task"),
    bug("a late acknowledgement counts for the checkpoint under way", "acknowledged",
        "and checkpoint == self._last", ""),
    bug("one failed part is no failure", "declined", "and checkpoint == self._last", "and False"),
    bug("what an old attempt says counts", "_is_news", "attempt != self._attempt or", ""),
    bug("the end in an old attempt counts", "finished", "attempt != self._attempt or", ""),
    bug("a task ends twice", "finished", "or task in self._ended", ""),
    bug("what an old attempt had pending is committed", "start", "self._pending = {}", "pass"),
    bug("who ended in the old attempt has ended", "start", "self._ended = {}", "pass"),
    bug("a checkpoint completes without one part", "_advance", "< len(self._producers)", "< len(self._producers) - 1"),
    bug("there is no last checkpoint", "_advance", "if have_ended or request is not None", "if request is not None"),
    bug("the last checkpoint is not the last", "committed", "is_last = all_finished(self._parts)", "is_last = False"),
    bug("a checkpoint takes as long as it likes", "on_time",
        "(deadline := self.deadline) is None or now < deadline",
        "self.state is not Phase.WAITING or now < self.deadline"),
    bug("there is no pause", "_close", "max(due, now + self._options.min_pause)", "due"),
    bug("there is no interval", "_close", "max(due, now + self._options.min_pause)", "now + self._options.min_pause"),
    bug("failures are counted for ever", "committed", "self._failures = 0", "pass"),
    bug("any number of failures is tolerated", "_fail", "if self._failures <= self._options.tolerable_failures:",
        "if True:"),
    bug("a savepoint that failed is a failure of the job", "_fail", "abort.request is None", "True"),
    bug("a savepoint waits for the time of a checkpoint", "_advance",
        "if have_ended or not each.at_end", "if have_ended"),
    bug("a savepoint that is asked for late is not taken", "committed",
        "and not any(request.uri for request in self._requests)", ""),
    bug("a savepoint is taken again and again", "_advance", "self._requests.remove(request)", "pass"),
    bug("who asks last is served first", "_advance", "in self._requests if", "in reversed(self._requests) if"),
    bug("nobody hears of a savepoint that a restart ends", "interrupted", "elif self._is_under_way", "elif False"),
    bug("a restart forgets what was asked for", "start", "self._ended = {}",
        "self._ended = {}; self._requests.clear()"),
    bug("a barrier that begins later is of no savepoint", "_roots_below", "tuple(roots), self._request",
        "tuple(roots)"),
    bug("a savepoint for the end is taken before", "_advance", "if have_ended or not each.at_end", "if True"),
    bug("a stop is a checkpoint like others", "committed",
        "or (self._request is not None and self._request.stops)", ""),
    bug("a restart forgets the stop that is under way", "interrupted", "self._requests.appendleft(self._request)",
        "pass"),
    bug("a stop that begins anew is said to have failed", "interrupted", "self._request = None", "pass"),
    bug("metadata that is stored too late counts", "stored", "self.state is not Phase.STORING or", ""),
    bug("what is pending is forgotten when a checkpoint is given up", "_give_up", "self.failed += 1",
        "self.failed += 1; self._pending = {}"),
    bug("a checkpoint is given up while it is committed", "interrupted", "if self.state is Phase.COMMITTING",
        "if False"),
    PlantedBug("a task that has ended takes its part", SimTask, "inject", "if not self.over:", "if True:"),
]  # fmt: skip


def test_a_job_in_any_order() -> None:
    run_machine(CoordinatorMachine, settings(HUNT_COORDINATOR, max_examples=100), alike=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, CoordinatorMachine, HUNT_COORDINATOR, alike=True)


def test_the_list_of_planted_bugs_is_complete() -> None:
    listed = LIST.read_text()
    assert [bug.name for bug in BUGS if f"- {bug.name} (`{bug.owner.__name__}.{bug.method}`)" not in listed] == []
