"""Each throttle in virtual time: one of two independent streams stalls. Who is stopped, and what is lost?"""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

import headgate as hg
from headgate.lab.faults.lossy_mechanisms import LossyStormStatus
from headgate.lab.flows import SCHEMA, Flow, Flows, by_target
from headgate.lab.probe import Probe, Seen, Stall
from headgate.simulation.costs import Costs
from headgate.simulation.simulated_environment import SimulatedEnvironment
from headgate.simulation.simulated_job import Watch
from headgate.throttle.mechanism import Mechanism
from headgate.throttle.pid_rate_estimator import PidRateEstimator

# One process of tests runs all of them: several look at the same run.
pytestmark = pytest.mark.xdist_group("simulated throttles")

#: Rows per second of each stream, and seconds: the stream to B.4 stalls at `AT` for `STALL`.
RATE, AT, STALL, END = 100_000, 0.3, 0.5, 1.2
#: Rows of a batch, which is one message.
BATCH = RATE // 1000

T = hg.throttle
MECHANISMS: dict[str, Mechanism] = {
    "StormStatus": T.StormStatus(receive_buffer=40),
    "JStormStages": T.JStormStages(receive_buffer=40, sender_cache="16 kb"),
    "JStormMaster": T.JStormMaster(receive_buffer=40, check_interval=0.02),
    "HeronSpout": T.HeronSpout(high="512 kb", low="256 kb"),
    "MaxPending": T.MaxPending(40),
}
#: All throttles but the one that needs a server. Their events must be the same in every process.
SIMULATED: dict[str, Mechanism] = MECHANISMS | {
    "SparkPid": T.SparkPid(batch_interval=0.05, initial_rate=RATE, min_rate=RATE / 2),
    "Shed": T.Shed(40),
    "FixedRate": T.FixedRate(0.8 * RATE),
}
#: Those that stop only the source of the full subtask.
APART = {"StormStatus", "JStormStages", "MaxPending"}


@dataclass(kw_only=True)
class Outcome:
    """What one run showed."""

    rows_in: int
    rows_out: int
    sibling: Seen
    stalled: Seen
    #: By time: the seconds for which the source of the stalled stream has waited for its throttle.
    waits: dict[float, float]
    #: By time: the rows that all sources have read.
    read: dict[float, int]
    sha256: str


@cache
def of(name: str) -> Outcome:
    return stalled(MECHANISMS[name])


def stalled(mechanism: Mechanism, end: float = END, flow_control: str = "unbounded") -> Outcome:
    probe = Probe({3: Stall(after=AT, seconds=STALL)})
    waits, read = dict[float, float](), dict[float, int]()

    def look(now: float, metrics: dict[str, Any]) -> None:
        waits[round(now, 2)] = metrics["tasks"]["flows[2]"]["throttle_wait_s"]
        read[round(now, 2)] = metrics["rows_in"]

    environment = SimulatedEnvironment(
        parallelism=4,
        taskmanagers=2,
        config=hg.Config(flow_control=flow_control, buffer_timeout=0, throttle=mechanism),
        costs=Costs(rows={"flows": 1e-7, "probe": 1e-7}),
        watch=Watch(interval=0.05, look=look),
    )
    flows = Flows({0: Flow((1,), RATE), 2: Flow((3,), RATE)}, end)
    environment.from_source(flows).partition_by(by_target).sink_to(probe)
    result = environment.execute("stalled")
    return Outcome(
        rows_in=result.rows_in,
        rows_out=result.rows_out,
        sibling=probe.seen[1],
        stalled=probe.seen[3],
        waits=waits,
        read=read,
        sha256=result.sha256,
    )


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_stalled_subtask_stops_its_source_and_nothing_is_lost(name: str) -> None:
    outcome = of(name)
    assert outcome.rows_in == outcome.rows_out == 2 * RATE * END
    assert outcome.stalled.stalled is not None
    waits = outcome.waits
    assert waits[0.25] == 0, "nothing is throttled while nothing stalls"
    assert waits[0.75] - waits[0.5] == pytest.approx(0.25, abs=0.01), "the source stands while its sink stalls"


@pytest.mark.parametrize("name", MECHANISMS)
def test_only_some_leave_the_sibling_its_rate(name: str) -> None:
    sibling = of(name).sibling
    kept = sibling.rate(AT + 0.2, AT + STALL) / sibling.rate(0.0, AT)
    assert kept == pytest.approx(1.0, abs=0.02) if name in APART else kept == 0


@pytest.mark.parametrize("name", sorted(APART))
def test_what_waits_has_the_limit_of_the_queue_and_what_was_on_the_way(name: str) -> None:
    held = of(name).read[0.75] - RATE * (0.75 + AT)
    assert 30 * BATCH <= held <= 60 * BATCH


