"""The checkpoint coordinator of a job that runs, ends in parts, fails and restarts in any order; and the planted bugs
that this finds."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.runtime.checkpointing.checkpoint_coordinator import CheckpointCoordinator as Coordinator
from tests.memory.edits import always, constant, dropped, never, only, plus, replaced
from tests.memory.places import assignment, call, comparison, condition, deletion, increment, returned
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine
from tests.runtime.coordinator_machine import CoordinatorMachine, SimTask

HUNT_COORDINATOR = settings(HUNT, max_examples=10_000, stateful_step_count=20)


BUGS = [
    PlantedBug("what was flushed for a failed checkpoint is lost", Coordinator._note,
               replaced(condition(), "THIS and self.phase is Phase.COLLECTING and event.checkpoint == self._last")),
    PlantedBug("what is pending at a task's end is committed with its part before", Coordinator._covered,
               always(call("isinstance"))),
    PlantedBug("what is pending at a task's end is never committed", Coordinator._covered, never(call("isinstance"))),
    PlantedBug("what is committed stays pending", Coordinator._settle, dropped(deletion())),
    PlantedBug("a task that has ended is finished in what it took part in", Coordinator._is_reported,
               always(returned().operand(2))),
    PlantedBug("no barrier comes to a task whose producers have ended", Coordinator._trigger_below,
               never(condition(2, of=2))),
    PlantedBug("a task that a barrier comes to is a root too", Coordinator._trigger_below,
               only(call("union").argument(1))),
    PlantedBug("who was reached by the last checkpoint is by this", Coordinator._trigger,
               replaced(assignment(5, of=5), "self._parts = {}")),
    PlantedBug("parts of the last checkpoint count for this", Coordinator._trigger,
               replaced(assignment(5, of=5), "self._reached = set()")),
    PlantedBug("tasks that have ended are triggered", Coordinator._trigger, dropped(comparison(3, of=3))),
    PlantedBug("tasks with producers are triggered", Coordinator._trigger, only(comparison(3, of=3))),
    PlantedBug("a late acknowledgement counts for the checkpoint under way", Coordinator._add_part,
               always(condition())),
    PlantedBug("one failed part is no failure", Coordinator._lack_part, never(condition())),
    PlantedBug("what an old attempt says counts", Coordinator._is_of_attempt, dropped(returned().operand(1))),
    PlantedBug("a task ends twice", Coordinator._counts, only(call("_is_of_attempt", 2, of=2))),
    PlantedBug("what an old attempt had pending is committed", Coordinator._start, dropped(assignment(8, of=9))),
    PlantedBug("who ended in the old attempt has ended", Coordinator._start, dropped(assignment(7, of=9))),
    PlantedBug("a checkpoint completes without one part", Coordinator._complete_if_whole,
               plus(condition(3, of=3).operand(2), -1)),
    PlantedBug("there is no last checkpoint", Coordinator._begin_wanted, dropped(condition(2, of=2).operand(2))),
    PlantedBug("the last checkpoint is tried again without a pause", Coordinator._begin_wanted,
               dropped(condition(2, of=2).operand(2).operand(2))),
    PlantedBug("the last checkpoint is never tried again", Coordinator.deadline,
               dropped(assignment().value.operand(1))),
    PlantedBug("the last checkpoint is not the last", Coordinator._settle, never(call("all_finished"))),
    PlantedBug("a checkpoint takes as long as it likes", Coordinator._counts,
               replaced(returned(1, of=5), "THIS and self.phase is Phase.WAITING")),
    PlantedBug("there is no pause", Coordinator._close, only(call("max").argument(1))),
    PlantedBug("there is no interval", Coordinator._close, only(call("max").argument(2))),
    PlantedBug("failures are counted for ever", Coordinator._settle, dropped(assignment(1, of=3))),
    PlantedBug("any number of failures is tolerated", Coordinator._fail, always(condition())),
    PlantedBug("a savepoint that failed is a failure of the job", Coordinator._fail,
               constant(increment(2, of=2).value, 1)),
    PlantedBug("a savepoint waits for the time of a checkpoint", Coordinator._begin_wanted,
               dropped(call("next").argument(1).filter.operand(2))),
    PlantedBug("a savepoint that is asked for late is not taken", Coordinator._settle, only(call("all_finished"))),
    PlantedBug("a savepoint is taken again and again", Coordinator._begin_wanted, dropped(call("remove"))),
    PlantedBug("who asks last is served first", Coordinator._begin_wanted,
               replaced(call("next").argument(1).iterable, "reversed(THIS)")),
    PlantedBug("nobody hears of a savepoint that a restart ends", Coordinator._interrupt, dropped(call("_give_up"))),
    PlantedBug("a restart forgets what was asked for", Coordinator._start,
               replaced(assignment(7, of=9), "THIS; self._requests.clear()")),
    PlantedBug("a barrier that begins later is of no savepoint", Coordinator._trigger_below,
               dropped(call("TriggerCheckpoint").argument(3))),
    PlantedBug("a savepoint for the end is taken before", Coordinator._begin_wanted,
               always(call("next").argument(1).filter)),
    PlantedBug("a stop is a checkpoint like others", Coordinator._settle, dropped(condition().operand(2))),
    PlantedBug("a restart forgets the stop that is under way", Coordinator._ask_again, dropped(call("appendleft"))),
    PlantedBug("a stop that begins again is said to have failed", Coordinator._ask_again, dropped(assignment())),
    PlantedBug("metadata that is stored too late counts", Coordinator._counts, always(returned(2, of=5))),
    PlantedBug("what is pending is forgotten when a checkpoint is given up", Coordinator._give_up,
               replaced(increment(), "THIS; self._pending = {}")),
    PlantedBug("a checkpoint is given up while it is committed", Coordinator._succeed,
               replaced(call("_close"), "self._give_up('interrupted')")),
    PlantedBug("a task that has ended takes its part", SimTask.inject, always(condition())),
]  # fmt: skip


def test_a_job_in_any_order() -> None:
    run_machine(CoordinatorMachine, settings(HUNT_COORDINATOR, max_examples=100), alike=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, CoordinatorMachine, HUNT_COORDINATOR, alike=True)
