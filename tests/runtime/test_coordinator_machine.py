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
    PlantedBug("the results flushed for a failed checkpoint are lost", Coordinator._note,
               replaced(condition(), "THIS and self.phase is Phase.COLLECTING and event.checkpoint == self._last")),
    PlantedBug("the pending results at a task's end are committed before the task counts as finished",
               Coordinator._covered, always(call("isinstance"))),
    PlantedBug("the pending results at a task's end are never committed", Coordinator._covered,
               never(call("isinstance"))),
    PlantedBug("committed results stay pending", Coordinator._settle, dropped(deletion())),
    PlantedBug("a task that ended after its part of a checkpoint counts as finished in that checkpoint",
               Coordinator._is_reported, always(returned().operand(2))),
    PlantedBug("a task whose producers have all ended does not become a root", Coordinator._trigger_below,
               never(condition(2, of=2))),
    PlantedBug("a task that the barrier will reach also becomes a root", Coordinator._trigger_below,
               only(call("union").argument(1))),
    PlantedBug("a task that the previous checkpoint reached counts as reached by the current one", Coordinator._trigger,
               replaced(assignment(5, of=5), "self._parts = {}")),
    PlantedBug("parts of the previous checkpoint count for the current one", Coordinator._trigger,
               replaced(assignment(5, of=5), "self._reached = set()")),
    PlantedBug("tasks that have ended are triggered", Coordinator._trigger, dropped(comparison(3, of=3))),
    PlantedBug("tasks with running producers are triggered", Coordinator._trigger, only(comparison(3, of=3))),
    PlantedBug("a late acknowledgement counts for the current checkpoint", Coordinator._add_part,
               always(condition())),
    PlantedBug("a declined part does not fail the checkpoint", Coordinator._lack_part, never(condition())),
    PlantedBug("the reports of an older attempt count", Coordinator._is_of_attempt, dropped(returned().operand(1))),
    PlantedBug("a task can end twice", Coordinator._counts, only(call("_is_of_attempt", 2, of=2))),
    PlantedBug("the pending results of an older attempt are committed", Coordinator._start,
               dropped(assignment(8, of=9))),
    PlantedBug("tasks that ended in an older attempt count as ended", Coordinator._start, dropped(assignment(7, of=9))),
    PlantedBug("a checkpoint completes without the part of one task", Coordinator._complete_if_whole,
               plus(condition(3, of=3).operand(2), -1)),
    PlantedBug("the job takes no last checkpoint after all tasks have ended", Coordinator._begin_wanted,
               dropped(condition(2, of=2).operand(2))),
    PlantedBug("a failed last checkpoint is tried again without a pause", Coordinator._begin_wanted,
               dropped(condition(2, of=2).operand(2).operand(2))),
    PlantedBug("a failed last checkpoint is never tried again", Coordinator.deadline,
               dropped(assignment().value.operand(1))),
    PlantedBug("the job does not end after its last checkpoint", Coordinator._settle, never(call("all_finished"))),
    PlantedBug("a checkpoint never times out", Coordinator._counts,
               replaced(returned(1, of=5), "THIS and self.phase is Phase.WAITING")),
    PlantedBug("the coordinator ignores the minimum pause between checkpoints", Coordinator._close,
               only(call("max").argument(1))),
    PlantedBug("the coordinator ignores the checkpoint interval", Coordinator._close, only(call("max").argument(2))),
    PlantedBug("a successful checkpoint does not reset the number of failures", Coordinator._settle,
               dropped(assignment(1, of=3))),
    PlantedBug("the coordinator tolerates any number of failed checkpoints", Coordinator._fail, always(condition())),
    PlantedBug("a failed savepoint counts as a failed checkpoint of the job", Coordinator._fail,
               constant(increment(2, of=2).value, 1)),
    PlantedBug("a requested savepoint waits until all tasks have ended", Coordinator._begin_wanted,
               dropped(call("next").argument(1).filter.operand(2))),
    PlantedBug("a savepoint that is requested during the last checkpoint is not taken", Coordinator._settle,
               only(call("all_finished"))),
    PlantedBug("a requested savepoint is taken again and again", Coordinator._begin_wanted, dropped(call("remove"))),
    PlantedBug("the newest request is served first", Coordinator._begin_wanted,
               replaced(call("next").argument(1).iterable, "reversed(THIS)")),
    PlantedBug("a restart does not report that it ended a running savepoint", Coordinator._interrupt,
               dropped(call("_give_up"))),
    PlantedBug("a restart forgets the waiting requests", Coordinator._start,
               replaced(assignment(7, of=9), "THIS; self._requests.clear()")),
    PlantedBug("a root that is triggered later does not learn that the checkpoint is a savepoint",
               Coordinator._trigger_below, dropped(call("TriggerCheckpoint").argument(3))),
    PlantedBug("a savepoint that is requested for the end is taken before the end", Coordinator._begin_wanted,
               always(call("next").argument(1).filter)),
    PlantedBug("the job does not end after the checkpoint of a stop", Coordinator._settle,
               dropped(condition().operand(2))),
    PlantedBug("a restart forgets the stop that is in progress", Coordinator._ask_again, dropped(call("appendleft"))),
    PlantedBug("a stop that a restart repeats is reported as failed", Coordinator._ask_again, dropped(assignment())),
    PlantedBug("the metadata of an older checkpoint counts for the current checkpoint", Coordinator._counts,
               always(returned(2, of=5))),
    PlantedBug("a failed checkpoint drops the pending results", Coordinator._give_up,
               replaced(increment(), "THIS; self._pending = {}")),
    PlantedBug("a checkpoint whose metadata is stored is given up", Coordinator._succeed,
               replaced(call("_close"), "self._give_up('interrupted')")),
    PlantedBug("a task that has ended takes part in a checkpoint", SimTask.inject, always(condition())),
]  # fmt: skip


def test_a_job_in_any_order() -> None:
    run_machine(CoordinatorMachine, settings(HUNT_COORDINATOR, max_examples=100), alike=True)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, CoordinatorMachine, HUNT_COORDINATOR, alike=True)
