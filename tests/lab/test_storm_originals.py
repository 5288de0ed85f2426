"""StormZooKeeper and StormStatus beside Storm: the trace, the report, and our policies in virtual time."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import headgate as hg
from headgate.bench.peers import maven
from headgate.bench.peers.maven import NoJars
from headgate.errors import HeadgateError
from headgate.lab import storm_originals
from headgate.lab.mechanisms.observed import MechanismRun
from headgate.lab.originals.stop_and_go import StopAndGoLoad, Trace
from headgate.lab.storm_originals import COST, PAIRS, RATE, ours, report
from headgate.throttle.mechanism import Task
from headgate.throttle.stage_signals import BackPressureStatus
from headgate.throttle.storm_status import StormStatus
from headgate.throttle.storm_zookeeper import PutZnode, StormZooKeeper, StormZooKeeperWorker, ZnodeChange

FIXTURES = Path(__file__).parents[1] / "fixtures"
SINK = (1, 1)


def trace_of(*stops: tuple[float, float], seconds: float = 30.0) -> Trace:
    """Return a trace whose source emits every 0.1 s but in these stops, and whose sink processes every 0.2 s."""
    emitted = np.arange(0, seconds, 0.1)
    for begin, end in stops:
        emitted = emitted[(emitted <= begin) | (emitted >= end)]
    return Trace(emitted, np.arange(0.2, seconds, 0.2))


def test_a_trace_shows_its_stops_and_what_waits() -> None:
    trace = trace_of((2.0, 4.0), (10.0, 13.0))
    stops = trace.stops()
    assert [(round(stop.begin, 1), round(stop.end, 1)) for stop in stops] == [(2.0, 4.0), (10.0, 13.0)]
    assert (stops[0].waiting, stops[0].then_waiting) == (21 - 10, 21 - 20)
    assert trace.most_waiting >= stops[0].waiting
    assert trace.processed(1.0, 2.0) == 5


def test_a_trace_may_end_in_a_stop() -> None:
    trace = trace_of((2.0, 4.0), (20.0, 31.0))
    assert len(trace.stops()) == 1
    assert trace.stopped_share(30.0) == pytest.approx((2.0 + 10.0) / 30, abs=0.01)


def test_traces_within_a_quarter_are_the_same() -> None:
    same = trace_of((2.0, 4.0), (10.0, 12.2)), trace_of((2.0, 4.1), (10.0, 12.0))
    assert report({name: [same] for name in PAIRS}, quick=True).met


def test_the_report_says_what_our_side_cost() -> None:
    same = trace_of((2.0, 4.0), (10.0, 12.2)), trace_of((2.0, 4.1), (10.0, 12.0))
    cost = MechanismRun(seconds=30.0, signals=60, driver_s=1.5, zookeeper_s=3.0)
    result = report({name: [same] for name in PAIRS}, {"Storm 1.0.6": [cost]}, quick=True)
    ours_beside = [each for each in result.figures if each.name.startswith("ours beside Storm 1.0.6")]
    assert [(each.name.partition(": ")[2], each.unit, each.values) for each in ours_beside[-3:]] == [
        ("signals", "per second", (2.0,)),
        ("processor time of the driver", "s per s", (0.05,)),
        ("processor time of ZooKeeper", "s per s", (0.1,)),
    ]


def test_other_stops_are_a_miss() -> None:
    same = trace_of((2.0, 4.0), (10.0, 12.2)), trace_of((2.0, 4.1), (10.0, 12.0))
    other = trace_of((2.0, 4.0), (10.0, 12.2)), trace_of((2.0, 4.0), (6.0, 8.0), (10.0, 12.0))
    result = report({name: [other if name == "Storm 1.2.4" else same] for name in PAIRS}, quick=True)
    assert not result.met
    assert "missed: Storm 1.2.4: stops" in result.target
    assert "Storm 2.8.1" not in result.target


def test_an_original_that_never_stops_is_a_miss() -> None:
    runs = {name: [(trace_of(), trace_of((2.0, 4.0)))] for name in PAIRS}
    result = report(runs, quick=True)
    assert "Storm 1.0.6: stops" in result.target


def test_ours_stops_and_starts() -> None:
    load = StopAndGoLoad(rate=2000, cost=0.004, seconds=4)
    pair = storm_originals.Pair(
        original=PAIRS["Storm 2.8.1"].original,
        ours=lambda hosts: StormStatus(100),
        needs_zookeeper=False,
        seconds=4,
        quick_seconds=4,
    )
    trace, cost = ours(pair, load)
    stops = trace.stops()
    # A source that gets no processor seems to stop as well, with any number of messages that wait.
    real = sum(stop.then_waiting < 50 < stop.waiting for stop in stops)
    assert real >= 2, stops
    assert cost.signals >= real
    assert cost.driver_s is not None
    assert (cost.seconds, cost.zookeeper_s) == (4, None)


def test_a_job_that_fails_ends_the_run() -> None:
    pair = storm_originals.Pair(
        original=PAIRS["Storm 1.0.6"].original,
        ours=lambda hosts: StormZooKeeper("127.0.0.1:1"),
        needs_zookeeper=False,
        seconds=4,
        quick_seconds=4,
    )
    with pytest.raises(HeadgateError, match="ZooKeeper does not answer"):
        ours(pair, StopAndGoLoad(rate=100, cost=0.01, seconds=4))


def test_a_run_of_ours_in_which_an_input_stopped_reading_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = hg.JobHandle.metrics
    stopped = {"tasks": {"sink[1]": {"reader_stops": 3}}}
    monkeypatch.setattr(hg.JobHandle, "metrics", lambda job: {**metrics(job), **stopped})
    with pytest.raises(HeadgateError, match="the run is void: inputs stopped reading 3 times"):
        ours(PAIRS["Storm 2.8.1"], StopAndGoLoad(rate=100, cost=0.001, seconds=0.2))


def test_storm_without_maven_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_jars(*_: Any) -> Path:
        raise NoJars("there is no Maven")

    monkeypatch.setattr(maven, "jars", no_jars)
    with pytest.raises(HeadgateError, match="there is no Maven"):
        PAIRS["Storm 1.0.6"].original.run(StopAndGoLoad(rate=1, cost=1, seconds=1))


@pytest.mark.soak
@pytest.mark.parametrize("name", PAIRS)
def test_storm_stops_and_starts(name: str) -> None:
    trace = PAIRS[name].original.run(StopAndGoLoad(rate=RATE, cost=COST, seconds=12))
    assert trace.stops()


# --- our policies in virtual time, beside the recorded traces of Storm


def recorded(version: str) -> list[tuple[int, int]]:
    """Return what waited at the begin and at the end of each stop of a recorded run of Storm."""
    stops = json.loads((FIXTURES / f"storm-{version}.json").read_text())
    return [(stop["waiting"], stop["then_waiting"]) for stop in stops]


class VirtualLoad:
    """The load of `storm`, message by message, in virtual time. The sink needs `cost` seconds for a message."""

    def __init__(self, seconds: float = 30.0, rate: float = RATE, cost: float = COST) -> None:
        self._seconds = seconds
        self._rate = rate
        self._cost = cost
        self.now = 0.0
        self.waiting = 0
        self._emitted: list[float] = []
        self._done: list[float] = []

    def messages(self, is_stopped: Callable[[], bool]) -> Iterator[str]:
        """Yield "added", "taken" and "stopped" in the order of time.

        A message is taken when the sink begins with it. "stopped" comes in place of a message that is not emitted.
        """
        emits = free = 0.0
        while self.now < self._seconds:
            takes = max(self.now, free) if self.waiting else float("inf")
            self.now = min(emits, takes)
            if takes <= emits:
                free = self.now + self._cost
                self.waiting -= 1
                self._done.append(free)
                yield "taken"
                continue
            emits = self.now + 1 / self._rate
            if is_stopped():
                yield "stopped"
                continue
            self.waiting += 1
            self._emitted.append(self.now)
            yield "added"

    def stops(self) -> list[tuple[int, int]]:
        return [(stop.waiting, stop.then_waiting) for stop in self.trace().stops()]

    def trace(self) -> Trace:
        return Trace(np.array(self._emitted), np.array(self._done))


class VirtualZooKeeper:
    """The nodes of one worker. A change takes `delay` seconds, and so does the watch, which sees new and gone nodes."""

    def __init__(self, worker: StormZooKeeperWorker, delay: float) -> None:
        self._worker = worker
        self._delay = delay
        self._nodes: dict[str, bytes] = {}
        #: The change that is on its way, and when it arrives.
        self._change: tuple[float, ZnodeChange] | None = None
        self._watch_fires = 0.0

    def follow(self, now: float) -> None:
        if self._change is not None and self._change[0] <= now:
            self._make(now, self._change[1])
        if self._change is None and self._worker.next_check <= now:
            for change in self._worker.check(now):
                self._change = now + self._delay, change
        if self._worker.next_poll <= now or self._watch_fires <= now:
            self._worker.on_children(now, self._nodes)
            self._watch_fires = float("inf")

    def _make(self, now: float, change: ZnodeChange) -> None:
        self._change = None
        before = set(self._nodes)
        if isinstance(change, PutZnode):
            self._nodes[change.path] = change.data or bytes(8)
        else:
            self._nodes.pop(change.path)
        self._worker.written(now, change)
        if set(self._nodes) != before:
            self._watch_fires = now + self._delay


def virtual_storm_1(
    load: VirtualLoad, *, delay: float = 0.005, receive_buffer: int = 512, **options: Any
) -> VirtualLoad:
    worker = StormZooKeeper(receive_buffer=receive_buffer, **options).worker("job", "host", [SINK], 0.0)
    zookeeper = VirtualZooKeeper(worker, delay)
    for what in load.messages(lambda: worker.throttled):
        if what == "added":
            worker.added(load.now, SINK, load.waiting, None)
        elif what == "taken":
            worker.taken(load.now, SINK, load.waiting)
        zookeeper.follow(load.now)
    return load


def virtual_storm_2() -> VirtualLoad:
    """Statuses arrive after 1 ms."""
    stages = StormStatus(512).stages(0, [SINK], 0.0)
    load, statuses, full = VirtualLoad(), deque[tuple[float, BackPressureStatus]](), set[Task]()
    for what in load.messages(lambda: bool(full)):
        sent: list[BackPressureStatus] = []
        if what == "added":
            sent += stages.added(load.now, SINK, load.waiting, 1)
        elif what == "taken":
            sent += stages.taken(load.now, SINK, load.waiting)
        if stages.next_check <= load.now:
            sent += stages.check(load.now)
        statuses.extend((load.now + 0.001, status) for status in sent)
        while statuses and statuses[0][0] <= load.now:
            status = statuses.popleft()[1]
            full.update(status.full)
            full.difference_update(status.free)
    return load


def settled(stops: list[tuple[int, int]]) -> tuple[float, float, float]:
    """Return what waits at the begin of the early and of the late stops, and at their ends, without the first three.

    A batch of the consumer keeps its room until its end. So stops begin before the mark, in turn earlier and later.
    """
    begins = sorted(begin for begin, _ in stops[3:])
    half = len(begins) // 2
    return median(begins[:half]), median(begins[half:]), median(end for _, end in stops[3:])


def test_our_policy_stops_where_storm_1_0_stopped() -> None:
    mine, theirs = settled(virtual_storm_1(VirtualLoad()).stops()), settled(recorded("1.0.6"))
    assert mine == pytest.approx(theirs, rel=0.05)
    assert mine[0] < 0.95 * mine[1] < 0.95 * 460


def test_our_policy_stops_where_storm_1_2_stopped() -> None:
    """The first stop comes with the watch. All others come with a poll, and last until a poll after the timeout."""
    options: dict[str, Any] = {"version": "1.2", "poll": 3, "znode_update": 2, "znode_timeout": 3}
    mine, theirs = virtual_storm_1(VirtualLoad(60), **options).stops(), recorded("1.2.4")
    assert len(mine) == len(theirs) == 4
    assert mine[0][0] == pytest.approx(theirs[0][0], rel=0.25)
    for (begin, end), (their_begin, their_end) in zip(mine[1:], theirs[1:], strict=True):
        assert begin == pytest.approx(their_begin, rel=0.05)
        assert end == pytest.approx(their_end, abs=10)


@pytest.mark.parametrize("factor", [1, 4, 16])
def test_the_waits_of_storm_1_2_may_be_divided(factor: int) -> None:
    """With its defaults, a source stands for a minute. The sink takes 26 s until its queue is at the low mark, so the
    time in the node is renewed, and only the second poll finds an old one. The poll after that stops the source again.
    """
    options: dict[str, Any] = {"poll": 30 / factor, "znode_update": 15 / factor, "znode_timeout": 30 / factor}
    load = VirtualLoad(110 / factor, rate=200, cost=0.05)
    trace = virtual_storm_1(load, receive_buffer=1024 // factor, version="1.2", **options).trace()
    (stop,) = trace.stops()
    assert factor * stop.begin == pytest.approx(5, abs=0.5)
    assert factor * (stop.end - stop.begin) == pytest.approx(60, rel=0.02)
    assert factor * trace.emitted[-1] == pytest.approx(factor * stop.end + 30, rel=0.02)


def test_our_policy_stops_where_storm_2_stopped() -> None:
    mine, theirs = virtual_storm_2().stops(), recorded("2.8.1")
    assert mine == [pytest.approx(stop, abs=5) for stop in theirs]
