"""`ChannelTracer`: records what passes a channel of this TaskManager, when the driver requests a trace."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

from headgate.exchange.blocking import Subpartition
from headgate.exchange.channels import InputChannel, RemoteInputChannel
from headgate.exchange.gate import InputGate
from headgate.exchange.traced_channel import TracedChannel
from headgate.observe.channel_trace import MOST_OF_END, TraceEvent
from headgate.protocol.sender import Credit, SubpartitionView
from headgate.protocol.traced_ends import TracedCredit, TracedReceivingChannel, TracedView, TraceKind
from headgate.runtime.control_messages import DeclineRequest, FromTaskManager, ReportTrace, TraceChannel
from headgate.runtime.task.task_builder import BuiltTask
from headgate.runtime.taskmanager.link_ends import LinkEnds
from headgate.transport.network_thread import NetworkThread

log = logging.getLogger(__name__)

#: The most traces that a TaskManager records at the same time.
MOST: Final = 4


class ChannelTracer:
    """Records traces. The TaskManager's own thread calls `trace`; the network thread begins and ends each trace.

    A trace replaces objects of the channel by objects that record events. When it is complete, it puts the old objects
    back. So no lock changes, and a channel without a trace has no extra cost.
    """

    def __init__(self, network: NetworkThread, send: Callable[[FromTaskManager], None]) -> None:
        self._network = network
        self._send = send
        self._running: set[tuple[str, int, int]] = set()

    def trace(self, order: TraceChannel, tasks: Sequence[BuiltTask], links: LinkEnds | None) -> None:
        """Begin to record a channel, and send its trace when it is complete."""
        begin = None if links is None else _end_of(order, tasks, links)
        if begin is None:
            self._decline(order, "its tasks have not started yet, or have ended")
        elif _place(order) in self._running:
            self._decline(order, "it is being traced already")
        elif len(self._running) >= MOST:
            self._decline(order, f"its TaskManager is already recording {MOST} traces")
        else:
            self._running.add(_place(order))
            self._network.post(partial(self._begin, order, begin))

    def _begin(self, order: TraceChannel, begin: Callable[[_Recorder], bool]) -> None:
        recorder = _Recorder()
        try:
            is_open = begin(recorder)
        except Exception as error:  # a trace that fails is no reason for a job to fail
            log.exception("error in a trace")
            is_open, reason = False, f"unexpected {type(error).__name__}: {error}"
        else:
            reason = "its two ends are not connected"
        if is_open:
            self._network.call_later(order.seconds, partial(self._end, order, recorder))
        else:
            recorder.end()
            self._running.discard(_place(order))
            self._decline(order, reason)

    def _end(self, order: TraceChannel, recorder: _Recorder) -> None:
        recorder.end()
        self._running.discard(_place(order))
        self._send(
            ReportTrace(
                request=order.request,
                ends=recorder.ends,
                began_at=recorder.began_at,
                events=recorder.events,
                is_full=recorder.is_full,
            )
        )

    def _decline(self, order: TraceChannel, reason: str) -> None:
        self._send(DeclineRequest(request=order.request, reason=reason))


def _place(order: TraceChannel) -> tuple[str, int, int]:
    return order.exchange, order.producer, order.consumer


class _Recorder:
    """The events of a trace, and how to end it. Any thread may call `note`: adding to a list needs no lock."""

    def __init__(self) -> None:
        self.ends: Literal["producer", "consumer", "both"] = "both"
        self.began_at = time.time()
        self._begin = time.monotonic()
        self.events: list[TraceEvent] = []
        self.is_full = False
        #: Functions that put the replaced objects back.
        self.undo: list[Callable[[], object]] = []

    def note(self, kind: TraceKind, buffers: int, number: int, left: int) -> None:
        if len(self.events) < MOST_OF_END:
            self.events.append(TraceEvent(kind, round(time.monotonic() - self._begin, 6), buffers, number, left))
        else:
            self.is_full = True

    def end(self) -> None:
        """Put all replaced objects back."""
        for undo in self.undo:
            undo()


def _end_of(order: TraceChannel, tasks: Sequence[BuiltTask], links: LinkEnds) -> Callable[[_Recorder], bool] | None:
    """Return the function that starts to record this TaskManager's end of the channel, or None without such an end.

    The function returns False if the two ends are not connected. If this TaskManager has both ends, the function
    records what the consumer reads.
    """
    for built in (each for each in tasks if not each.task.has_ended):
        for taken in built.inputs if built.subtask == order.consumer else ():
            if taken.name == order.exchange and order.producer in taken.producers:
                channel = taken.channels[taken.producers.index(order.producer)]
                gate = next(each.gate for each in built.gates if channel in each.channels)
                return lambda recorder: _record_consumer(recorder, links, gate, channel)
    for built in tasks:
        for given in built.outputs if built.subtask == order.producer else ():
            if given.name == order.exchange and order.consumer in given.consumers:
                subpartition = given.writer.partition.subpartitions[given.consumers.index(order.consumer)]
                return lambda recorder: _record_producer(recorder, links, subpartition)
    return None


def _record_producer(recorder: _Recorder, links: LinkEnds, subpartition: Subpartition) -> bool:
    view = TracedView(subpartition, recorder.note)

    def traced(_: SubpartitionView, credit: Credit) -> tuple[SubpartitionView, Credit]:
        recorder.undo.append(lambda: links.wrap(view, lambda *_: (subpartition, credit)))
        return view, TracedCredit(credit, recorder.note)

    recorder.ends = "producer"
    return links.wrap(subpartition, traced)


def _record_consumer(recorder: _Recorder, links: LinkEnds, gate: InputGate, channel: InputChannel) -> bool:
    if isinstance(channel, RemoteInputChannel):
        recorder.ends = "consumer"
        receiving = TracedReceivingChannel(channel, channel.credit_announced, recorder.note)
        if not links.replace(channel, receiving):
            return False
        recorder.undo.append(lambda: links.replace(receiving, channel))
    recorder.undo.append(lambda: gate.replace(channel.index, channel))
    gate.replace(channel.index, TracedChannel(channel, recorder.note))
    return True
