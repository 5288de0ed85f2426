"""The checkpoint coordinator of a job that runs, ends in parts, fails and restarts in any order; and the planted bugs
that this finds."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.runtime.checkpointing.checkpoint_coordinator import CheckpointCoordinator as Coordinator
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine
from tests.runtime.coordinator_machine import CoordinatorMachine, SimTask

HUNT_COORDINATOR = settings(HUNT, max_examples=10_000, stateful_step_count=20)


def bug(name: str, method: str, right: str, wrong: str) -> PlantedBug:
    return PlantedBug(name, Coordinator, method, right, wrong)


BUGS = [
    bug("what was flushed for a failed checkpoint is lost", "_note", "if event.pending:",
        "if event.pending and self.phase is Phase.COLLECTING and event.checkpoint == self._last:"),
    bug("what is pending at a task's end is committed with its part before", "_covered",
        "isinstance(self._parts.get(key[1]), Finished)", "True"),
    bug("what is pending at a task's end is never committed", "_covered",
        "isinstance(self._parts.get(key[1]), Finished)", "False"),
    bug("what is committed stays pending", "_settle", "del self._pending[key]", "pass"),
    bug("a task that has ended is finished in what it took part in", "_is_heard",
        "self._told[task] >= self._ended[task][0]", "True"),
    bug("no barrier comes to a task whose producers have ended", "_trigger_below", "if roots :=", "if False and"),
    bug("a task that a barrier comes to is a root too", "_trigger_below",
        "self._reached.union(self._ended)", "self._ended"),
    bug("who was reached by the last checkpoint is by this", "_trigger", "self._parts, self._reached = {}, set()",
        "self._parts = {}"),
    bug("parts of the last checkpoint count for this", "_trigger", "self._parts, self._reached = {}, set()",
        "self._reached = set()"),
    bug("tasks that have ended are triggered", "_trigger", "not live and task not in self._ended", "not live"),
    bug("tasks with producers are triggered", "_trigger", "not live and task", "task"),
    bug("a late acknowledgement counts for the checkpoint under way", "_add_part",
        "event.checkpoint == self._last", "True"),
    bug("one failed part is no failure", "_lack_part", "event.checkpoint == self._last", "False"),
    bug("what an old attempt says counts", "_is_of_attempt", "event.attempt == self._attempt and", ""),
    bug("a task ends twice", "_counts", "and event.task not in self._ended", ""),
    bug("what an old attempt had pending is committed", "_start", "self._pending = {}", "pass"),
    bug("who ended in the old attempt has ended", "_start", "self._ended = {}", "pass"),
    bug("a checkpoint completes without one part", "_complete_if_whole",
        "< len(self._producers)", "< len(self._producers) - 1"),
    bug("there is no last checkpoint", "_begin_wanted",
        "if have_ended or request is not None", "if request is not None"),
    bug("the last checkpoint is not the last", "_settle", "is_last = all_finished(self._parts)", "is_last = False"),
    bug("a checkpoint takes as long as it likes", "_counts",
        "is not None and self._now >= deadline",
        "is not None and self._now >= deadline and self.phase is Phase.WAITING"),
    bug("there is no pause", "_close", "max(due, self._now + self._options.min_pause)", "due"),
    bug("there is no interval", "_close", "max(due, self._now + self._options.min_pause)",
        "self._now + self._options.min_pause"),
    bug("failures are counted for ever", "_settle", "self._failures = 0", "pass"),
    bug("any number of failures is tolerated", "_fail", "if self._failures <= self._options.tolerable_failures:",
        "if True:"),
    bug("a savepoint that failed is a failure of the job", "_fail", "not is_asked_for", "1"),
    bug("a savepoint waits for the time of a checkpoint", "_begin_wanted",
        "if have_ended or not each.at_end", "if have_ended"),
    bug("a savepoint that is asked for late is not taken", "_settle",
        "and not any(request.uri for request in self._requests)", ""),
    bug("a savepoint is taken again and again", "_begin_wanted", "self._requests.remove(request)", "pass"),
    bug("who asks last is served first", "_begin_wanted", "in self._requests if", "in reversed(self._requests) if"),
    bug("nobody hears of a savepoint that a restart ends", "_interrupt", "self._give_up(event.reason)", "pass"),
    bug("a restart forgets what was asked for", "_start", "self._ended = {}",
        "self._ended = {}; self._requests.clear()"),
    bug("a barrier that begins later is of no savepoint", "_trigger_below", "tuple(roots), self._request",
        "tuple(roots)"),
    bug("a savepoint for the end is taken before", "_begin_wanted", "if have_ended or not each.at_end", "if True"),
    bug("a stop is a checkpoint like others", "_settle",
        "or (self._request is not None and self._request.stops)", ""),
    bug("a restart forgets the stop that is under way", "_ask_again", "self._requests.appendleft(self._request)",
        "pass"),
    bug("a stop that begins anew is said to have failed", "_ask_again", "self._request = None", "pass"),
    bug("metadata that is stored too late counts", "_counts",
        "event.checkpoint == self._last", "True"),
    bug("what is pending is forgotten when a checkpoint is given up", "_give_up", "self.failed += 1",
        "self.failed += 1; self._pending = {}"),
    bug("a checkpoint is given up while it is committed", "_succeed", "self._close(None)",
        "self._give_up('interrupted')"),
    PlantedBug("a task that has ended takes its part", SimTask, "inject", "if not self.over:", "if True:"),
]  # fmt: skip


def test_a_job_in_any_order() -> None:
    run_machine(CoordinatorMachine, settings(HUNT_COORDINATOR, max_examples=100), alike=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, CoordinatorMachine, HUNT_COORDINATOR, alike=True)
