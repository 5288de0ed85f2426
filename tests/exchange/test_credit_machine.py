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
    PlantedBug("the sender does not subtract the credit that it spends", SenderCredit.spend, dropped(increment())),
    PlantedBug("a run of several buffers costs one credit", SenderCredit.spend, constant(increment().value, 1)),
    PlantedBug("new credit replaces the remaining credit", SenderCredit.add,
               replaced(increment(1, of=2), "self.available = credit")),
    PlantedBug("an event spends credit", Sender._frame, always(condition(2, of=3))),
    PlantedBug("a reader without credit stays in the sender's queue", Sender._may_continue,
               dropped(returned().operand(2).operand(2))),
    PlantedBug("a reader polls a full turn although its credit pays for less", Sender.next_frames,
               replaced(call("poll").argument(1), "turn")),
    PlantedBug("an event behind the buffer that used up the credit waits for new credit", Sender._may_continue,
               never(returned().operand(1))),
    PlantedBug("an event at the head of the queue is not sent without credit", Subpartition.is_available,
               never(returned(2, of=2))),
    PlantedBug("data count as available without credit", Subpartition.is_available, always(condition())),
    PlantedBug("the sender queues a reader twice", Sender._enqueue, only(call("is_available"))),
    PlantedBug("new credit does not queue its reader", Sender._handle, dropped(call("_enqueue"))),
    PlantedBug("new data do not queue their reader", Sender.data_available, dropped(call("_enqueue"))),
    PlantedBug("a cancelled reader does not release its subpartition", Sender._cancel, dropped(call("release"))),
    PlantedBug("a lost connection does not release its subpartitions", Sender.release, dropped(call("release"))),
    PlantedBug("the total of granted credit is not counted", SenderCredit.add, dropped(increment(2, of=2))),
    PlantedBug("the time that new data wait for credit is not measured", Sender.data_available,
               dropped(call("note_new_data"))),
    PlantedBug("new credit does not end the measured wait for credit", SenderCredit.note_backlog,
               dropped(call("note", 2, of=2))),
    # Credit at the consumer.
    PlantedBug("a recycled exclusive buffer adds no credit", Buffers._take_back, only(call("len", 5, of=6))),
    PlantedBug("an exclusive buffer that takes over a floating buffer's credit adds credit again", Buffers._take_back,
               only(call("len", 3, of=6))),
    PlantedBug("a surplus floating buffer is lost", Buffers.recycle, dropped(call("recycle_many"))),
    PlantedBug("a retained floating buffer adds no credit", Buffers._take_back, dropped(call("len", 5, of=6))),
    PlantedBug("the channel retains a floating buffer that it does not require", Buffers._take_back,
               only(choice().then.object)),
    PlantedBug("a retained floating buffer also returns to the pool", Buffers._take_back,
               only(returned().operand(2).object)),
    PlantedBug("a channel retains floating buffers in the room that exclusive buffers have filled", Buffers._take_back,
               replaced(call("max", 3, of=3), "room")),
    PlantedBug("a recycled buffer does not call on_credit", Buffers.recycle, dropped(call("_on_credit"))),
    PlantedBug("credit is announced twice", Buffers.take_unannounced,
               replaced(assignment().value.element(2), "self.unannounced")),
    PlantedBug("new credit on top of unannounced credit is lost", Buffers._add_unannounced,
               replaced(operation(), "max(self.unannounced, credit)")),
    PlantedBug("the channel ignores the reported backlog", Buffers.on_backlog, only(call("max").argument(2))),
    PlantedBug("a channel without a backlog requires no floating buffers", Buffers.on_backlog,
               only(call("max").argument(1))),
    PlantedBug("each of several channels takes half the pool as its share", Buffers._share,
               constant(operation(2, of=2), 2)),
    PlantedBug("the only channel of a gate takes only half the pool as its share", Buffers._share,
               only(returned().otherwise)),
    PlantedBug("a blocked channel still requires floating buffers", Buffers.block, dropped(assignment(1, of=4))),
    PlantedBug("a channel that has ended keeps its free buffers", Channel.on_event, dropped(call("release"))),
    PlantedBug("the channel ignores the backlog in a data frame", Channel.on_read, dropped(call("on_backlog"))),
    PlantedBug("a requested floating buffer adds no credit", Buffers._request_floating, dropped(increment())),
    PlantedBug("the channel takes one floating buffer too many", Buffers._request_floating,
               plus(call("request_many").argument(1), 1)),
    PlantedBug("the channel waits for a floating buffer without adding a listener", Buffers._request_floating,
               always(call("add_listener"))),
    PlantedBug("when the gate's pool has offered a buffer, the channel registers for no other", Buffers._offered,
               dropped(assignment(1, of=3))),
    PlantedBug("an offered buffer adds no credit", Buffers._offered, never(call("_add_unannounced"))),
    PlantedBug("an offered buffer is lost", Buffers._offered, dropped(call("append"))),
    PlantedBug("the channel accepts an offered buffer that it no longer requires", Buffers._offered,
               dropped(comparison(2, of=2))),
    PlantedBug("a released channel accepts an offered buffer", Buffers._offered,
               dropped(condition(1, of=2).operand(2))),
    PlantedBug("a released channel keeps its exclusive buffers", Buffers.release, dropped(call("give_back"))),
    PlantedBug("a released channel keeps its floating buffers", Buffers.release, dropped(call("recycle"))),
    PlantedBug("a buffer that is recycled after the release stays with the channel", Buffers.recycle,
               never(assignment(3, of=5).value.element(2))),
    PlantedBug("an exclusive buffer that is being filled still counts as free", Buffers.take,
               dropped(increment(1, of=2))),
    PlantedBug("an exclusive buffer is taken twice", Exclusive.take, replaced(call("pop"), "free[-1]")),
    PlantedBug("a recycled buffer does not end the measured time without a buffer", Buffers.recycle,
               dropped(call("_note_buffers"))),
    PlantedBug("a backlog does not begin the measured time without a buffer", Buffers.on_backlog,
               dropped(call("_note_buffers"))),
    # The consumer's end of the connection.
    PlantedBug("the receiver loses the notice of new credit", Receiver.credit_available, dropped(call("append"))),
    PlantedBug("the receiver sends requests and credit again", Receiver.data_to_send, dropped(call("clear"))),
    PlantedBug("the receiver cancels a channel without a message to the producer", Receiver.cancel,
               dropped(call("append", 1, of=2))),
    PlantedBug("the receiver does not close the connection of its last channel", Receiver.cancel,
               dropped(call("append", 2, of=2))),
    PlantedBug("a lost connection does not recycle the segments that it was filling", Receiver.fail,
               dropped(call("recycle"))),
    PlantedBug("a lost connection keeps a view of the segment that it was filling", Receiver.fail,
               dropped(call("close"))),
    # Frames.
    PlantedBug("the first part of a request that arrives in two pieces is lost", Requests.feed,
               constant(subscript(3, of=3), b"")),
    PlantedBug("the first part of a frame that arrives in two pieces is lost", Responses._parse,
               constant(subscript(3, of=3), b"")),
    PlantedBug("a payload that arrives in pieces starts again in its segment", Responses._advance,
               dropped(assignment(2, of=2))),
    PlantedBug("the second piece of a payload overwrites the last byte of the first piece", Responses._advance,
               replaced(assignment(2, of=2).value, "places[0][count - 1:]")),
    PlantedBug("the second segment of a run is decoded as the next frame", Responses.received,
               replaced(call("min").argument(2), "len(self._places[0])")),
    PlantedBug("the bytes behind a payload are lost", Responses.received, replaced(increment(), "count = 0")),
    PlantedBug("the last segment of a run also takes the bytes of the next header", Responses._place,
               dropped(assignment(13, of=14))),
    PlantedBug("a received run of several buffers counts as one sequence number", Channel.on_data,
               dropped(call("_push").argument(3))),
    # Runs at the sender.
    PlantedBug("a frame carries the backlog behind its first buffer, not behind its last", Sender._frame,
               replaced(call("encode_buffer_response").argument(3).object, "first")),
    PlantedBug("a frame carries the sequence number of its last buffer, not of its first", Sender._frame,
               replaced(call("encode_buffer_response").argument(2).object, "last")),
    PlantedBug("a frame of several segments uses up the room of one segment", Sender._frame,
               constant(increment(4, of=5).value, 1)),
    PlantedBug("the two parts of a split run share a segment", Buffer.split,
               replaced(returned().element(2).argument(1), "segments[count - 1:]")),
    PlantedBug("the first part of a split run is never recycled", Buffer.split,
               replaced(returned().element(1).argument(4), "_forget")),
    PlantedBug("the first part of a split run has the size of the whole run", Buffer.split,
               replaced(returned().element(1).argument(3), "self.size")),
    PlantedBug("a split run returns to the pool while another holder still uses it", Buffer.split, only(choice().then)),
    PlantedBug("a split run that has other holders is recycled with its first part", Parts.__call__,
               replaced(call("pop"), "THIS or self._left")),
    PlantedBug("a split run that has other holders is never recycled", Parts.__init__, only(call("len"))),
    # The queue between task and sender.
    PlantedBug("the sequence number never increases", Subpartition.poll, dropped(assignment(6, of=8))),
    PlantedBug("a polled run of several buffers takes one sequence number", Subpartition.poll,
               constant(operation(2, of=2).operand(2), 1)),
    PlantedBug("a buffer that was sent still counts in the backlog", Subpartition._take, never(condition(6, of=9))),
    PlantedBug("a poll returns more segments than its limit", Subpartition.poll, plus(call("_take").argument(1), 1)),
    PlantedBug("a polled run of several buffers counts as one buffer of the limit", Subpartition.poll,
               constant(increment(1, of=3).value, 1)),
    PlantedBug("the rest of a split run is lost", Subpartition._take,
               replaced(assignment(4, of=8), "head, _ = queue.popleft().split(limit)")),
    PlantedBug("a run is sent again after its first part was split off", Subpartition._take,
               replaced(subscript(3, of=3), "_")),
    PlantedBug("a polled run of several buffers reduces the backlog by one", Subpartition._take,
               constant(increment(1, of=2).value, 1)),
    PlantedBug("a reader that polled the last available buffer does not count as waiting", Subpartition.poll,
               dropped(comparison(4, of=4))),
    PlantedBug("a reader is notified only once", Subpartition.poll, dropped(assignment(7, of=8))),
    PlantedBug("an unfinished buffer is closed when its first bytes are sent", Subpartition._take,
               always(condition(5, of=9))),
    PlantedBug("a flush ends with the first buffer that is sent", Subpartition._take, always(condition(2, of=9))),
    PlantedBug("a flush does not notify the reader", Subpartition.flush, constant(call("_take_listener"), None)),
    PlantedBug("a full buffer does not notify the reader", Partition.write, dropped(call("_announce"))),
    PlantedBug("an event does not notify the reader", Partition.write_event, dropped(call("_announce"))),
    PlantedBug("the end of the partition does not notify the reader", Subpartition.finish,
               constant(call("_take_listener"), None)),
    PlantedBug("a filled buffer is not counted in the backlog", Subpartition.add_filled, dropped(increment())),
    PlantedBug("a queued run of several buffers counts as one in the backlog", Subpartition.add_filled,
               constant(call("len"), 1)),
    PlantedBug("a released subpartition does not recycle a filled buffer", Subpartition.add_filled,
               dropped(call("recycle"))),
    PlantedBug("each full segment of a run gets the last bytes of the element", SpanningSerializer.fill,
               replaced(subscript(4, of=8), "piece[-count:]")),
    PlantedBug("a long element gets one segment too many", Partition._run_length, plus(choice().then, 1)),
    PlantedBug("a writer that got no segment is not woken", Partition._request, dropped(assignment(3, of=4))),
    PlantedBug("a released subpartition does not recycle its queued buffers", Subpartition.release, dropped(choice())),
    PlantedBug("an event leaves the buffer before it unfinished", Partition.write_event,
               dropped(call("_finish_builder"))),
    PlantedBug("sent buffers are not counted", Subpartition.poll, dropped(increment(2, of=3))),
    PlantedBug("sent bytes are not counted", Subpartition.poll, dropped(increment(3, of=3))),
    # Barriers, and channels without buffers of their own.
    PlantedBug("a barrier does not block its subpartition", Subpartition._take, dropped(assignment(8, of=8))),
    PlantedBug("a blocked subpartition never resumes", Sender._resume, dropped(call("resume"))),
    PlantedBug("the sender announces no backlog to a channel without credit", Sender._enqueue,
               dropped(call("append", 2, of=2))),
    PlantedBug("the channel ignores an announced backlog", Channel.on_backlog, dropped(call("on_backlog"))),
    PlantedBug("the channel ignores the backlog behind an event", Channel.on_event, dropped(call("on_backlog"))),
    PlantedBug("a priority barrier is queued behind the data", Subpartition._insert_priority,
               replaced(call("sum"), "len(self._queue)")),
    PlantedBug("a priority barrier does not notify the reader", Subpartition._insert_priority,
               replaced(returned().then, "_ignore")),
    PlantedBug("overtaken data are not retained for the checkpoint", Subpartition._data_before,
               only(call("retain").object)),
    PlantedBug("the reader does not get the overtaken data that the checkpoint keeps", Consumer.peek,
               dropped(assignment(3, of=3))),
    PlantedBug("a received priority barrier does not notify the gate", Channel.on_event,
               dropped(call("_notify_priority"))),
    PlantedBug("a received priority barrier takes no sequence number", Channel.on_event,
               dropped(call("_check_sequence"))),
    # The queue between receiver and task.
    PlantedBug("received data do not notify the gate", Channel.on_read, dropped(call("_notify"))),
    PlantedBug("a received event does not notify the gate", Channel.on_event, dropped(call("_notify"))),
    PlantedBug("a released channel checks the sequence numbers of data that it discards", Channel._check_sequence,
               dropped(condition().operand(2))),
    PlantedBug("a channel with more data reports that it has none", Channel.poll, dropped(call("bool", 3, of=3))),
    PlantedBug("a gate does not queue a channel that has more data", Gate.poll, never(condition(2, of=3).operand(1))),
    PlantedBug("a gate still counts a polled channel as queued", Gate.poll, dropped(call("discard"))),
    PlantedBug("a released channel does not recycle the buffers that it received", Channel._drop_received,
               dropped(call("recycle"))),
    PlantedBug("a channel does not record that its connection failed", Channel.on_error, dropped(assignment())),
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
