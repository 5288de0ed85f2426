"""One subpartition under random use, and the planted bugs that this finds (docs/evidence/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.subpartition import PipelinedSubpartition as Subpartition
from tests.exchange.subpartition_machine import SubpartitionMachine
from tests.memory.edits import always, constant, dropped, never, only, replaced
from tests.memory.places import assignment, call, choice, comparison, condition, deletion, operation, returned
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

#: Each step of the machine is twenty.
LONG = settings(HUNT, stateful_step_count=10)

BUGS = [
    # What the writer queues.
    PlantedBug("a finished subpartition still queues items", Subpartition.add, dropped(condition(1, of=2).operand(2))),
    PlantedBug("a released subpartition still queues buffers", Subpartition.add_filled,
               dropped(condition().operand(1))),
    PlantedBug("a flush of an empty buffer makes later bytes visible", Subpartition.flush,
               always(assignment(2, of=3).value)),
    # Barriers that overtake.
    PlantedBug("a second priority barrier is queued ahead of the first", Subpartition._insert_priority,
               constant(call("sum"), 0)),
    PlantedBug("the reader is notified of a priority barrier while another barrier blocks it",
               Subpartition._insert_priority, only(returned().then)),
    PlantedBug("a barrier that overtakes also stays in its old place", Subpartition.prioritise, dropped(deletion())),
    PlantedBug("a barrier reports the data behind it as overtaken", Subpartition.prioritise,
               replaced(call("_data_before").argument(1), "len(self._queue)")),
    PlantedBug("a barrier that overtakes still blocks its reader", Subpartition.prioritise,
               only(call("as_priority").object)),
    PlantedBug("an overtaken empty buffer is never recycled", Subpartition._data_before,
               dropped(call("recycle"))),
    PlantedBug("the reader polls a priority barrier while another barrier blocks it", Subpartition.poll_priority,
               dropped(choice().condition.operand(2))),
    PlantedBug("a polled priority barrier takes no sequence number", Subpartition.poll_priority,
               dropped(operation(3, of=3).operand(2))),
    # What the reader sees.
    PlantedBug("a blocked subpartition reports a backlog", Subpartition._reported_backlog,
               dropped(condition(1, of=2).operand(2))),
    PlantedBug("the reported backlog counts the unfinished buffer", Subpartition._reported_backlog,
               dropped(operation().operand(2))),
    PlantedBug("a poll returns an event together with data", Subpartition.poll,
               replaced(comparison(3, of=4), "next_is_event is None")),
    PlantedBug("resuming a reader that no barrier blocks raises no error", Subpartition.resume,
               never(condition(1, of=3))),
    PlantedBug("a reader that resumes is not notified of available data", Subpartition.resume,
               constant(call("_take_listener"), None)),
    PlantedBug("a reader that attaches is not notified of available data", Subpartition.attach,
               constant(call("_take_listener"), None)),
    PlantedBug("a second reader can attach", Subpartition.attach, never(condition(1, of=4))),
    PlantedBug("a reader that is still polling is notified", Subpartition._take_listener,
               dropped(condition().operand(2))),
    PlantedBug("an empty buffer is not sent, so its credit is not used up", Subpartition._take,
               never(condition(8, of=9).operand(2))),
    PlantedBug("empty buffers are sent to readers that did not ask for them", Subpartition._take,
               dropped(condition(8, of=9).operand(2).operand(2))),
    # What the writer hears.
    PlantedBug("a reader counts as starved while its consumer still holds buffers", Subpartition._is_starved,
               dropped(assignment().value.operand(2))),
    PlantedBug("the writer is not notified of a reader that starves after a priority barrier",
               Subpartition.poll_priority,
               never(call("_end_wait"))),
    PlantedBug("the writer is not notified when its reader starves after its credit grew", Subpartition.credit_changed,
               never(call("_end_wait"))),
    PlantedBug("the writer is notified each time its reader starves, not only once", Subpartition._end_wait,
               dropped(assignment())),
    PlantedBug("the writer is notified though it was already answered that its reader starves",
               Subpartition.watch_for_starvation,
               dropped(assignment(2, of=2).value.operand(2))),
    PlantedBug("when the reader has processed all records, on_settled is not called", Subpartition.acknowledge,
               dropped(call("_on_settled"))),
    PlantedBug("a reader that has left counts as one that has processed all records", Subpartition.is_settled,
               replaced(returned(), "THIS or self._released")),
    PlantedBug("on_settled is not called when the reader has left", Subpartition.release, dropped(call("_on_settled"))),
    PlantedBug("a released subpartition does not recycle its queued buffers", Subpartition.release, dropped(choice())),
]  # fmt: skip


def test_subpartitions_under_random_use() -> None:
    run_machine(SubpartitionMachine, settings(LONG, max_examples=60))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, SubpartitionMachine, LONG)
