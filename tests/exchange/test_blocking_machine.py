"""A blocking partition under random interleaving, and the planted bugs that this finds (docs/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.blocking import BlockingSubpartition as Blocking
from headgate.exchange.partition import ResultPartition
from headgate.exchange.partition_file import FileBuffer, PartitionFile
from headgate.memory.buffer import FileRegion
from tests.exchange.blocking_machine import BlockingMachine
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    PlantedBug("a run that was written keeps its segments", Blocking, "add_filled", "buffer.recycle()", "pass"),
    PlantedBug("a full segment goes to disk with the next", ResultPartition, "write", "subpartition.announce()",
               "pass"),
    PlantedBug("a buffer that was written keeps its segment", Blocking, "announce", "consumer.close()", "pass"),
    PlantedBug("the buffers of a run are in one place", Blocking, "_write", "at += len(piece)", "pass"),
    PlantedBug("a run counts as one buffer on disk", Blocking, "_write", "self._backlog += len(pieces)",
               "self._backlog += 1"),
    PlantedBug("what did not get smaller is taken for compressed", Blocking, "_write", "0 if smaller is None",
               "0 if not self._compress"),
    PlantedBug("the end is not in the file", Blocking, "finish", "self._add_event(encode_event(EndOfPartition()))",
               "pass"),
    PlantedBug("a reader comes before the end", Blocking, "attach", "or not self.finished:", ":"),
    PlantedBug("two readers of one file", Blocking, "attach", "self._has_reader = True", "pass"),
    PlantedBug("a reader that comes is not told", Blocking, "attach", "listener()", "pass"),
    PlantedBug("an event from a file is polled in company", Blocking, "poll", "or next_is_event is not False", ""),
    PlantedBug("data in a file need no credit", Blocking, "is_available", "has_credit or", "True or"),
    PlantedBug("a reader that left holds the file", Blocking, "release", "self._file.release()", "pass"),
    PlantedBug("a released output keeps what is being filled", Blocking, "release", "current.close()", "pass"),
    PlantedBug("buffers are looked for behind where they are", PartitionFile, "append", "return start",
               "return self.size"),
    PlantedBug("a buffer that was read still holds the file", PartitionFile, "recycle", "self.release(len(segments))",
               "pass"),
    PlantedBug("the last reader leaves the file open", PartitionFile, "release", "os.close(self._descriptor)", "pass"),
    PlantedBug("all buffers are sent from the beginning of the file", FileBuffer, "pieces", "self.offset, self.size",
               "0, self.size"),
    PlantedBug("a socket that takes a part of a file gets it again", FileRegion, "after", "self.offset + count",
               "self.offset"),
]  # fmt: skip


def test_blocking_partitions_under_random_interleaving() -> None:
    run_machine(BlockingMachine, settings(HUNT, max_examples=45, stateful_step_count=25))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, BlockingMachine)
