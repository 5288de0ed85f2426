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
    PlantedBug("a finished subpartition takes more", Subpartition.add, dropped(condition(1, of=2).operand(2))),
    PlantedBug("a released subpartition takes more", Subpartition.add_filled, dropped(condition().operand(1))),
    PlantedBug("a flush of nothing is kept for what comes", Subpartition.flush, always(assignment(2, of=3).value)),
    # Barriers that overtake.
    PlantedBug("a second priority barrier goes before the first", Subpartition._insert_priority,
               constant(call("sum"), 0)),
    PlantedBug("the reader hears of a barrier that it cannot poll", Subpartition._insert_priority,
               only(returned().then)),
    PlantedBug("a barrier that overtakes leaves itself behind", Subpartition.prioritise, dropped(deletion())),
    PlantedBug("a barrier says that it overtakes what is behind it", Subpartition.prioritise,
               replaced(call("_data_before").argument(1), "len(self._queue)")),
    PlantedBug("a barrier overtakes and still blocks", Subpartition.prioritise, only(call("as_priority").object)),
    PlantedBug("an empty buffer that is overtaken is never given back", Subpartition._data_before,
               dropped(call("recycle"))),
    PlantedBug("a barrier that overtakes passes one that blocks", Subpartition.poll_priority,
               dropped(choice().condition.operand(2))),
    PlantedBug("a barrier polled before its turn has no number", Subpartition.poll_priority,
               dropped(operation(3, of=3).operand(2))),
    # What the reader sees.
    PlantedBug("a backlog is reported behind a barrier that blocks", Subpartition._reported_backlog,
               dropped(condition(1, of=2).operand(2))),
    PlantedBug("the buffer that is being filled counts in the reported backlog", Subpartition._reported_backlog,
               dropped(operation().operand(2))),
    PlantedBug("an event is polled in company", Subpartition.poll,
               replaced(comparison(3, of=4), "next_is_event is None")),
    PlantedBug("a reader goes on though no barrier blocks it", Subpartition.resume, never(condition(1, of=3))),
    PlantedBug("a reader that resumes is not notified of available data", Subpartition.resume,
               constant(call("_take_listener"), None)),
    PlantedBug("a reader that attaches is not notified of available data", Subpartition.attach,
               constant(call("_take_listener"), None)),
    PlantedBug("two readers", Subpartition.attach, never(condition(1, of=4))),
    PlantedBug("a reader is notified while it still polls", Subpartition._take_listener,
               dropped(condition().operand(2))),
    PlantedBug("an empty buffer's credit is not taken back", Subpartition._take, never(condition(8, of=9).operand(2))),
    PlantedBug("empty buffers are sent to those who need none", Subpartition._take,
               dropped(condition(8, of=9).operand(2).operand(2))),
    # What the writer hears.
    PlantedBug("a reader whose consumer is busy counts as starved", Subpartition._is_starved,
               dropped(assignment().value.operand(2))),
    PlantedBug("starvation after a priority barrier is not reported", Subpartition.poll_priority,
               never(call("_end_wait"))),
    PlantedBug("starvation after a credit is not reported", Subpartition.credit_changed, never(call("_end_wait"))),
    PlantedBug("a writer is notified each time its reader starves", Subpartition._end_wait, dropped(assignment())),
    PlantedBug("a writer that got its answer at once is notified again", Subpartition.ask_whether_starved,
               dropped(assignment(2, of=2).value.operand(2))),
    PlantedBug("the reader's acknowledgement is not reported", Subpartition.acknowledge, dropped(call("_on_settled"))),
    PlantedBug("the reader's release is not reported", Subpartition.release, dropped(call("_on_settled"))),
    PlantedBug("what is queued is not given back", Subpartition.release, dropped(choice())),
]  # fmt: skip


def test_subpartitions_under_random_use() -> None:
    run_machine(SubpartitionMachine, settings(LONG, max_examples=60))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, SubpartitionMachine, LONG)
