"""`faults`: a signal of a mechanism is lost, or its carrier is away. Which mechanisms stay stuck, and which recover?

One source sends to one sink over one connection, in batches of 100 rows. The sink stalls for a time, and then takes
twice the load. In one case, the first signal that stops the source is lost. In another, the first that lets it go on
is lost. Of Storm 1.0, every such signal is lost. In further cases, ZooKeeper is away from the middle of the stall
until some time after it, or the coordinator forgets everything, or has what its predecessor stored. A node can be
stale, and a stream that no throttle holds back can fill its own queue. Sizes and times of a mechanism are its
documented defaults, divided by one factor.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import headgate as hg
from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.faults.lossy_mechanisms import (
    LossyHeronSpout,
    LossyJStormMaster,
    LossyJStormStages,
    LossyStormStatus,
    LossyStormZooKeeper,
    ReplacedJStormMaster,
)
from headgate.lab.flows import Flow, Flows, by_target
from headgate.lab.mechanisms.contestants import (
    BATCH,
    counting,
    heron_spout,
    jstorm_master,
    jstorm_stages,
    storm_status,
    storm_zookeeper,
)
from headgate.lab.mechanisms.made_runs import judged
from headgate.lab.mechanisms.mechanism_report import mechanism_report
from headgate.lab.mechanisms.observed import MechanismRun, observe_part, overhead
from headgate.lab.mechanisms.slowed_sink import in_flight
from headgate.lab.mechanisms.verdicts import Measured, Observation
from headgate.lab.places import A1, A2, B3, B4, processes
from headgate.lab.probe import Probe, Slow, Stall
from headgate.lab.zookeeper_server import ZooKeeperServer, free_port, zookeeper_server

#: Rows per second of the source.
RATE: Final = 20_000.0
#: The most seconds until clients of ZooKeeper are connected again, after it has been away for some seconds.
_RECONNECTS: Final = 20.0
#: The share of its rate at which a source counts as going on.
_GOES_ON: Final = 0.5
#: Messages of one row per second of the stream that no throttle holds back. Its sink takes half of them.
TELEMETRY: Final = 200.0


@dataclass(frozen=True, slots=True)
class FaultTimes:
    """By which factor all sizes and times are divided, and the seconds of each part of a round."""

    factor: float
    before: float
    stall: float
    after: float

    @property
    def over(self) -> float:
        return self.before + self.stall

    def end_of(self, case: FaultCase) -> float:
        """Return the end of a run. Clients of ZooKeeper wait for some seconds before they connect again."""
        more = (_RECONNECTS if case.loses_zookeeper else 0.0) + (self.stall if case.source_sleeps else 0.0)
        return self.over + self.after + more


FULL: Final = FaultTimes(factor=20, before=2.0, stall=12.0, after=9.0)
QUICK: Final = FaultTimes(factor=80, before=1.0, stall=3.6, after=4.0)


class MortalZooKeeper:
    """A ZooKeeper on one port, which can be away. `folder` keeps its data."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._port = free_port()
        self._running = ExitStack()
        self._server: ZooKeeperServer | None = None
        #: The processor time of the servers before this one, without that of their starts.
        self._used_s = 0.0
        self._started_s = 0.0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = self._running.enter_context(zookeeper_server(self._port, self._folder))
        self._started_s = self._server.processor_seconds()

    def stop(self) -> None:
        self._used_s = self.processor_seconds()
        self._server = None
        self._running.close()

    def processor_seconds(self) -> float:
        """Return the processor time that all of its servers have used since they answered."""
        if self._server is None:
            return self._used_s
        return self._used_s + self._server.processor_seconds() - self._started_s

    def add_stale_node(self) -> None:
        """Add a node of a TaskManager that does not exist to the folder of the job that runs, with the time of now."""
        from kazoo.client import KazooClient

        client = KazooClient(self.address)
        client.start()
        try:
            root = "/storm/backpressure"
            for job in client.get_children(root):
                client.create(f"{root}/{job}/stale", round(time.time() * 1000).to_bytes(8, "big"))
        finally:
            client.stop()
            client.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCase:
    """A mechanism with a fault. `throttle` takes ZooKeeper's address and the factor.

    What is expected was written down before the runs: whether the source stops during the stall, and whether it goes on
    after the stall.
    """

    throttle: Callable[[str, float], Any]
    stops: bool
    #: None: nothing is expected.
    goes_on: bool | None
    needs_zookeeper: bool = False
    #: Whether ZooKeeper is away from the middle of the stall to the middle of the part after the stall.
    loses_zookeeper: bool = False
    #: Whether a node of a TaskManager that does not exist appears before the stall, and nobody removes it.
    has_stale_node: bool = False
    #: Whether the source sleeps for the time that the last message of a congested sink took. If the sink asks for this
    #: at the end of the stall, then the source sleeps as long again before it goes on.
    source_sleeps: bool = False
    #: Whether a stream that no throttle holds back sends more than its own sink takes, as metrics did in Storm 1.
    has_telemetry: bool = False


