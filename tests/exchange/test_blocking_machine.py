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
    PlantedBug("a run that is written to the file keeps its segments", Blocking.add_filled, dropped(call("recycle"))),
    PlantedBug("a full segment is written to the file only together with the next one", ResultPartition.write,
               dropped(call("_announce"))),
    PlantedBug("a buffer that is written to the file keeps its segment", Blocking.announce, dropped(call("close"))),
    PlantedBug("all buffers of a run get the same offset in the file", Blocking._write, dropped(increment(1, of=3))),
    PlantedBug("a run of several buffers in the file counts as one in the backlog", Blocking._write,
               constant(increment(3, of=3).value, 1)),
    PlantedBug("a buffer that compression did not make smaller is marked as compressed", Blocking._write,
               replaced(comparison(2, of=2), "not self._compress")),
    PlantedBug("the end of the partition is not queued", Blocking.finish, dropped(call("_add_event"))),
    PlantedBug("a reader can attach before the end of the partition", Blocking.attach, dropped(condition().operand(3))),
    PlantedBug("a second reader can attach", Blocking.attach, dropped(assignment(2, of=2))),
    PlantedBug("a reader that attaches is not notified", Blocking.attach, dropped(call("listener"))),
    PlantedBug("a poll returns an event together with data", Blocking.poll, dropped(comparison(6, of=6))),
    PlantedBug("data in the file count as available without credit", Blocking.is_available,
               always(returned().operand(2).operand(1))),
    PlantedBug("a reader that has left keeps the file open", Blocking.release, dropped(call("release"))),
    PlantedBug("a released subpartition keeps the segment that is being filled", Blocking.release,
               dropped(call("close"))),
    PlantedBug("the file returns the offset of its end, not of the buffer", PartitionFile.append,
               replaced(returned(), "self.size")),
    PlantedBug("a recycled buffer keeps the file open", PartitionFile.recycle, dropped(call("release"))),
    PlantedBug("the last release does not close the file", PartitionFile.release, dropped(call("close", 1, of=2))),
    PlantedBug("all buffers are sent from the beginning of the file", FileBuffer.pieces,
               constant(call("FileRegion").argument(2), 0)),
    PlantedBug("a socket that accepted a part of a file region gets this part again", FileRegion.after,
               dropped(call("FileRegion").argument(2).operand(2))),
]  # fmt: skip


def test_blocking_partitions_under_random_interleaving() -> None:
    run_machine(BlockingMachine, settings(HUNT, max_examples=45, stateful_step_count=25))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, BlockingMachine)
