"""A blocking partition under random interleaving, and the planted bugs that this finds
(docs/evidence/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.blocking import BlockingSubpartition as Blocking
from headgate.exchange.partition import ResultPartition
from headgate.exchange.partition_file import FileBuffer, PartitionFile
from headgate.memory.buffer import FileRegion
from tests.exchange.blocking_machine import BlockingMachine
from tests.memory.edits import always, constant, dropped, replaced
from tests.memory.places import assignment, call, comparison, condition, increment, returned
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    PlantedBug("a run that was written keeps its segments", Blocking.add_filled, dropped(call("recycle"))),
    PlantedBug("a full segment goes to disk with the next", ResultPartition.write, dropped(call("announce"))),
    PlantedBug("a buffer that was written keeps its segment", Blocking.announce, dropped(call("close"))),
    PlantedBug("the buffers of a run are in one place", Blocking._write, dropped(increment(1, of=3))),
    PlantedBug("a run counts as one buffer on disk", Blocking._write, constant(increment(3, of=3).value, 1)),
    PlantedBug("what did not get smaller is taken for compressed", Blocking._write,
               replaced(comparison(2, of=2), "not self._compress")),
    PlantedBug("the end is not in the file", Blocking.finish, dropped(call("_add_event"))),
    PlantedBug("a reader comes before the end", Blocking.attach, dropped(condition().operand(3))),
    PlantedBug("two readers of one file", Blocking.attach, dropped(assignment(2, of=2))),
    PlantedBug("a reader that attaches is not notified", Blocking.attach, dropped(call("listener"))),
    PlantedBug("an event from a file is polled in company", Blocking.poll, dropped(comparison(6, of=6))),
    PlantedBug("data in a file need no credit", Blocking.is_available, always(returned().operand(2).operand(1))),
    PlantedBug("a reader that left holds the file", Blocking.release, dropped(call("release"))),
    PlantedBug("a released output keeps what is being filled", Blocking.release, dropped(call("close"))),
    PlantedBug("buffers are looked for behind where they are", PartitionFile.append, replaced(returned(), "self.size")),
    PlantedBug("a buffer that was read still holds the file", PartitionFile.recycle, dropped(call("release"))),
    PlantedBug("the last reader leaves the file open", PartitionFile.release, dropped(call("close", 1, of=2))),
    PlantedBug("all buffers are sent from the beginning of the file", FileBuffer.pieces,
               constant(call("FileRegion").argument(2), 0)),
    PlantedBug("a socket that takes a part of a file gets it again", FileRegion.after,
               dropped(call("FileRegion").argument(2).operand(2))),
]  # fmt: skip


def test_blocking_partitions_under_random_interleaving() -> None:
    run_machine(BlockingMachine, settings(HUNT, max_examples=45, stateful_step_count=25))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, BlockingMachine)