T = hg.throttle
CASES: Final[dict[str, FaultCase]] = {
    "storm-zk 1.0, no fault": FaultCase(
        throttle=lambda hosts, factor: T.StormZooKeeper(**storm_zookeeper(hosts, factor)),
        stops=True,
        goes_on=True,
        needs_zookeeper=True,
    ),
    "storm-zk 1.0, lost stop": FaultCase(
        throttle=lambda hosts, factor: LossyStormZooKeeper(**storm_zookeeper(hosts, factor), lost="stop"),
        stops=False,
        goes_on=True,
        needs_zookeeper=True,
    ),
    "storm-zk 1.0, lost start": FaultCase(
        throttle=lambda hosts, factor: LossyStormZooKeeper(**storm_zookeeper(hosts, factor), lost="start"),
        stops=True,
        goes_on=False,
        needs_zookeeper=True,
    ),
    "storm-zk 1.0, ZooKeeper away": FaultCase(
        throttle=lambda hosts, factor: T.StormZooKeeper(**storm_zookeeper(hosts, factor)),
        stops=True,
        goes_on=True,
        needs_zookeeper=True,
        loses_zookeeper=True,
    ),
    "storm-zk 1.0, stale node": FaultCase(
        throttle=lambda hosts, factor: T.StormZooKeeper(**storm_zookeeper(hosts, factor)),
        stops=True,
        goes_on=False,
        needs_zookeeper=True,
        has_stale_node=True,
    ),
    "storm-zk 1.0, telemetry": FaultCase(
        throttle=lambda hosts, factor: T.StormZooKeeper(**storm_zookeeper(hosts, factor)),
        stops=True,
        goes_on=False,
        needs_zookeeper=True,
        has_telemetry=True,
    ),
    "storm-zk 1.2, stale node": FaultCase(
        throttle=lambda hosts, factor: T.StormZooKeeper(**storm_zookeeper(hosts, factor), version="1.2"),
        stops=True,
        goes_on=True,
        needs_zookeeper=True,
        has_stale_node=True,
    ),
    #: The source is far behind, and learns at a poll only that the queue is full: it goes on, or memory is full.
    "storm-zk 1.2, ZooKeeper away": FaultCase(
        throttle=lambda hosts, factor: T.StormZooKeeper(**storm_zookeeper(hosts, factor), version="1.2"),
        stops=True,
        goes_on=None,
        needs_zookeeper=True,
        loses_zookeeper=True,
    ),
    "storm-zk 1.2, lost stop": FaultCase(
        throttle=lambda hosts, factor: LossyStormZooKeeper(
            **storm_zookeeper(hosts, factor), version="1.2", lost="stop"
        ),
        stops=True,
        goes_on=True,
        needs_zookeeper=True,
    ),
    "storm-status, telemetry": FaultCase(
        throttle=lambda _hosts, factor: T.StormStatus(**storm_status(factor)),
        stops=True,
        goes_on=True,
        has_telemetry=True,
    ),
    "storm-status, lost stop": FaultCase(
        throttle=lambda _hosts, factor: LossyStormStatus(**storm_status(factor), lost="stop"), stops=False, goes_on=True
    ),
    "storm-status, lost start": FaultCase(
        throttle=lambda _hosts, factor: LossyStormStatus(**storm_status(factor), lost="start"),
        stops=True,
        goes_on=False,
    ),
    "jstorm-stages, lost stop": FaultCase(
        throttle=lambda _hosts, factor: LossyJStormStages(**jstorm_stages(factor), lost="stop"),
        stops=False,
        goes_on=True,
    ),
    "jstorm-stages, lost start": FaultCase(
        throttle=lambda _hosts, factor: LossyJStormStages(**jstorm_stages(factor), lost="start"),
        stops=True,
        goes_on=False,
    ),
    "jstorm-master, lost stop": FaultCase(
        throttle=lambda _hosts, factor: LossyJStormMaster(**jstorm_master(factor), lost="stop"),
        stops=True,
        goes_on=True,
        source_sleeps=True,
    ),
    "jstorm-master, lost start": FaultCase(
        throttle=lambda _hosts, factor: LossyJStormMaster(**jstorm_master(factor), lost="start"),
        stops=True,
        goes_on=True,
        source_sleeps=True,
    ),
    "jstorm-master, coordinator forgets": FaultCase(
        throttle=lambda _hosts, factor: ReplacedJStormMaster(**jstorm_master(factor), keeps_state=False),
        stops=True,
        goes_on=False,
        source_sleeps=True,
    ),
    "jstorm-master, coordinator replaced": FaultCase(
        throttle=lambda _hosts, factor: ReplacedJStormMaster(**jstorm_master(factor), keeps_state=True),
        stops=True,
        goes_on=True,
        source_sleeps=True,
    ),
    "heron, lost stop": FaultCase(
        throttle=lambda _hosts, factor: LossyHeronSpout(**heron_spout(factor), lost="stop"), stops=False, goes_on=True
    ),
    "heron, lost start": FaultCase(
        throttle=lambda _hosts, factor: LossyHeronSpout(**heron_spout(factor), lost="start"), stops=True, goes_on=False
    ),
}


