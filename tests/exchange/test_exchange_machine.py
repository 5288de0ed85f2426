"""A whole exchange under random interleaving, and the planted bugs that this finds (docs/evidence/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.channels import LocalInputChannel as Local
from headgate.exchange.due import DueOutput as Due
from headgate.exchange.gathering import Gathering
from headgate.exchange.pending import PendingSlices as Pending
from headgate.exchange.plain_channel import PlainInputChannel as PlainRemote
from headgate.exchange.plain_channel import PlainLocalChannel as PlainLocal
from headgate.exchange.union_gate import UnionGate
from headgate.exchange.watermark_valve import WatermarkValve as Valve
from headgate.exchange.writer import RecordWriter as Writer
from headgate.protocol.receiver import Receiver
from headgate.records.spanning import SpanningDeserializer as Deserializer
from headgate.runtime.task.barriers import TaskBarriers as Barriers
from headgate.runtime.task.input import TaskInput as Input
from tests.exchange.exchange_machine import ExchangeMachine
from tests.memory.edits import always, calling, constant, dropped, never, replaced
from tests.memory.places import assignment, call, comparison, condition, increment, returned, subscript
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    # The writer.
    PlantedBug("a watermark overtakes the rows that it is cut with", Writer._cut,
               replaced(call("_partition_pending"), "THIS; self._write_watermark(pending)")),
    PlantedBug("a watermark overtakes pending rows", Writer.emit_watermark, always(condition(2, of=2))),
    PlantedBug("a watermark overtakes rows without a channel", Writer.emit_watermark, never(condition(1, of=2))),
    PlantedBug("a watermark behind rows without a channel is lost", Writer._partition_pending,
               dropped(call("emit_watermark"))),
    PlantedBug("a watermark that waits alone is forgotten", Writer.on_time, dropped(call("_watermark_alone"))),
    PlantedBug("a barrier overtakes pending rows", Writer.write_barrier, dropped(call("_cut"))),
    PlantedBug("a barrier overtakes what is due", Due.put,
               replaced(call("append"),
                        "self._items[channel].insert(0 if isinstance(item, Event) else len(self._items[channel]),"
                        " item)")),
    PlantedBug("the end loses what is pending", Writer.finish, dropped(call("_cut"))),
    PlantedBug("a flush is forgotten while a message is due", Due.flush, dropped(call("add"))),
    PlantedBug("a flush leaves rows without a channel", Writer.flush, dropped(call("_partition_pending"))),
    PlantedBug("bytes that were written stay counted", Due._write, dropped(increment())),
    PlantedBug("batches that were cut stay counted", Writer._cut, dropped(increment())),
    PlantedBug("a cancelled writer keeps its count", Writer.close, dropped(assignment(2, of=2))),
    PlantedBug("beyond the budget one message is cut", Writer._cut_oldest, replaced(call("_cut"), "return THIS")),
    PlantedBug("the last row of a message is lost", Pending.cut,
               replaced(call("slice").argument(2), "THIS - (len(edges) > 2)")),
    PlantedBug("a latency marker overtakes pending rows", Writer.emit_marker, always(condition(1, of=2))),
    PlantedBug("a latency marker overtakes rows without a channel", Writer.emit_marker,
               dropped(call("_partition_pending"))),
    PlantedBug("a latency marker that waits behind rows is lost", Writer._cut, dropped(call("_write_markers"))),
    PlantedBug("a latency marker goes with each message", Writer._write_markers,
               replaced(assignment(), "markers = pending.markers")),
    PlantedBug("a latency marker goes to all channels", Writer._write_markers,
               replaced(call("put"), "self._write(pending, marker)")),
    # Channels and gates.
    PlantedBug("a local channel never goes on behind a barrier", Local.resume, dropped(call("resume"))),
    PlantedBug("a local channel says that it has no more", Local._take, never(comparison())),
    PlantedBug("a remote channel's word is not sent", Receiver.send, dropped(call("append"))),
    PlantedBug("a union forgets gates that have more", UnionGate.poll, never(condition(2, of=3))),
    PlantedBug("a gate of a union that has more is the next", UnionGate._notify, calling(call("append"), "appendleft")),
    PlantedBug("a gate of a union stands in line twice", UnionGate._notify, always(condition())),
    PlantedBug("each gate of a union counts its channels from the first", UnionGate.poll, dropped(subscript(4, of=4))),
    PlantedBug("a barrier that overtakes is one of the first gate", Barriers._take_urgent, dropped(increment())),
    PlantedBug("what was spilled behind a barrier is overtaken", PlainLocal.poll, always(condition(2, of=2))),
    PlantedBug("a producer waits behind the barrier of another", PlainLocal._take, dropped(call("resume"))),
    PlantedBug("what is behind a barrier is not kept", PlainRemote.poll, never(condition(1, of=4))),
    PlantedBug("a remote producer waits behind a barrier", PlainRemote.on_event, dropped(call("_send_message"))),
    # The input.
    PlantedBug("a watermark overtakes the rows it came behind", Input.next,
               replaced(condition(2, of=4), "THIS and self._watermark is None")),
    PlantedBug("a latency marker overtakes the rows it came behind", Input.next,
               replaced(condition(2, of=4), "THIS and not self._markers")),
    PlantedBug("rows overtake a latency marker", Input._has_room, dropped(returned().operand(3))),
    PlantedBug("buffers that were read stay with the task", Input._read, dropped(call("recycle_all"))),
    PlantedBug("the event time is that of the fastest channel", Valve._advance, calling(call("min"), "max")),
    PlantedBug("an idle channel holds back the event time", Valve.on_status, always(assignment(2, of=2).value)),
    PlantedBug("a channel that has ended holds back the event time", Valve.end, constant(call("on_watermark"), None)),
    PlantedBug("the processing of all records is not acknowledged", Barriers.catch_up, dropped(call("acknowledge"))),
    PlantedBug("an element that spans buffers starts again", Deserializer.feed, dropped(assignment(4, of=5))),
    PlantedBug("a complete message stays counted", Gathering.complete, dropped(increment(2, of=2))),
]  # fmt: skip


def test_whole_exchanges_under_random_interleaving() -> None:
    run_machine(ExchangeMachine, settings(HUNT, max_examples=63, stateful_step_count=25))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, ExchangeMachine)
