"""A link without credit under random interleaving, and the planted bugs that this finds (docs/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.protocol.decoders import ResponseDecoder as Responses
from headgate.protocol.outgoing import Outgoing
from headgate.protocol.plain_tcp import PlainReceiver, SharedBuffers
from tests.exchange.plain_machine import PlainMachine
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    PlantedBug("a frame without a buffer waits for none", SharedBuffers, "take",
               "self._waiting = self._pool.add_listener(self._offer)", "self._waiting = True"),
    PlantedBug("the buffer that came for a frame is not taken", SharedBuffers, "take",
               "segments, self._offered = self._offered, []", "segments = []"),
    PlantedBug("a channel without a buffer discards", SharedBuffers, "take",
               "return segments or LATER", "return segments or None"),
    PlantedBug("a run takes a buffer too many", SharedBuffers, "take",
               "request_many(count)", "request_many(count + 1)"),
    PlantedBug("a frame waits for good after its first buffer", SharedBuffers, "_offer", "self._waiting = False",
               "pass"),
    PlantedBug("a buffer comes and tells nobody", SharedBuffers, "_offer", "self._on_buffer()", "pass"),
    PlantedBug("a released channel keeps the buffer that had come", SharedBuffers, "release",
               "self._pool.recycle_many(segments)", "pass"),
    PlantedBug("a consumed shared buffer is lost", SharedBuffers, "recycle",
               "self._pool.recycle_many(segments)", "pass"),
    PlantedBug("a buffer that came does not go to the frame", PlainReceiver, "credit_available",
               "self._resume()", "pass"),
    PlantedBug("a frame that waits is read over", Responses, "buffers", "if self.is_waiting:", "if False:"),
    PlantedBug("bytes behind a frame that waits are lost", Responses, "resume",
               "yield from self._parse(self._staged)", 'yield from self._parse(b"")'),
    PlantedBug("the rest of a run that had too little memory is forgotten", Responses, "_go_on", "self._place(rest)",
               "pass"),
    PlantedBug("the rest of a run is as long as the part before it", Responses, "_place", "size=size - room",
               "size=room"),
    PlantedBug("the rest of a run has the number of the part before it", Responses, "_place",
               "response.sequence + room // self._segment_size", "response.sequence"),
    PlantedBug("the rest of a run has the number behind that of the part before it", Responses, "_place",
               "response.sequence + room // self._segment_size", "response.sequence + 1"),
    PlantedBug("a socket that takes a part gets it again", Outgoing, "_drop", "del pieces[:whole]", "pass"),
    PlantedBug("buffers are recycled before they are written", Outgoing, "written",
               "batches[0][0] <= self._written", "batches"),
    PlantedBug("a lost connection keeps what was not written", Outgoing, "release", "recycle_all(buffers)", "pass"),
]  # fmt: skip


def test_links_without_credit_under_random_interleaving() -> None:
    run_machine(PlainMachine, settings(HUNT, max_examples=45, stateful_step_count=40))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, PlainMachine)
