"""Credit, buffers and wire under random interleaving, and the planted bugs that this finds
(docs/evidence/planted-bugs.md)."""

from __future__ import annotations

import pytest
from hypothesis import settings

from headgate.exchange.channels import RemoteInputChannel as Channel
from headgate.exchange.gate import InputGate as Gate
from headgate.exchange.partition import ResultPartition as Partition
from headgate.exchange.subpartition import PipelinedSubpartition as Subpartition
from headgate.memory.buffer import Buffer
from headgate.memory.buffer import _Parts as Parts
from headgate.memory.buffer_builder import BufferConsumer as Consumer
from headgate.protocol.credit import BufferManager as Buffers
from headgate.protocol.credit import SenderCredit
from headgate.protocol.decoders import RequestDecoder as Requests
from headgate.protocol.decoders import ResponseDecoder as Responses
from headgate.protocol.exclusive import ExclusiveBuffers as Exclusive
from headgate.protocol.receiver import Receiver
from headgate.protocol.sender import Sender
from headgate.records.spanning import SpanningSerializer
from tests.exchange.credit_machine import CreditMachine
from tests.exchange.link import SEGMENT, Link
from tests.memory.edits import always, constant, dropped, never, only, plus, replaced
from tests.memory.places import (
    assignment,
    call,
    choice,
    comparison,
    condition,
    increment,
    operation,
    returned,
    subscript,
)
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    # Credit at the producer.
    PlantedBug("spent credit is not taken off", SenderCredit.spend, dropped(increment())),
    PlantedBug("a run costs one credit", SenderCredit.spend, constant(increment().value, 1)),
    PlantedBug("new credit replaces what was left", SenderCredit.add,
               replaced(increment(1, of=2), "self.available = credit")),
    PlantedBug("events spend credit", Sender._frame, always(condition(2, of=3))),
    PlantedBug("a reader without credit stays in the queue", Sender._may_continue,
               dropped(returned().operand(2).operand(2))),
    PlantedBug("a reader that is alone takes more turns than its credit pays for", Sender.next_frames,
               replaced(call("poll").argument(1), "turn")),
    PlantedBug("an event behind the last credit waits for more", Sender._may_continue, never(returned().operand(1))),
    PlantedBug("an event at the head of the queue needs credit", Subpartition.is_available, never(returned(2, of=2))),
    PlantedBug("data need no credit", Subpartition.is_available, always(condition())),
    PlantedBug("a reader is queued twice", Sender._enqueue, only(call("is_available"))),
    PlantedBug("new credit does not put a reader into the queue", Sender._handle, dropped(call("_enqueue"))),
    PlantedBug("new data do not put a reader into the queue", Sender.data_available, dropped(call("_enqueue"))),
    PlantedBug("a cancelled reader keeps its subpartition", Sender._cancel, dropped(call("release"))),
    PlantedBug("a lost connection keeps the subpartitions", Sender.release, dropped(call("release"))),
    PlantedBug("granted credit is not counted", SenderCredit.add, dropped(increment(2, of=2))),
    PlantedBug("data that wait for credit are not timed", Sender.data_available, dropped(call("note_backlog"))),
    PlantedBug("new credit does not end the wait for it", SenderCredit.note_backlog, dropped(call("note", 2, of=2))),
    # Credit at the consumer.
    PlantedBug("a consumed exclusive buffer is no new credit", Buffers._take_back, only(call("len", 5, of=6))),
    PlantedBug("a buffer that returned a floating one is credit too", Buffers._take_back, only(call("len", 3, of=6))),
    PlantedBug("a surplus buffer is lost", Buffers.recycle, dropped(call("recycle_many"))),
    PlantedBug("a floating buffer that is kept is no credit", Buffers._take_back, dropped(call("len", 5, of=6))),
    PlantedBug("a floating buffer is kept without need", Buffers._take_back, only(choice().then.object)),
    PlantedBug("a floating buffer is kept and returned", Buffers._take_back, only(returned().operand(2).object)),
    PlantedBug("a kept buffer leaves room for another", Buffers._take_back, replaced(call("max", 3, of=3), "room")),
    PlantedBug("a consumed buffer does not notify of its credit", Buffers.recycle, dropped(call("_on_credit"))),
    PlantedBug("credit is announced twice", Buffers.take_unannounced,
               replaced(assignment().value.element(2), "self.unannounced")),
    PlantedBug("credit behind unannounced credit is lost", Buffers._add_unannounced,
               replaced(operation(), "max(self.unannounced, credit)")),
    PlantedBug("the backlog is not heeded", Buffers.on_backlog, only(call("max").argument(2))),
    PlantedBug("a channel without a backlog keeps nothing", Buffers.on_backlog, only(call("max").argument(1))),
    PlantedBug("a channel keeps more than its share", Buffers._share, constant(operation(2, of=2), 2)),
    PlantedBug("the only channel leaves half to others", Buffers._share, only(returned().otherwise)),
    PlantedBug("a blocked channel goes on wanting buffers", Buffers.block, dropped(assignment(1, of=4))),
    PlantedBug("a channel at its end keeps its buffers", Channel.on_event, dropped(call("release"))),
    PlantedBug("the backlog is not reported", Channel.on_read, dropped(call("on_backlog"))),
    PlantedBug("a floating buffer is no credit", Buffers._request_floating, dropped(increment())),
    PlantedBug("one floating buffer too many is taken", Buffers._request_floating,
               plus(call("request_many").argument(1), 1)),
    PlantedBug("floating buffers are not waited for", Buffers._request_floating, always(call("add_listener"))),
    PlantedBug("a channel waits for good after its first offer", Buffers._offered, dropped(assignment(1, of=3))),
    PlantedBug("an offered buffer is no credit", Buffers._offered, never(call("_add_unannounced"))),
    PlantedBug("an offered buffer is lost", Buffers._offered, dropped(call("append"))),
    PlantedBug("an offered buffer is taken without need", Buffers._offered, dropped(comparison(2, of=2))),
    PlantedBug("a released channel takes what it is offered", Buffers._offered, dropped(condition(1, of=2).operand(2))),
    PlantedBug("a released channel keeps its exclusive buffers", Buffers.release, dropped(call("give_back"))),
    PlantedBug("a released channel keeps its floating buffers", Buffers.release, dropped(call("recycle"))),
    PlantedBug("a buffer that comes back after the release is kept", Buffers.recycle,
               never(assignment(4, of=6).value.element(2))),
    PlantedBug("a buffer that is being filled still counts as free", Buffers.take, dropped(increment(1, of=2))),
    PlantedBug("an exclusive buffer is filled twice", Exclusive.take, replaced(call("pop"), "free[-1]")),
    PlantedBug("a buffer does not end the time without one", Buffers.recycle, dropped(call("_note_buffers"))),
    PlantedBug("the time without a buffer does not begin", Buffers.on_backlog, dropped(call("_note_buffers"))),
    # The consumer's end of the connection.
    PlantedBug("the notice of new credit is lost", Receiver.credit_available, dropped(call("append"))),
    PlantedBug("requests and credit are sent again", Receiver.data_to_send, dropped(call("clear"))),
    PlantedBug("a channel leaves without a word", Receiver.cancel, dropped(call("append", 1, of=2))),
    PlantedBug("the last channel leaves the connection open", Receiver.cancel, dropped(call("append", 2, of=2))),
    PlantedBug("a cut connection keeps the buffer it was filling", Receiver.fail, dropped(call("recycle"))),
    PlantedBug("a cut connection keeps a view of the memory it was filling", Receiver.fail, dropped(call("close"))),
    # Frames.
    PlantedBug("the head of a cut request is lost", Requests.feed, constant(subscript(3, of=3), b"")),
    PlantedBug("the head of a cut frame is lost", Responses._parse, constant(subscript(3, of=3), b"")),
    PlantedBug("a cut payload starts again", Responses._advance, dropped(assignment(2, of=2))),
    PlantedBug("the first byte behind a cut replaces the last before it", Responses._advance,
               replaced(assignment(2, of=2).value, "places[0][count - 1:]")),
    PlantedBug("the second segment of a run is taken for the next frame", Responses.received,
               replaced(call("min").argument(2), "len(self._places[0])")),
    PlantedBug("bytes behind a payload are lost", Responses.received, replaced(increment(), "count = 0")),
    PlantedBug("the last segment of a run takes the next header too", Responses._place, dropped(assignment(13, of=14))),
    PlantedBug("a run has one number", Channel.on_data, dropped(call("_push").argument(3))),
    # Runs at the sender.
    PlantedBug("a frame tells the backlog behind its first buffer", Sender._frame,
               replaced(call("encode_buffer_response").argument(3).object, "first")),
    PlantedBug("a frame has the number of its last buffer", Sender._frame,
               replaced(call("encode_buffer_response").argument(2).object, "last")),
    PlantedBug("a frame takes as much room as one segment", Sender._frame, constant(increment(2, of=3).value, 1)),
    PlantedBug("the parts of a split run share a segment", Buffer.split,
               replaced(returned().element(2).argument(1), "segments[count - 1:]")),
    PlantedBug("the first part of a split run never comes back", Buffer.split,
               replaced(returned().element(1).argument(4), "_forget")),
    PlantedBug("the first part of a split run has all its bytes", Buffer.split,
               replaced(returned().element(1).argument(3), "self.size")),
    PlantedBug("the parts of a shared run come back at once", Buffer.split, only(choice().then)),
    PlantedBug("a shared run comes back with its first part", Parts.__call__,
               replaced(call("pop"), "THIS or self._left")),
    PlantedBug("a shared run never comes back", Parts.__init__, only(call("len"))),
    # The queue between task and sender.
    PlantedBug("sequence numbers stand still", Subpartition.poll, dropped(assignment(6, of=8))),
    PlantedBug("a run that is polled has one number", Subpartition.poll, constant(operation(2, of=2).operand(2), 1)),
    PlantedBug("a buffer that was sent stays in the backlog", Subpartition._take, never(condition(6, of=9))),
    PlantedBug("more is polled than was asked for", Subpartition.poll, plus(call("_take").argument(1), 1)),
    PlantedBug("a run that is polled counts as one", Subpartition.poll, constant(increment(1, of=3).value, 1)),
    PlantedBug("what is left of a split run is lost", Subpartition._take,
               replaced(assignment(4, of=8), "head, _ = queue.popleft().split(limit)")),
    PlantedBug("a split run is sent again", Subpartition._take, replaced(subscript(3, of=3), "_")),
    PlantedBug("a run leaves the backlog as one buffer", Subpartition._take, constant(increment(1, of=2).value, 1)),
    PlantedBug("a reader that waits is taken for one that looks", Subpartition.poll, dropped(comparison(4, of=4))),
    PlantedBug("a reader is notified only once", Subpartition.poll, dropped(assignment(7, of=8))),
    PlantedBug("an unfinished buffer is closed when it is sent", Subpartition._take, always(condition(5, of=9))),
    PlantedBug("a flush ends at the first buffer", Subpartition._take, always(condition(2, of=9))),
    PlantedBug("a flush does not notify", Subpartition.flush, constant(call("_take_listener"), None)),
    PlantedBug("a full buffer does not notify", Partition.write, dropped(call("announce"))),
    PlantedBug("an event does not notify", Partition.write_event, dropped(call("announce"))),
    PlantedBug("the end does not notify", Subpartition.finish, constant(call("_take_listener"), None)),
    PlantedBug("filled buffers are not counted in the backlog", Subpartition.add_filled, dropped(increment())),
    PlantedBug("a run counts as one in the backlog", Subpartition.add_filled, constant(call("len"), 1)),
    PlantedBug("filled buffers of a released subpartition are lost", Subpartition.add_filled, dropped(call("recycle"))),
    PlantedBug("every segment of a run gets the last bytes of an element", SpanningSerializer.fill,
               replaced(subscript(4, of=8), "piece[-count:]")),
    PlantedBug("a long element takes a segment too many", Partition._run_length, plus(choice().then, 1)),
    PlantedBug("a writer that fell short is not woken", Partition._request, dropped(assignment(3, of=4))),
    PlantedBug("a released queue keeps its buffers", Subpartition.release, dropped(choice())),
    PlantedBug("an event leaves its builder open", Partition.write_event, dropped(call("_finish_builder"))),
    PlantedBug("buffers that are sent are not counted", Subpartition.poll, dropped(increment(2, of=3))),
    PlantedBug("bytes that are sent are not counted", Subpartition.poll, dropped(increment(3, of=3))),
    # Barriers, and channels without buffers of their own.
    PlantedBug("nothing is blocked behind a barrier", Subpartition._take, dropped(assignment(8, of=8))),
    PlantedBug("a blocked channel never goes on", Sender._resume, dropped(call("resume"))),
    PlantedBug("a backlog without credit is not announced", Sender._enqueue, dropped(call("append", 2, of=2))),
    PlantedBug("an announced backlog is not heeded", Channel.on_backlog, dropped(call("on_backlog"))),
    PlantedBug("a backlog behind an event is not heeded", Channel.on_event, dropped(call("on_backlog"))),
    PlantedBug("a priority barrier waits in line", Subpartition._insert_priority,
               replaced(call("sum"), "len(self._queue)")),
    PlantedBug("a priority barrier does not notify", Subpartition._insert_priority,
               replaced(returned().then, "_ignore")),
    PlantedBug("overtaken data are not held", Subpartition._data_before, only(call("retain").object)),
    PlantedBug("overtaken data are taken from the reader", Consumer.peek, dropped(assignment(3, of=3))),
    PlantedBug("a priority barrier tells the gate nothing", Channel.on_event, dropped(call("_notify_priority"))),
    PlantedBug("a priority barrier has no number", Channel.on_event, dropped(call("_check_sequence"))),
    # The queue between receiver and task.
    PlantedBug("data tell the gate nothing", Channel.on_read, dropped(call("_notify"))),
    PlantedBug("an event tells the gate nothing", Channel.on_event, dropped(call("_notify"))),
    PlantedBug("a released channel minds the numbers of what it discards", Channel._check_sequence,
               dropped(condition().operand(2))),
    PlantedBug("a channel that has more says it has not", Channel.poll, dropped(call("bool", 3, of=3))),
    PlantedBug("a gate forgets channels that have more", Gate.poll, never(condition(2, of=3).operand(1))),
    PlantedBug("a gate looks at the data before it takes the channel off", Gate.poll, dropped(call("discard"))),
    PlantedBug("a released channel keeps what it received", Channel._drop_received, dropped(call("recycle"))),
    PlantedBug("a channel does not hear that the connection is gone", Channel.on_error, dropped(assignment())),
]  # fmt: skip


def test_links_under_random_interleaving() -> None:
    run_machine(CreditMachine, settings(HUNT, max_examples=99, stateful_step_count=40))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, CreditMachine)


def test_a_barrier_read_together_with_data_has_the_last_word_on_the_backlog() -> None:
    """A channel without buffers of its own must not take any for a backlog that the barrier behind it took back."""
    link = Link(channels=1, exclusive=0, floating=4, extra=6, cap=6, overdraft=0)
    link.settle()
    link.write(0, SEGMENT)
    link.write_barrier(0)
    link.write(0, 2 * SEGMENT)
    link.settle()
    assert link.channels[0].credits.free == 0
    link.run_to_the_end(20)
    link.close()
