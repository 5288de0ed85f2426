"""One subpartition under random use, and the planted bugs that this finds (docs/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.subpartition import PipelinedSubpartition as Subpartition
from tests.exchange.subpartition_machine import SubpartitionMachine
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

#: Each step of the machine is twenty.
LONG = settings(HUNT, stateful_step_count=10)

BUGS = [
    # What the writer queues.
    PlantedBug("a finished subpartition takes more", Subpartition, "add",
               "if not self._released and not self.finished:", "if not self._released:"),
    PlantedBug("a released subpartition takes more", Subpartition, "add_filled",
               "if not self._released and not self.finished:", "if not self.finished:"),
    PlantedBug("a flush of nothing is kept for what comes", Subpartition, "flush",
               "len(self._queue) > 1 or isinstance(head, Buffer) or head.has_unread", "True"),
    # Barriers that overtake.
    PlantedBug("a second priority barrier goes before the first", Subpartition, "_insert_priority",
               "sum(1 for _ in queued)", "0"),
    PlantedBug("the reader hears of a barrier that it cannot poll", Subpartition, "_insert_priority",
               " if not self._blocked else _tell_nobody", ""),
    PlantedBug("a barrier that overtakes leaves itself behind", Subpartition, "prioritise",
               "del self._queue[position]", "pass"),
    PlantedBug("a barrier says that it overtakes what is behind it", Subpartition, "prioritise",
               "self._data_before(position)", "self._data_before(len(self._queue))"),
    PlantedBug("a barrier overtakes and still blocks", Subpartition, "prioritise", "barrier.as_priority()", "barrier"),
    PlantedBug("an empty buffer that is overtaken is never given back", Subpartition, "_data_before",
               "empty.recycle()", "pass"),
    PlantedBug("a barrier that overtakes passes one that blocks", Subpartition, "poll_priority",
               "if self._queue and not self._blocked else", "if self._queue else"),
    PlantedBug("a barrier polled before its turn has no number", Subpartition, "poll_priority",
               "self._sequence + 1", "self._sequence"),
    # What the reader sees.
    PlantedBug("a backlog is reported behind a barrier that blocks", Subpartition, "_reported_backlog",
               " or self._blocked", ""),
    PlantedBug("the buffer that is being filled counts in the reported backlog", Subpartition, "_reported_backlog",
               "return self._backlog - 1", "return self._backlog"),
    PlantedBug("an event is polled in company", Subpartition, "poll",
               "next_is_event is not False", "next_is_event is None"),
    PlantedBug("a reader goes on though no barrier blocks it", Subpartition, "resume",
               "if not self._blocked and not self._released:", "if False:"),
    PlantedBug("a reader that goes on is not told of what is there", Subpartition, "resume",
               "notify, starved = self._news(), self._hunger()", "notify, starved = None, self._hunger()"),
    PlantedBug("a reader that comes is not told of what is there", Subpartition, "attach",
               "notify, starved = self._news(), self._hunger()", "notify, starved = None, self._hunger()"),
    PlantedBug("two readers", Subpartition, "attach", "if self._listener is not None:", "if False:"),
    PlantedBug("a reader is told while it still looks", Subpartition, "_news", "not self._reader_waits or ", ""),
    PlantedBug("an empty buffer's credit is not taken back", Subpartition, "_take",
               "(head_finished and self._sends_empty)", "False"),
    PlantedBug("empty buffers are sent to those who need none", Subpartition, "_take",
               "(head_finished and self._sends_empty)", "head_finished"),
    # What the writer hears.
    PlantedBug("a reader whose consumer is busy counts as starved", Subpartition, "_is_starved",
               " and self._is_whole", ""),
    PlantedBug("the last thing was a priority barrier, and nobody hears of the hunger", Subpartition, "poll_priority",
               "starved = self._hunger()", "starved = False"),
    PlantedBug("credit comes and nobody hears of the hunger", Subpartition, "credit_changed",
               "starved = self._hunger()", "starved = False"),
    PlantedBug("a writer is told of each hunger", Subpartition, "_hunger", "self._writer_waits = False", "pass"),
    PlantedBug("a writer that was told at once is told again", Subpartition, "is_starved",
               "tell and not starved", "tell"),
    PlantedBug("nobody hears of the reader's last word", Subpartition, "acknowledge", "self._on_settled()", "pass"),
    PlantedBug("nobody hears that the reader left", Subpartition, "release", "self._on_settled()", "pass"),
    PlantedBug("what is queued is not given back", Subpartition, "release",
               "queued.recycle() if isinstance(queued, Buffer) else queued.close()", "pass"),
]  # fmt: skip


def test_subpartitions_under_random_use() -> None:
    run_machine(SubpartitionMachine, settings(LONG, max_examples=60))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, SubpartitionMachine, LONG)
