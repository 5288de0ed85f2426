"""A job that never ran, for the page: its snapshots are made up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.errors import ProfileError, TraceError
from headgate.observe.channel_trace import ChannelTrace, EndTrace, TraceEvent, joined
from headgate.observe.diagnosis import diagnose
from headgate.observe.finding import Finding
from headgate.observe.history import History, Point
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.profile import HEADGATE, Frame, Profile, Stack
from headgate.observe.recording import Recorder, write_recording
from headgate.observe.series import series_of
from headgate.observe.topology import Topology
from headgate.records.elements import MAX_TIME, MIN_TIME
from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
from headgate.web.job_view import JobFacts
from tests.observe.made_metrics import Tasks, line, snapshots

#: A task that waits for room in its output most of the time, one that waits for input, and one that works.
WAITS = {"soft_backpressured_s": 0.9, "busy_s": 0.1, "cpu_s": 0.1, "rows": 100}
IDLES = {"idle_s": 0.9, "busy_s": 0.1, "cpu_s": 0.1, "rows": 100}
SLEEPS = {"busy_s": 1.0, "cpu_s": 0.01, "rows": 100, "batches": 3}
RUNNING = JobFacts(state="RUNNING", started_at=1000.0, ended_at=None, restarts=0, error=None)


@dataclass(kw_only=True)
class FakeJob:
    """A `JobView` whose values are fields; a test may change them."""

    topology: Topology
    taken: list[MetricsSnapshot]
    name: str = "orders"
    id: str = "1f-0a0b0c0d"
    state: JobFacts = RUNNING
    ended_checkpoints: list[CheckpointRecord] = field(default_factory=list)
    options: Mapping[str, str] = field(default_factory=lambda: {"buffer_timeout": "0.01"})
    #: How often data go forth and credit comes back in a trace.
    rounds: int = 3
    nbytes: int = 1000
    last: Profile | None = None
    #: The profiles that were asked for: operator, subtask and seconds.
    profiled: list[tuple[str, int, float]] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=lambda: {"python": "3.11.7"})

    def facts(self) -> JobFacts:
        return self.state

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        return tuple(self.taken)

    def metrics(self) -> Mapping[str, Any]:
        return {"rows_in": 7, "taskmanagers": 1, "tasks": {"a[0]": {}}, "operators": {}, "machine": [{"cores": 8}]}

    def diagnose(self) -> Sequence[Finding]:
        return diagnose(self.topology, self.taken)

    def _history(self) -> History:
        history = History()
        for before, after in zip([None, *self.taken], self.taken, strict=False):
            history.record(after.at, series_of(before, after))
        return history

    def series_names(self) -> Sequence[str]:
        return self._history().names

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        return self._history().points(name, begin, end)

    def checkpoints(self) -> Sequence[CheckpointRecord]:
        return self.ended_checkpoints

    def trace_channel(self, exchange: str, producer: int, consumer: int, seconds: float) -> Future[ChannelTrace]:
        if self.state.ended_at is not None:
            raise TraceError("its job has ended")
        answer: Future[ChannelTrace] = Future()
        answer.set_result(joined(exchange, producer, consumer, seconds, traced_ends(self.rounds)))
        return answer

    def profile(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        if self.state.ended_at is not None:
            raise ProfileError("its job has ended")
        self.profiled.append((operator, subtask, seconds))
        self.last = profile_of(operator, subtask, ended_at=1010.0 + len(self.profiled))
        answer: Future[Profile] = Future()
        answer.set_result(self.last)
        return answer

    def last_profile(self) -> Profile | None:
        return self.last

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        recorder = Recorder()
        for snapshot in self.taken:
            recorder.add(snapshot)
        write_recording(path, recorder.lines, self.topology, {})

    def go_on(self, job: FakeJob) -> None:
        """Do from now on what another job does."""
        last = job.taken[-1]
        self.taken[:] = [*job.taken[:-1], replace(last, at=last.at + 0.1)]

    def end(self, at: float, state: str = "FINISHED", error: str | None = None) -> None:
        self.state = replace(self.state, state=state, ended_at=at, error=error)


def traced_ends(rounds: int) -> list[EndTrace]:
    """Return a trace of a channel with a credit of 1: data, a read and an AddCredit, so many times."""
    producer, consumer = [], []
    for number in range(rounds):
        at = 0.1 * number
        producer += [TraceEvent("sent", at, 1, number, 5), TraceEvent("credited", at + 0.06, 1, number + 2, 1)]
        consumer += [
            TraceEvent("received", at + 0.01, 1, number, 5),
            TraceEvent("read", at + 0.04, 1, 0, 0),
            TraceEvent("granted", at + 0.05, 1, number + 2, 0),
        ]
    return [EndTrace(1010.0, producer, False), EndTrace(1010.0, consumer, False)]


def profile_of(operator: str, subtask: int, **fields: Any) -> Profile:
    """Return a profile whose function waits in `ask` for most of its time, and else computes in six lines."""
    main = Frame("/home/me/prices.py", 12, "price", "user")
    asks = Frame("/home/me/<i>service.py", 40, "ask", "user")
    waits = Frame("/usr/lib/python3/socket.py", 706, "SocketIO.readinto", "library")
    lines = [Stack((HEADGATE, main, asks._replace(line=7 + each)), 6 - each, 6.0 - each) for each in range(6)]
    stacks = (Stack((HEADGATE, main, asks, waits), 70, 1.4), *lines)
    usual: dict[str, Any] = {"ended_at": 1009.0, "seconds": 2.0, "looks": 100, "samples": 100, "cpu_s": 0.5,
                             "stacks": stacks}  # fmt: skip
    return Profile(operator=operator, subtask=subtask, run_delay_s=None, **{**usual, **fields})


def both(vertex: int, does: Mapping[str, Any]) -> Tasks:
    return {(vertex, 0): does, (vertex, 1): does}


def job_with(tasks: Tasks, *vertices: str, **fields: Any) -> FakeJob:
    """Return a job whose vertices stand in a row, with two subtasks each, that do what `tasks` says.

    `fields` are those of `FakeJob`, and `attempt`, `begin` and `channels` of its snapshots.
    """
    topology = line(*(vertices or ("numbers", "warehouse", "out")))
    moments = {name: fields.pop(name) for name in ("attempt", "begin", "channels") if name in fields}
    taken = [_complete(topology, each) for each in snapshots(topology, tasks, count=12, **moments)]
    return FakeJob(topology=topology, taken=taken, **fields)


def _complete(topology: Topology, snapshot: MetricsSnapshot) -> MetricsSnapshot:
    """Return a snapshot with what a real report has besides: exchanges, memory and pools."""
    (report,) = snapshot.reports
    seconds = report["clock_s"]
    pools = {"in_pool_usage": 0.5, "input_floating_usage": 0.4, "input_exclusive_usage": 0.1, "segments_in_use": 3,
             "closed_s": 0.0, "interpreter_wait_s": 0.0, "gathering_bytes": 0,
             "debloated_buffer_size": 32768}  # fmt: skip
    whole = {
        **report,
        "edges": [{"name": edge.name, "producer": producer, "rows_out": int(50 * seconds),
                   "bytes_out": int(800 * seconds)}
                  for edge in topology.edges for producer in range(2)],
        "tasks": [{**task, **pools} for task in report["tasks"]],
        "operators": [{**row, "late_rows": 0, "state_bytes": 10, "state_keys": 2} for row in report["operators"]],
        "machine": {**report["machine"], "cpu_pressure_s": 0.0, "memory_pressure_s": None},
        "network_memory": {"segments": 2048, "available": 2000},
        "in_flight": {"segments": 320, "sockets": 0},
    }  # fmt: skip
    return replace(snapshot, reports=(whole,))


def slow_job(**fields: Any) -> FakeJob:
    """Return a job whose `warehouse` waits for something outside, in both subtasks."""
    return job_with({**both(0, WAITS), **both(1, SLEEPS), **both(2, {"busy_s": 0.5, "rows": 100})}, **fields)


#: 2023-11-14 22:13:20 UTC, in microseconds since the epoch.
EVENT_TIME = 1_700_000_000_000_000


def job_with_watermarks() -> FakeJob:
    """Return a job with each kind of watermark. `silent` has none, although one of its subtasks has. `idle` is idle,
    and `over` has ended. That of `clicks` is five seconds after `EVENT_TIME`: its idle subtask does not count."""
    early = {**IDLES, "watermark": EVENT_TIME}
    tasks = {
        (0, 0): early, (0, 1): {**IDLES, "watermark": MIN_TIME}, **both(1, {**early, "is_idle": True}),
        **both(2, {**IDLES, "watermark": MAX_TIME}), (3, 0): {**early, "watermark": EVENT_TIME + 5_000_000},
        (3, 1): {**early, "is_idle": True},
    }  # fmt: skip
    return job_with(tasks, "silent", "idle", "over", "clicks", "out")


#: A channel whose data wait for credit, and one within a TaskManager, which has none.
STARVED = {
    "buffers_sent": 20, "bytes_sent": 60_000, "credits_granted": 20, "credit_wait_s": 0.75, "without_buffer_s": 0.5,
    "credit": 0, "backlog": 7, "queue": 4, "queued_bytes": 70_000, "received_bytes": 40_000, "free_exclusive": 0,
    "free_floating": 0, "unannounced_credit": 0,
}  # fmt: skip
LOCAL = {**dict.fromkeys(STARVED), "buffers_sent": 5, "bytes_sent": 100, "backlog": 2, "queued_bytes": 30}


def job_with_channels(count: int, **fields: Any) -> FakeJob:
    """Return a slow job with so many channels. The one with the highest consumer waits longest; the last is local."""
    channels: dict[tuple[str, int, int], Mapping[str, Any]] = {
        ("numbers -> warehouse", 0, number): {
            **STARVED,
            "credit_wait_s": number / count,
            "without_buffer_s": 0.5 * number / count,
        }
        for number in range(1, count)
    }
    return slow_job(channels={**channels, ("warehouse -> out", 1, 0): LOCAL}, **fields)


def checkpoint(number: int, failure: str | None = None) -> CheckpointRecord:
    part = {"start_delay_s": 0.1, "alignment_s": 0.4, "completed_s": 0.5, "sync_s": 0.01, "async_s": 0.02}
    return CheckpointRecord(
        checkpoint=number, triggered_at=1005.0, duration=0.8, size=4096, failure=failure, parts={"warehouse[1]": part}
    )