def run(options: Options) -> Experiment:
    """Run each case once."""
    times = QUICK if options.quick else FULL
    options.say(f"faults: all sizes and times divided by {times.factor:g}")
    return judged(
        "faults",
        options,
        [(name, partial(one_run, case, times)) for name, case in CASES.items()],
        lambda runs: report({name: run for name, (run,) in runs.items()}, times),
    )


def one_run(case: FaultCase, times: FaultTimes) -> MechanismRun:
    with tempfile.TemporaryDirectory() as folder:
        server = MortalZooKeeper(folder)
        if case.needs_zookeeper:
            server.start()
        try:
            return _observed(case, server, times)
        finally:
            server.stop()


def _observed(case: FaultCase, server: MortalZooKeeper, times: FaultTimes) -> MechanismRun:
    events: dict[float, Callable[[], None]] = {}
    if case.loses_zookeeper:
        events = {times.before + times.stall / 2: server.stop, times.over + times.after / 2: server.start}
    if case.has_stale_node:
        events = {times.before / 2: server.add_stale_node}
    return observe_part(
        processes,
        counting(case.throttle(server.address, times.factor), times.factor),
        Flows({A2: Flow((B4,), RATE, batch_rows=BATCH)}, 10 * times.end_of(case)),
        Probe({B4: Stall(times.before, times.stall)}, slows={B4: Slow(2 * RATE)}),
        seconds=times.end_of(case),
        events=events,
        extend=_telemetry if case.has_telemetry else None,
        zookeeper_s=server.processor_seconds if case.needs_zookeeper else None,
    )


def _telemetry(environment: hg.StreamEnvironment) -> None:
    """Add a stream whose source has a throttle of its own, so that the mechanism does not hold it back."""
    source = Flows({A1: Flow((B3,), TELEMETRY, batch_rows=1)}, 3600.0)
    stream = environment.from_source(source, throttle=T.FixedRate(10 * TELEMETRY)).name("telemetry")
    stream.partition_by(by_target).sink_to(Probe(slows={B3: Slow(TELEMETRY / 2)}))


def goes_on(run: MechanismRun, times: FaultTimes) -> bool:
    """Return whether the source reads at half of its rate or more at the end of a run."""
    return not run.out_of_memory and rate_at_end(run, times) >= _GOES_ON * RATE


def rate_at_end(run: MechanismRun, times: FaultTimes) -> float:
    """Return the rows/s that the source reads at the end of a run, in three quarters of the time after the stall.

    With Storm 1.2 a source that has to catch up reads for a moment, and then stands for the timeout and a poll.
    """
    late = [look for look in run.looks if look.at >= run.looks[-1].at - 0.75 * times.after]
    seconds = late[-1].at - late[0].at if late else 0.0
    return (late[-1].rows_in - late[0].rows_in) / seconds if seconds else 0.0


def report(runs: Mapping[str, MechanismRun], times: FaultTimes) -> Experiment:
    """Return what happened with each fault, and whether that was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    for name, run in runs.items():
        stopped = run.stopped_at(times.before)
        stops = stopped is not None and stopped < times.over
        findings += [
            Observation(name, "the source stops during the stall", stops, CASES[name].stops),
            Observation(name, "the source goes on after the stall", goes_on(run, times), CASES[name].goes_on),
        ]
        measured[name] = {
            "until the source stops": ("s", [stopped - times.before if stops and stopped is not None else None]),
            "rows in flight at most": ("rows", [float(run.most_in_flight(0, run.looks[-1].at))]),
            "until memory is full": ("s", [run.full_at]),
            "rows/s that the source reads at the end": ("rows/s", [rate_at_end(run, times)]),
            **overhead([run]),
        }
    return mechanism_report(
        "faults",
        "each mechanism does what was expected when its signals are lost",
        findings=findings,
        measured=measured,
        better={},
        settings={
            "rows/s": RATE,
            "rows of a batch": BATCH,
            "sizes and times divided by": times.factor,
            "seconds stalled": times.stall,
        },
        plots=(
            in_flight(
                {name: [run] for name, run in runs.items()},
                "rows in flight",
                (times.before, "the sink stalls"),
                (times.over, "the stall ends"),
            ),
        ),
    )
