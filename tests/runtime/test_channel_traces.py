"""Traces of channels on request: what the driver asks and is told, and traces of running jobs."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.config import FlowControl
from headgate.exchange.traced_channel import TracedChannel
from headgate.observe.channel_trace import MOST_OF_END, ChannelTrace, TraceEvent
from headgate.protocol.traced_ends import TracedCredit, TracedReceivingChannel, TracedView
from headgate.runtime.control_messages import DeclineRequest, ReportProfile, ReportTrace, TraceChannel
from headgate.runtime.master.channel_traces import ChannelTraces
from headgate.runtime.master.task_requests import TaskRequests
from tests.observe.made_metrics import line
from tests.runtime.jobs import NUMBERS, endless, environment, eventually, wait_until_running
from tests.runtime.test_profiles import FakeAttempt

EXCHANGE = "numbers -> slow"
SENT = TraceEvent("sent", 0.1, 2, 7, 3)
RECEIVED = TraceEvent("received", 0.1, 2, 7, 3)


class Asked:
    """Requests to a running attempt of two TaskManagers, in which even subtasks are in the first."""

    def __init__(self) -> None:
        self.attempt = FakeAttempt()
        self.requests = TaskRequests()
        self.traces = ChannelTraces(line("numbers", "slow", parallelism=3), lambda subtask: subtask % 2, self.requests)
        self.requests.begin(self.attempt)  # type: ignore[arg-type]

    def ask(
        self, exchange: str = EXCHANGE, producer: int = 0, consumer: int = 1, seconds: float = 2
    ) -> Future[ChannelTrace]:
        return self.traces.ask(exchange, producer, consumer, seconds)

    def error(self, message: ReportTrace | ReportProfile | DeclineRequest) -> str:
        answer = self.ask()
        self.requests.on_message(message)
        with pytest.raises(hg.TraceError) as caught:
            answer.result(0)
        return str(caught.value)


def report(ends: Any, *events: TraceEvent, **fields: Any) -> ReportTrace:
    usual: dict[str, Any] = {"began_at": 1000.0, "is_full": False}
    return ReportTrace(request=1, ends=ends, events=list(events), **{**usual, **fields})


def test_both_taskmanagers_are_asked_and_their_reports_are_one_trace() -> None:
    asked = Asked()
    answer = asked.ask()
    order = TraceChannel(request=1, exchange=EXCHANGE, producer=0, consumer=1, seconds=2.0)
    assert [link.sent for link in asked.attempt.links] == [[order], [order]]
    asked.requests.on_message(report("consumer", RECEIVED._replace(at=0.2)))
    assert not answer.done()
    asked.requests.on_message(report("producer", SENT))
    trace = answer.result(0)
    assert (trace.exchange, trace.producer, trace.consumer, trace.seconds) == (EXCHANGE, 0, 1, 2.0)
    assert [event.kind for event in trace.events] == ["sent", "received"]


def test_a_channel_within_a_taskmanager_has_one_report() -> None:
    asked = Asked()
    answer = asked.ask(producer=1, consumer=1)
    assert [len(link.sent) for link in asked.attempt.links] == [0, 1]
    asked.requests.on_message(report("both", TraceEvent("read", 0.1, 1, 0, 2)))
    assert [event.kind for event in answer.result(0).events] == ["read"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"exchange": "numbers -> slo"}, "has no exchange 'numbers -> slo'; did you mean 'numbers -> slow'?"),
        ({"exchange": "x"}, "has no exchange 'x'; it has 'numbers -> slow'"),
        ({"producer": 3}, "has no producer 3; they are numbered from 0 to 2"),
        ({"consumer": -1}, "has no consumer -1"),
        ({"consumer": True}, "has no consumer True"),
        ({"producer": "1"}, "has no producer '1'"),
        ({"seconds": 0}, "seconds=0: a trace takes more than 0 and at most 10 seconds"),
        ({"seconds": 11}, "seconds=11"),
        ({"seconds": float("nan")}, "seconds=nan"),
    ],
)
def test_what_cannot_be_traced_is_named(arguments: dict[str, Any], says: str) -> None:
    asked = Asked()
    with pytest.raises(hg.TraceError, match=re.escape(says)):
        asked.ask(**arguments)
    assert not any(link.sent for link in asked.attempt.links)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (report("producer", *[SENT] * (MOST_OF_END + 1)), "sent a trace of 5001 events; at most 5000 are allowed"),
        (report("producer", RECEIVED), "sent events of a kind that its end does not have: received"),
        (report("consumer", SENT), "does not have: sent"),
        (report("producer", SENT._replace(at=float("inf"))), "sent events without a time"),
        (report("producer", began_at=float("nan")), "sent events without a time"),
        (DeclineRequest(request=1, reason="it is\x1b being traced"), "could not be traced: it is\\x1b being traced"),
    ],
)
def test_a_damaged_trace_is_an_error_of_the_request_only(message: ReportTrace, says: str) -> None:
    assert says in Asked().error(message)


def test_a_profile_is_no_trace() -> None:
    profile = ReportProfile(
        request=1, seconds=1, looks=1, samples=1, cpu_s=0, run_delay_s=None, frames=[], stacks=[], left_out=0
    )
    assert "its TaskManager sent no trace" in Asked().error(profile)


# --- running jobs


def late(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(0.005)
    return batch


@contextmanager
def starved(processes: bool, **options: Any) -> Iterator[hg.JobHandle]:
    """A job whose consumer 1, in another TaskManager than the source, is slower than the source."""
    env = environment(processes, segment_size=4096, message_size=4096, **options)
    rows = endless(env).set_parallelism(1).name("numbers").partition_by(lambda batch, _: np.full(batch.num_rows, 1))
    rows.map_batches(late, schema=NUMBERS).name("slow").sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        wait_until_running(job)
        yield job
    finally:
        job.cancel()


def of(trace: ChannelTrace, *kinds: str) -> list[TraceEvent]:
    return [event for event in trace.events if event.kind in kinds]


def test_a_trace_shows_data_that_wait_for_credit_and_the_credit_that_comes_back(processes: bool) -> None:
    with starved(processes) as job:
        trace = job.trace_channel(EXCHANGE, 0, 1, seconds=2.0)
        again = eventually(lambda: of(found := job.trace_channel(EXCHANGE, 0, 1, seconds=0.2), "read") and found)
    assert trace.is_complete
    assert {event.kind for event in trace.events} == {"sent", "credited", "received", "granted", "read"}
    assert max(event.left for event in of(trace, "sent")) > 0, "a backlog"
    assert_credit_adds_up(of(trace, "sent", "credited"))
    assert_arrived(of(trace, "sent"), of(trace, "received"))
    assert_arrived(of(trace, "granted"), of(trace, "credited"))
    assert again.at > trace.at


def assert_credit_adds_up(events: Sequence[TraceEvent]) -> None:
    """Each AddCredit adds to what the data before it have left: one credit for a buffer."""
    credits = [at for at, event in enumerate(events) if event.kind == "credited"]
    assert len(credits) > 3
    for one, other in pairwise(credits):
        spent = sum(event.buffers for event in events[one + 1 : other])
        before, after = events[one], events[other]
        assert after.left == before.left - spent + after.buffers
        assert after.number == before.number + after.buffers


def assert_arrived(messages: Sequence[TraceEvent], arrivals: Sequence[TraceEvent]) -> None:
    """Messages arrive with the numbers with which they left, and after that."""
    left = {event.number: event for event in messages}
    found = [(left[event.number], event) for event in arrivals if event.number in left]
    assert len(found) >= 0.8 * len(arrivals) > 3
    assert all(one.at <= other.at for one, other in found)


def test_without_a_place_the_channel_that_waits_most_is_traced() -> None:
    with starved(False) as job:
        eventually(lambda: job._master.monitor.worst_channel(EXCHANGE, None, None) == (0, 1))
        assert job.trace_channel(EXCHANGE, seconds=0.1).consumer == 1


def test_within_one_taskmanager_there_are_reads_alone(processes: bool) -> None:
    with starved(processes, taskmanagers=1) as job:
        trace = job.trace_channel(EXCHANGE, 0, 1, seconds=0.5)
    assert {event.kind for event in trace.events} == {"read"}


def test_without_credit_a_trace_has_data_alone() -> None:
    with starved(False, flow_control=FlowControl.TCP) as job:
        trace = job.trace_channel(EXCHANGE, 0, 1, seconds=0.5)
    assert of(trace, "read")
    assert not of(trace, "granted", "credited"), "and data that fill the sockets may last for seconds"


@pytest.mark.parametrize("taskmanagers", [1, 2])
def test_after_a_trace_nothing_of_it_stands_between_the_ends(taskmanagers: int) -> None:
    with starved(False, taskmanagers=taskmanagers) as job:
        job.trace_channel(EXCHANGE, 0, 1, seconds=0.2)
        gc.collect()
        kinds = (TracedChannel, TracedView, TracedCredit, TracedReceivingChannel)
        assert not [each for each in gc.get_objects() if isinstance(each, kinds)]


def test_a_channel_is_traced_once_at_a_time() -> None:
    with starved(False) as job:
        first = job._master.traces.ask(EXCHANGE, 0, 1, 10.0)
        with pytest.raises(hg.TraceError, match="could not be traced: it is being traced already"):
            job.trace_channel(EXCHANGE, 0, 1, seconds=0.1)
    with pytest.raises(hg.TraceError, match="its job"):
        first.result(0)


def test_a_finished_job_has_no_trace() -> None:
    env = environment(False)
    rows = env.from_source(hg.sources.iterable([[{"n": 1}]], schema=NUMBERS)).name("numbers")
    rows.rebalance().map_batches(lambda batch: batch, schema=NUMBERS).name("slow").sink_to(hg.sinks.null())
    job = env.execute_async()
    job.wait(60)
    with pytest.raises(hg.TraceError, match="could not be traced: job .* is FINISHED"):
        job.trace_channel(EXCHANGE, 0, 0)
