"""A whole exchange under random interleaving, and the planted bugs that this finds (docs/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.channels import LocalInputChannel as Local
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
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    # The writer.
    PlantedBug("a watermark overtakes the rows that it is cut with", Writer, "_cut",
               "self._deal()", "self._deal(); self._write_watermark(pending)"),
    PlantedBug("a watermark overtakes pending rows", Writer, "emit_watermark", "if not pending.rows:", "if True:"),
    PlantedBug("a watermark overtakes rows that are not dealt", Writer, "emit_watermark", "if self._undealt:",
               "if False:"),
    PlantedBug("a watermark behind undealt rows is lost", Writer, "_deal", "self.emit_watermark(time)", "pass"),
    PlantedBug("a watermark that waits alone is forgotten", Writer, "on_time", "self._watermark_alone(pending, now)",
               "pass"),
    PlantedBug("a barrier overtakes pending rows", Writer, "write_barrier", "self._cut(pending)", "pass"),
    PlantedBug("a barrier overtakes what is due", Writer, "_enqueue", "self._due[channel].append(item)",
               "self._due[channel].insert(0 if isinstance(item, Event) else len(self._due[channel]), item)"),
    PlantedBug("the end loses what is pending", Writer, "finish", "self._cut(pending)", "pass"),
    PlantedBug("a flush is forgotten while a message is due", Writer, "_flush_channel",
               "self._flush_when_drained.add(channel)", "pass"),
    PlantedBug("a flush leaves rows that are not dealt", Writer, "flush", "self._deal()", "pass"),
    PlantedBug("bytes that were written stay counted", Writer, "_write_due",
               "self._count.bytes -= before - item.remaining", "pass"),
    PlantedBug("batches that were cut stay counted", Writer, "_cut", "self._count.bytes -= released", "pass"),
    PlantedBug("a cancelled writer keeps its count", Writer, "close", "self._count.bytes = 0", "pass"),
    PlantedBug("beyond the budget one message is cut", Writer, "_cut_oldest", "self._cut(pending)",
               "return self._cut(pending)"),
    PlantedBug("the last row of a message is lost", Pending, "cut", "end - at)", "end - at - (len(edges) > 2))"),
    PlantedBug("a latency marker overtakes pending rows", Writer, "emit_marker", "if not pending.rows:", "if True:"),
    PlantedBug("a latency marker overtakes rows that are not dealt", Writer, "emit_marker", "self._deal()", "pass"),
    PlantedBug("a latency marker that waits behind rows is lost", Writer, "_cut", "self._write_markers(pending)",
               "pass"),
    PlantedBug("a latency marker goes with each message", Writer, "_write_markers",
               "markers, pending.markers = pending.markers, []", "markers = pending.markers"),
    PlantedBug("a latency marker goes to all channels", Writer, "_write_markers",
               "self._enqueue(channel, SpanningSerializer(serialize(marker, self._codec)))",
               "self._write(pending, marker)"),
    # Channels and gates.
    PlantedBug("a local channel never goes on behind a barrier", Local, "resume", "self._subpartition.resume()",
               "pass"),
    PlantedBug("a local channel says that it has no more", Local, "_take",
               "more = polls[-1].next_is_event is not None", "more = False"),
    PlantedBug("a remote channel's word is not sent", Receiver, "tell", "self._outgoing.append(encode(message))",
               "pass"),
    PlantedBug("a union forgets gates that have more", UnionGate, "poll", "if gate.has_data:", "if False:"),
    PlantedBug("a gate of a union that has more is the next", UnionGate, "_notify", "self._ready.append(gate)",
               "self._ready.appendleft(gate)"),
    PlantedBug("a gate of a union stands in line twice", UnionGate, "_notify", "if gate not in self._queued:",
               "if True:"),
    PlantedBug("each gate of a union counts its channels from the first", UnionGate, "poll",
               "channel + self._offsets[number]", "channel"),
    PlantedBug("a barrier that overtakes is one of the first gate", Barriers, "_take_urgent",
               "offset += len(gate.channels)", "pass"),
    PlantedBug("what was spilled behind a barrier is overtaken", PlainLocal, "poll", "if not alignment:", "if True:"),
    PlantedBug("a producer waits behind the barrier of another", PlainLocal, "_take", "self._subpartition.resume()",
               "pass"),
    PlantedBug("what is behind a barrier is not kept", PlainRemote, "poll", "if alignment.is_blocked:", "if False:"),
    PlantedBug("a remote producer waits behind a barrier", PlainRemote, "on_event", "self._tell(ResumeConsumption)",
               "pass"),
    # The input.
    PlantedBug("a watermark overtakes the rows it came behind", Input, "next", "if self._batches:",
               "if self._batches and self._watermark is None:"),
    PlantedBug("a latency marker overtakes the rows it came behind", Input, "next", "if self._batches:",
               "if self._batches and not self._markers:"),
    PlantedBug("rows overtake a latency marker", Input, "_has_room", " and not self._markers", ""),
    PlantedBug("buffers that were read stay with the task", Input, "_read", "recycle_all(buffers)", "pass"),
    PlantedBug("the event time is that of the fastest channel", Valve, "_advance", "min(times, default=MAX_TIME)",
               "max(times, default=MAX_TIME)"),
    PlantedBug("an idle channel holds back the event time", Valve, "status",
               "active and self._times[channel] >= self.output", "True"),
    PlantedBug("a channel that has ended holds back the event time", Valve, "end",
               "self.watermark(channel, MAX_TIME)", "None"),
    PlantedBug("nobody says that all records are processed", Barriers, "catch_up",
               "self._channels[action].acknowledge()", "pass"),
    PlantedBug("an element that spans buffers starts anew", Deserializer, "feed", "self._filled = end", "pass"),
    PlantedBug("a complete message stays counted", Gathering, "complete", "self._count.bytes -= message.size", "pass"),
]  # fmt: skip


def test_whole_exchanges_under_random_interleaving() -> None:
    run_machine(ExchangeMachine, settings(HUNT, max_examples=63, stateful_step_count=25))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, ExchangeMachine)
