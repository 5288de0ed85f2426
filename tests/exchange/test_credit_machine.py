"""Credit, buffers and wire under random interleaving, and the planted bugs that this finds (docs/planted-bugs.md)."""

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
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

BUGS = [
    # Credit at the producer.
    PlantedBug("spent credit is not taken off", SenderCredit, "spend", "self.available -= count", "pass"),
    PlantedBug("a run costs one credit", SenderCredit, "spend", "self.available -= count", "self.available -= 1"),
    PlantedBug("new credit replaces what was left", SenderCredit, "add", "self.available += credit",
               "self.available = credit"),
    PlantedBug("events spend credit", Sender, "_frame", "if not first.is_event:", "if True:"),
    PlantedBug("a reader without credit stays in the queue", Sender, "_may_go_on",
               " and reader.credit.available > 0", ""),
    PlantedBug("a reader that is alone takes more turns than its credit pays for", Sender, "next_frames",
               "max(1, min(turn, reader.credit.available))", "turn"),
    PlantedBug("an event behind the last credit waits for more", Sender, "_may_go_on",
               "last.next_is_event is True or", "False or"),
    PlantedBug("an event at the head of the queue needs credit", Subpartition, "is_available",
               "return not self._blocked and bool(self._queue) and isinstance(self._queue[0], EventConsumer)",
               "return False"),
    PlantedBug("data need no credit", Subpartition, "is_available", "if has_credit:", "if True:"),
    PlantedBug("a reader is queued twice", Sender, "_enqueue", "not reader.queued and ", ""),
    PlantedBug("new credit does not put a reader into the queue", Sender, "_handle", "self._enqueue(reader)", "pass"),
    PlantedBug("new data do not put a reader into the queue", Sender, "data_available",
               "self._enqueue(reader)", "pass"),
    PlantedBug("a cancelled reader keeps its subpartition", Sender, "_cancel", "reader.view.release()", "pass"),
    PlantedBug("a lost connection keeps the subpartitions", Sender, "release", "reader.view.release()", "pass"),
    # Credit at the consumer.
    PlantedBug("a consumed exclusive buffer is no new credit", Buffers, "_take_back", "+= credit + len(kept)",
               "+= len(kept)"),
    PlantedBug("a buffer that returned a floating one is credit too", Buffers, "_take_back",
               "credit = len(own) - replaced", "credit = len(own)"),
    PlantedBug("a surplus buffer is lost", Buffers, "recycle", "self._pool.recycle_many(surplus)", "pass"),
    PlantedBug("a floating buffer that is kept is no credit", Buffers, "_take_back", "+= credit + len(kept)",
               "+= credit"),
    PlantedBug("a floating buffer is kept without need", Buffers, "_take_back", "others[: max(0, room - credit)]",
               "others"),
    PlantedBug("a floating buffer is kept and returned", Buffers, "_take_back", "others[len(kept) :]", "others"),
    PlantedBug("a kept buffer leaves room for another", Buffers, "_take_back", "max(0, room - credit)", "room"),
    PlantedBug("a consumed buffer tells nobody of its credit", Buffers, "recycle", "self._on_credit()", "pass"),
    PlantedBug("credit is announced twice", Buffers, "take_unannounced", "self.unannounced, 0",
               "self.unannounced, self.unannounced"),
    PlantedBug("credit behind unannounced credit is lost", Buffers, "_add_unannounced",
               "self.unannounced + credit", "max(self.unannounced, credit)"),
    PlantedBug("the backlog is not heeded", Buffers, "on_backlog", "max(backlog, self._share)", "self._share"),
    PlantedBug("a channel without a backlog keeps nothing", Buffers, "on_backlog",
               "max(backlog, self._share)", "backlog"),
    PlantedBug("a channel keeps more than its share", Buffers, "_share", "size // (2 * self._channels)", "size // 2"),
    PlantedBug("the only channel leaves half to others", Buffers, "_share", "size if self._channels == 1 else ", ""),
    PlantedBug("a blocked channel goes on wanting buffers", Buffers, "block", "self._required = 0", "pass"),
    PlantedBug("a channel at its end keeps its buffers", Channel, "on_event", "self._buffers.release()", "pass"),
    PlantedBug("the backlog is not reported", Channel, "on_read",
               "self._buffers.on_backlog(backlog)", "pass"),
    PlantedBug("a floating buffer is no credit", Buffers, "_request_floating", "credit += len(segments)", "pass"),
    PlantedBug("one floating buffer too many is taken", Buffers, "_request_floating",
               "wanted - self.free)", "wanted - self.free + 1)"),
    PlantedBug("floating buffers are not waited for", Buffers, "_request_floating",
               "elif self._pool.add_listener(self._offered):", "elif True:"),
    PlantedBug("a channel waits for good after its first offer", Buffers, "_offered", "self._waiting = False", "pass"),
    PlantedBug("an offered buffer is no credit", Buffers, "_offered",
               "first = self._add_unannounced(1)", "first = False"),
    PlantedBug("an offered buffer is lost", Buffers, "_offered", "self._floating.append(segment)", "pass"),
    PlantedBug("an offered buffer is taken without need", Buffers, "_offered",
               " or self.free >= self._required + self.initial_credit", ""),
    PlantedBug("a released channel takes what it is offered", Buffers, "_offered", " or self._released", ""),
    PlantedBug("a released channel keeps its exclusive buffers", Buffers, "release",
               "self._exclusive.give_back(self._exclusive.take(own))", "pass"),
    PlantedBug("a released channel keeps its floating buffers", Buffers, "release",
               "self._pool.recycle(segment)", "pass"),
    PlantedBug("a buffer that comes back after the release is kept", Buffers, "recycle",
               "self.unannounced, self._released", "self.unannounced, False"),
    PlantedBug("a buffer that is being filled still counts as free", Buffers, "take",
               "self._free_exclusive -= own", "pass"),
    PlantedBug("an exclusive buffer is filled twice", Exclusive, "take", "free.pop()", "free[-1]"),
    # The consumer's end of the connection.
    PlantedBug("the notice of new credit is lost", Receiver, "credit_available",
               "self._credited.append(receiver)", "pass"),
    PlantedBug("requests and credit are sent again", Receiver, "data_to_send", "self._outgoing.clear()", "pass"),
    PlantedBug("a channel leaves without a word", Receiver, "cancel",
               "self._outgoing.append(encode(CancelPartitionRequest(receiver)))", "pass"),
    PlantedBug("the last channel leaves the connection open", Receiver, "cancel",
               "self._outgoing.append(encode(CloseRequest()))", "pass"),
    PlantedBug("a cut connection keeps the buffer it was filling", Receiver, "fail",
               "channel.recycle(*segments)", "pass"),
    PlantedBug("a cut connection keeps a view of the memory it was filling", Receiver, "fail",
               "self._decoder.close()", "pass"),
    # Frames.
    PlantedBug("the head of a cut request is lost", Requests, "feed", "self._rest = data[position:]",
               'self._rest = b""'),
    PlantedBug("the head of a cut frame is lost", Responses, "_parse", "self._staged = data[position:]",
               'self._staged = b""'),
    PlantedBug("a cut payload starts anew", Responses, "_advance", "places[0] = places[0][count:]", "pass"),
    PlantedBug("the first byte behind a cut replaces the last before it", Responses, "_advance",
               "places[0][count:]", "places[0][count - 1 :]"),
    PlantedBug("the second segment of a run is taken for the next frame", Responses, "received",
               "min(count, self._left)", "min(count, len(self._places[0]))"),
    PlantedBug("bytes behind a payload are lost", Responses, "received", "count -= direct", "count = 0"),
    PlantedBug("the last segment of a run takes the next header too", Responses, "_place",
               "places[-1] = places[-1][: size - room]", "pass"),
    PlantedBug("a run has one number", Channel, "on_data", "buffer, len(segments))", "buffer)"),
    # Runs at the sender.
    PlantedBug("a frame tells the backlog behind its first buffer", Sender, "_frame", "last.backlog", "first.backlog"),
    PlantedBug("a frame has the number of its last buffer", Sender, "_frame", "first.sequence", "last.sequence"),
    PlantedBug("a frame takes as much room as one segment", Sender, "_frame", "sent += count", "sent += 1"),
    PlantedBug("the parts of a split run share a segment", Buffer, "split", "segments[count:]",
               "segments[count - 1 :]"),
    PlantedBug("the first part of a split run never comes back", Buffer, "split",
               "Buffer(segments[:count], 0, at, recycler)", "Buffer(segments[:count], 0, at, _forget)"),
    PlantedBug("the first part of a split run has all its bytes", Buffer, "split",
               "Buffer(segments[:count], 0, at, recycler)", "Buffer(segments[:count], 0, self.size, recycler)"),
    PlantedBug("the parts of a run that somebody keeps come back at once", Buffer, "split",
               "self._recycler if len(self._references) == 1 else _Parts(self)", "self._recycler"),
    PlantedBug("a run that somebody keeps comes back with its first part", Parts, "__call__",
               "if self._left.pop():", "if self._left.pop() or self._left:"),
    PlantedBug("a run that somebody keeps never comes back", Parts, "__init__",
               "(len(whole.segments) - 1)", "len(whole.segments)"),
    # The queue between task and sender.
    PlantedBug("sequence numbers stand still", Subpartition, "poll",
               "self._sequence = (self._sequence + count) & 0xFFFFFFFF", "pass"),
    PlantedBug("a run that is polled has one number", Subpartition, "poll", "self._sequence + count",
               "self._sequence + 1"),
    PlantedBug("a buffer that was sent stays in the backlog", Subpartition, "_take",
               "if not is_event:", "if False:"),
    PlantedBug("more is polled than was asked for", Subpartition, "poll",
               "self._take(limit)", "self._take(limit + 1)"),
    PlantedBug("a run that is polled counts as one", Subpartition, "poll", "limit -= count", "limit -= 1"),
    PlantedBug("what is left of a split run is lost", Subpartition, "_take",
               "head, queue[0] = head.split(limit)", "head, _ = queue.popleft().split(limit)"),
    PlantedBug("a split run is sent again", Subpartition, "_take", "head, queue[0] = head.split(limit)",
               "head, _ = head.split(limit)"),
    PlantedBug("a run leaves the backlog as one buffer", Subpartition, "_take",
               "self._backlog -= len(head.segments)", "self._backlog -= 1"),
    PlantedBug("a reader that waits is taken for one that looks", Subpartition, "poll",
               "self._reader_waits = not polled or polled[-1].next_is_event is None",
               "self._reader_waits = not polled"),
    PlantedBug("a reader is told only once", Subpartition, "poll",
               "self._reader_waits = not polled or polled[-1].next_is_event is None", "pass"),
    PlantedBug("an unfinished buffer is closed when it is sent", Subpartition, "_take",
               "if head_finished:", "if True:"),
    PlantedBug("a flush ends at the first buffer", Subpartition, "_take", "if len(queue) == 1:", "if True:"),
    PlantedBug("a flush tells nobody", Subpartition, "flush", "self._news()", "None"),
    PlantedBug("a full buffer tells nobody", Partition, "write", "subpartition.announce()", "pass"),
    PlantedBug("an event tells nobody", Partition, "write_event", "self.subpartitions[index].announce()", "pass"),
    PlantedBug("the end tells nobody", Subpartition, "finish", "notify = self._news()", "notify = None"),
    PlantedBug("filled buffers are not counted in the backlog", Subpartition, "add_filled",
               "self._backlog += len(buffer.segments)", "pass"),
    PlantedBug("a run counts as one in the backlog", Subpartition, "add_filled", "len(buffer.segments)", "1"),
    PlantedBug("filled buffers are lost when nobody wants them", Subpartition, "add_filled",
               "buffer.recycle()", "pass"),
    PlantedBug("every segment of a run gets the last bytes of an element", SpanningSerializer, "fill",
               "piece[:count]", "piece[-count:]"),
    PlantedBug("a long element takes a segment too many", Partition, "_run_length",
               "(record.remaining + unused) // size if", "(record.remaining + unused) // size + 1 if"),
    PlantedBug("a writer that fell short is not woken", Partition, "_request", "self._wanting = True", "pass"),
    PlantedBug("a released queue keeps its buffers", Subpartition, "release",
               "queued.recycle() if isinstance(queued, Buffer) else queued.close()", "pass"),
    PlantedBug("an event leaves its builder open", Partition, "write_event", "self._finish_builder(index)", "pass"),
    # Barriers, and channels without buffers of their own.
    PlantedBug("nothing is blocked behind a barrier", Subpartition, "_take", "self._blocked = True", "pass"),
    PlantedBug("a blocked channel never goes on", Sender, "_resume", "reader.view.resume()", "pass"),
    PlantedBug("nobody is told of a backlog without credit", Sender, "_enqueue",
               "self._control.append(encode(BacklogAnnouncement(backlog, reader.receiver)))", "pass"),
    PlantedBug("an announced backlog is not heeded", Channel, "on_backlog",
               "self._buffers.on_backlog(backlog)", "pass"),
    PlantedBug("a backlog behind an event is not heeded", Channel, "on_event",
               "self._buffers.on_backlog(response.backlog)", "pass"),
    PlantedBug("a priority barrier waits in line", Subpartition, "_insert_priority",
               "sum(1 for _ in queued)", "len(self._queue)"),
    PlantedBug("a priority barrier tells nobody", Subpartition, "_insert_priority",
               "return self._on_priority if", "return _tell_nobody if"),
    PlantedBug("overtaken data are not held", Subpartition, "_data_before", "queued.retain()", "queued"),
    PlantedBug("overtaken data are taken from the reader", Consumer, "peek", "self._position = position", "pass"),
    PlantedBug("a priority barrier tells the gate nothing", Channel, "on_event",
               "self._notify_priority(self.index)", "pass"),
    PlantedBug("a priority barrier has no number", Channel, "on_event",
               "self._check_sequence(response.sequence)", "pass"),
    # The queue between receiver and task.
    PlantedBug("data tell the gate nothing", Channel, "on_read", "self._notify(self.index)", "pass"),
    PlantedBug("an event tells the gate nothing", Channel, "on_event", "self._notify(self.index)", "pass"),
    PlantedBug("a released channel minds the numbers of what it discards", Channel, "_check_sequence",
               " and not self._released", ""),
    PlantedBug("a channel that has more says it has not", Channel, "poll",
               "or None, bool(received) or ", "or None, "),
    PlantedBug("a gate forgets channels that have more", Gate, "poll", "if more and", "if False and"),
    PlantedBug("a gate looks at the data before it takes the channel off", Gate, "poll",
               "self._queued.discard(channel)", "pass"),
    PlantedBug("a released channel keeps what it received", Channel, "_drop_received", "item.recycle()", "pass"),
    PlantedBug("a channel does not hear that the connection is gone", Channel, "on_error",
               "self._error = error", "pass"),
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
