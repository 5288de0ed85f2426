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
    PlantedBug("a watermark overtakes the pending rows that are cut with it", Writer._cut,
               replaced(call("_partition_pending"), "THIS; self._write_watermark(pending)")),
    PlantedBug("a watermark overtakes pending rows", Writer.emit_watermark, always(condition(2, of=2))),
    PlantedBug("a watermark overtakes rows that are not split over channels yet", Writer.emit_watermark,
               never(condition(1, of=2))),
    PlantedBug("a watermark behind rows that are not split over channels yet is lost", Writer._partition_pending,
               dropped(call("emit_watermark"))),
    PlantedBug("a watermark that waits for its interval is never sent", Writer.on_time,
               dropped(call("_watermark_alone"))),
    PlantedBug("a barrier overtakes pending rows", Writer.write_barrier, dropped(call("_cut"))),
    PlantedBug("a barrier overtakes due messages", Due.put,
               replaced(call("append"),
                        "self._items[channel].insert(0 if isinstance(item, Event) else len(self._items[channel]),"
                        " item)")),
    PlantedBug("the writer loses its pending rows at the end of the data", Writer.finish, dropped(call("_cut"))),
    PlantedBug("a flush is forgotten while a message is due", Due.flush, dropped(call("add"))),
    PlantedBug("a flush does not send rows that are not split over channels yet", Writer.flush,
               dropped(call("_partition_pending"))),
    PlantedBug("the bytes of a due message stay counted after they are written to segments", Due._write,
               dropped(increment())),
    PlantedBug("the bytes of a batch stay counted after the batch is cut", Writer._cut, dropped(increment())),
    PlantedBug("a closed writer keeps its byte count", Writer.close, dropped(assignment(2, of=2))),
    PlantedBug("a writer beyond its budget cuts the rows of one channel only", Writer._cut_oldest,
               replaced(call("_cut"), "return THIS")),
    PlantedBug("the last row of a message is lost", Pending.cut,
               replaced(call("slice").argument(2), "THIS - (len(edges) > 2)")),
    PlantedBug("a latency marker overtakes pending rows", Writer.emit_marker, always(condition(1, of=2))),
    PlantedBug("a latency marker overtakes rows that are not split over channels yet", Writer.emit_marker,
               dropped(call("_partition_pending"))),
    PlantedBug("a latency marker behind pending rows is lost", Writer._cut, dropped(call("_write_markers"))),
    PlantedBug("a latency marker is sent again with each message", Writer._write_markers,
               replaced(assignment(), "markers = pending.markers")),
    PlantedBug("a latency marker goes to all channels of a broadcast", Writer._write_markers,
               replaced(call("put"), "self._write(pending, marker)")),
    # Channels and gates.
    PlantedBug("a local channel never resumes behind a barrier", Local.resume, dropped(call("resume"))),
    PlantedBug("a local channel with more data reports that it has none", Local._take, never(comparison())),
    PlantedBug("the receiver does not send the messages of its channels", Receiver.send, dropped(call("append"))),
    PlantedBug("a union gate forgets a gate that has more data", UnionGate.poll, never(condition(2, of=3))),
    PlantedBug("a union gate polls a gate with more data before the other gates", UnionGate._notify,
               calling(call("append"), "appendleft")),
    PlantedBug("a union gate queues a gate twice", UnionGate._notify, always(condition())),
    PlantedBug("a union gate numbers the channels of each gate from 0", UnionGate.poll, dropped(subscript(4, of=4))),
    PlantedBug("a priority barrier is assigned to a channel of the first gate", Barriers._take_urgent,
               dropped(increment())),
    PlantedBug("new data of a local channel overtake its spilled data", PlainLocal.poll, always(condition(2, of=2))),
    PlantedBug("a local producer does not resume at once behind its barrier", PlainLocal._take,
               dropped(call("resume"))),
    PlantedBug("a blocked remote channel gives the task the data behind its barrier", PlainRemote.poll,
               never(condition(1, of=4))),
    PlantedBug("a remote producer does not resume at once behind its barrier", PlainRemote.on_event,
               dropped(call("_send_message"))),
    # The input.
    PlantedBug("a received watermark overtakes the rows before it", Input.next,
               replaced(condition(2, of=4), "THIS and self._watermark is None")),
    PlantedBug("a received latency marker overtakes the rows before it", Input.next,
               replaced(condition(2, of=4), "THIS and not self._markers")),
    PlantedBug("rows overtake a latency marker", Input._has_room, dropped(returned().operand(3))),
    PlantedBug("the task does not recycle the buffers that it has read", Input._read, dropped(call("recycle_all"))),
    PlantedBug("the task's watermark follows the fastest channel, not the slowest", Valve._advance,
               calling(call("min"), "max")),
    PlantedBug("an idle channel holds back the task's watermark", Valve.on_status, always(assignment(2, of=2).value)),
    PlantedBug("a channel that has ended holds back the task's watermark", Valve.end,
               constant(call("on_watermark"), None)),
    PlantedBug("a consumer does not acknowledge that it has processed all records", Barriers.catch_up,
               dropped(call("acknowledge"))),
    PlantedBug("the bytes of an element overwrite the bytes of the previous buffer", Deserializer.feed,
               dropped(assignment(4, of=5))),
    PlantedBug("the bytes of a complete message stay counted", Gathering.complete, dropped(increment(2, of=2))),
]  # fmt: skip


def test_whole_exchanges_under_random_interleaving() -> None:
    run_machine(ExchangeMachine, settings(HUNT, max_examples=63, stateful_step_count=25))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, ExchangeMachine)