@pytest.mark.parametrize("name", ["StormStatus", "JStormStages"])
def test_a_stalled_sink_stops_the_tasks_before_it_and_then_their_sources(name: str) -> None:
    """From the source, rows go through an exchange to a map, and through another one to the sink. Each exchange has an
    input queue of 40 messages in each of its two subtasks, and a few messages more are on their way."""
    waits: dict[str, dict[float, float]] = {"between": {}, "flows": {}}
    in_flight: dict[float, int] = {}

    def look(now: float, metrics: dict[str, Any]) -> None:
        for stage, by_time in waits.items():
            seconds = [task["throttle_wait_s"] for task_name, task in metrics["tasks"].items() if stage in task_name]
            by_time[round(now, 2)] = min(seconds, default=0.0)
        in_flight[round(now, 2)] = metrics["rows_in"] - metrics["rows_out"]

    environment = SimulatedEnvironment(
        parallelism=2,
        taskmanagers=2,
        config=hg.Config(flow_control="unbounded", buffer_timeout=0, throttle=MECHANISMS[name]),
        costs=Costs(rows={"flows": 1e-7, "between": 1e-7, "probe": 1e-7}),
        watch=Watch(interval=0.01, look=look),
    )
    source = environment.from_source(Flows({0: Flow((0,), RATE), 1: Flow((1,), RATE)}, END))
    stages = source.rebalance().map_batches(lambda batch: batch, schema=SCHEMA).name("between").rebalance()
    stages.sink_to(Probe({each: Stall(after=AT, seconds=STALL) for each in range(2)}))
    result = environment.execute("two exchanges")
    assert result.rows_in == result.rows_out == 2 * RATE * END
    first = {
        stage: min((time for time, wait in by_time.items() if wait), default=END) for stage, by_time in waits.items()
    }
    assert AT < first["between"] < first["flows"] < AT + STALL
    for by_time in waits.values():
        assert by_time[0.75] - by_time[0.5] == pytest.approx(0.25, abs=0.01), "all of them stand while the sink stalls"
    assert in_flight[0.75] == in_flight[0.5] <= 2 * 2 * 45 * BATCH


@pytest.mark.parametrize(
    ("name", "over_credit"),
    [
        ("StormStatus", T.StormStatus(receive_buffer=40, over_credit=True)),
        ("HeronSpout", T.HeronSpout(high="512 kb", low="256 kb", over_credit=True)),
    ],
)
def test_a_queue_gives_credit_back_at_once_so_over_credit_a_mechanism_does_the_same(
    name: str, over_credit: Mechanism
) -> None:
    over = stalled(over_credit, flow_control="credit")
    assert over.waits == pytest.approx(of(name).waits, abs=0.01)
    assert over.read == pytest.approx(of(name).read, rel=0.02)


def test_messages_that_wait_for_too_long_are_sent_again_and_rows_are_doubled() -> None:
    outcome = stalled(T.MaxPending(40, timeout=0.1))
    doubled = outcome.rows_out - outcome.rows_in
    rounds = STALL / 0.1
    assert 40 * BATCH <= doubled <= (rounds + 1) * 40 * BATCH
    patient = stalled(T.MaxPending(40, timeout=STALL))
    assert patient.rows_out == patient.rows_in, "no message is older than the timeout"


def test_without_acking_nothing_counts() -> None:
    outcome = stalled(T.MaxPending(40, acking=False))
    assert set(outcome.waits.values()) == {0.0}
    assert outcome.read[0.75] == 2 * RATE * 0.75


# ---- batches


#: Rows per second that the slow sink takes.
CAPACITY = 40_000
INTERVAL = 0.1


def with_slow_sink(throttle: Mechanism, seconds: float = 2.0) -> tuple[dict[float, int], int, int]:
    """Offer twice as many rows as the sink takes. Return the rows read by time, the rows read, and those written."""
    read: dict[float, int] = {}
    environment = SimulatedEnvironment(
        parallelism=2,
        taskmanagers=2,
        config=hg.Config(flow_control="unbounded", buffer_timeout=0, throttle=throttle),
        costs=Costs(rows={"flows": 1e-7, "probe": 1 / CAPACITY}),
        watch=Watch(interval=0.1, look=lambda now, metrics: read.__setitem__(round(now, 1), metrics["rows_in"])),
    )
    flows = Flows({0: Flow((1,), 2 * CAPACITY)}, seconds)
    environment.from_source(flows).partition_by(by_target).sink_to(Probe())
    result = environment.execute("slow sink")
    return read, result.rows_in, result.rows_out


def test_the_times_of_batches_bring_the_source_to_the_rate_of_the_sink() -> None:
    read, rows_in, rows_out = with_slow_sink(T.SparkPid(batch_interval=INTERVAL, initial_rate=CAPACITY / 2), 3.0)
    assert rows_in == rows_out
    assert read[0.9] / 0.9 < CAPACITY, "it begins with the first rate"
    assert (read[2.9] - read[1.9]) / 1.0 == pytest.approx(CAPACITY, rel=0.1)


