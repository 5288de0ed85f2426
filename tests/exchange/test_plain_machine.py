"""A link without credit under random interleaving, and the planted bugs that this finds
(docs/evidence/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.protocol.decoders import ResponseDecoder as Responses
from headgate.protocol.outgoing import Outgoing
from headgate.protocol.plain_tcp import PlainReceiver, SharedBuffers
from tests.exchange.plain_machine import PlainMachine
from tests.memory.edits import always, constant, dropped, never, plus, replaced
from tests.memory.places import assignment, call, comparison, condition, deletion, operation, returned
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    PlantedBug("a frame waits for a buffer without adding a listener", SharedBuffers.take,
               always(call("add_listener"))),
    PlantedBug("a waiting frame does not take the buffer that was offered to it", SharedBuffers.take,
               replaced(assignment(1, of=3), "segments = []")),
    PlantedBug("a channel without a free buffer discards the frame", SharedBuffers.take,
               constant(returned(2, of=2).operand(2), None)),
    PlantedBug("a run takes one buffer too many", SharedBuffers.take, plus(call("request_many").argument(1), 1)),
    PlantedBug("when the gate's pool has offered a buffer, the channel registers for no other", SharedBuffers._offer,
               dropped(assignment(1, of=2))),
    PlantedBug("an offered buffer does not call on_buffer", SharedBuffers._offer, dropped(call("_on_buffer"))),
    PlantedBug("a released channel keeps the buffer that was offered to it", SharedBuffers.release,
               dropped(call("recycle_many"))),
    PlantedBug("a consumed shared buffer is lost", SharedBuffers.recycle, dropped(call("recycle_many"))),
    PlantedBug("an offered buffer does not resume the waiting frame", PlainReceiver.credit_available,
               dropped(call("_resume"))),
    PlantedBug("the receiver continues to read while a frame waits for memory", Responses.buffers, never(condition())),
    PlantedBug("the bytes behind a waiting frame are lost", Responses.resume,
               constant(call("_parse").argument(1), b"")),
    PlantedBug("the decoder forgets the rest of a run that got too little memory", Responses._place_rest,
               dropped(call("_place"))),
    PlantedBug("the rest of a run gets the size of the part before it", Responses._place,
               dropped(call("replace").keyword(2).operand(1))),
    PlantedBug("the rest of a run gets the sequence number of the part before it", Responses._place,
               dropped(operation(4, of=8))),
    PlantedBug("the rest of a run gets a sequence number that is only one higher", Responses._place,
               constant(operation(4, of=8), 1)),
    PlantedBug("pieces that the socket has accepted are written again", Outgoing._drop, dropped(deletion())),
    PlantedBug("buffers are recycled before they are written", Outgoing.written,
               replaced(comparison(2, of=3), "batches")),
    PlantedBug("a lost connection does not recycle its unwritten buffers", Outgoing.release,
               dropped(call("recycle_all"))),
]  # fmt: skip


def test_links_without_credit_under_random_interleaving() -> None:
    run_machine(PlainMachine, settings(HUNT, max_examples=45, stateful_step_count=40))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, PlainMachine)