def test_without_a_first_rate_the_source_reads_all_until_a_batch_tells_its_time() -> None:
    read, rows_in, rows_out = with_slow_sink(T.SparkPid(batch_interval=INTERVAL), 0.5)
    assert rows_in == rows_out
    assert read[0.1] == pytest.approx(2 * CAPACITY * 0.1, rel=0.05)


def test_a_largest_rate_is_kept() -> None:
    read, rows_in, rows_out = with_slow_sink(T.SparkPid(batch_interval=INTERVAL, max_rate=CAPACITY / 4))
    assert rows_in == rows_out
    assert (read[1.9] - read[0.9]) / 1.0 == pytest.approx(CAPACITY / 4, rel=0.05)


def test_each_new_rate_reaches_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's RateControllerSuite: an estimator with the constant rates 100, 200 and 300, here 100 times as much."""
    batches = itertools.count()
    rates = [10_000.0] * 7 + [20_000.0] * 7 + [30_000.0] * 100
    monkeypatch.setattr(PidRateEstimator, "compute", lambda *_: rates[next(batches)])
    read, rows_in, rows_out = with_slow_sink(T.SparkPid(batch_interval=INTERVAL, initial_rate=10_000))
    assert rows_in == rows_out
    seen = [(read[end] - read[begin]) / 0.4 for begin, end in ((0.2, 0.6), (0.9, 1.3), (1.5, 1.9))]
    assert seen == pytest.approx([10_000, 20_000, 30_000], rel=0.05)


#: It prints the hash of what each throttle did, with rows until shortly after the stall began.
_HASHES = """
from tests.simulation.test_simulated_throttles import SIMULATED, stalled
for mechanism in SIMULATED.values():
    print(stalled(mechanism, 0.5).sha256)
"""


def test_the_same_seed_has_the_same_events_in_every_process() -> None:
    assert SIMULATED.keys() == {*T.__all__} - {"StormZooKeeper"}
    hashes = {
        subprocess.run(
            [sys.executable, "-c", _HASHES],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (printed,) = hashes
    assert len({*printed.splitlines()}) == len(SIMULATED), "no two throttles do the same"


@pytest.mark.parametrize(
    ("throttle", "taskmanagers"),
    [(T.MaxPending(10), 2), (T.StormStatus(), 3), (T.JStormMaster(), 2), (T.SparkPid(batch_interval=0.1), 2)],
)
def test_a_job_ends_although_its_throttle_has_timers(throttle: Mechanism, taskmanagers: int) -> None:
    """The third TaskManager has no task."""
    config = hg.Config(flow_control="unbounded", buffer_timeout=0, throttle=throttle)
    environment = SimulatedEnvironment(parallelism=2, taskmanagers=taskmanagers, config=config)
    source = hg.sources.iterable([[{"n": n}] for n in range(40)])
    environment.from_source(source).rebalance().sink_to(hg.sinks.null())
    result = environment.execute()
    assert result.rows_out == 40
    assert result.duration_s < 1


@pytest.mark.parametrize(
    "throttle", [T.SparkPid(batch_interval="5 h"), T.StormStatus(receive_buffer=2, check_interval="5 h")]
)
def test_tasks_may_wait_longer_than_an_hour_for_a_check_of_their_throttle(throttle: Mechanism) -> None:
    config = hg.Config(flow_control="unbounded", buffer_timeout=0, throttle=throttle)
    costs = Costs(rows={"null": 0.01})
    environment = SimulatedEnvironment(parallelism=2, taskmanagers=2, config=config, costs=costs)
    source = hg.sources.iterable([[{"n": n}] for n in range(100)])
    environment.from_source(source).rebalance().sink_to(hg.sinks.null())
    result = environment.execute()
    assert result.rows_out == 100
    assert result.duration_s > 18_000


def test_tasks_that_wait_for_each_other_are_an_error_although_their_throttle_goes_on_checking() -> None:
    """The signal that lets the source go on is lost."""
    throttle = LossyStormStatus(receive_buffer=2, lost="start")
    config = hg.Config(flow_control="unbounded", buffer_timeout=0, throttle=throttle)
    costs = Costs(rows={"null": 0.01})
    environment = SimulatedEnvironment(parallelism=2, taskmanagers=2, config=config, costs=costs)
    source = hg.sources.iterable([[{"n": n}] for n in range(100)])
    environment.from_source(source).rebalance().sink_to(hg.sinks.null())
    with pytest.raises(hg.HeadgateError, match=r"^job: all tasks wait for each other since 0\.\d+ s"):
        environment.execute()
