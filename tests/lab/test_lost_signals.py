"""Mechanisms that lose one signal: the policies lose exactly that one, and whole jobs stay stuck or recover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.errors import HeadgateError
from headgate.lab.faults import lost_signals
from headgate.lab.faults.lossy_mechanisms import (
    LossyHeronSpout,
    LossyJStormMaster,
    LossyJStormStages,
    LossyStormStatus,
    LossyStormZooKeeper,
    Lost,
    ReplacedJStormMaster,
)
from headgate.lab.faults.lost_signals import CASES, QUICK, RATE, FaultCase, goes_on, one_run
from headgate.throttle.heron_spout import StartBackPressure, StopBackPressure
from headgate.throttle.jstorm_master import JStormMaster
from headgate.throttle.storm_zookeeper import DeleteZnode, PutZnode, StormZooKeeper
from headgate.throttle.throttle_coordinator import SleepLonger, StartRequest, StopRequest
from tests.ending import TooLate

TASK = (1, 0)


@pytest.mark.parametrize(
    ("lost", "fills", "arrive"),
    [
        ("stop", (10, 10, 0, 0), [DeleteZnode]),
        ("start", (10, 10, 0, 0), [PutZnode]),
        # The queue crosses its marks twice. Once, the second change came through and hid the loss of the first.
        ("stop", (10, 0, 10, 0), [DeleteZnode, DeleteZnode]),
        ("start", (10, 0, 10, 0), [PutZnode, PutZnode]),
    ],
)
def test_a_change_of_a_node_is_lost_and_its_taskmanager_does_not_know(
    lost: Lost, fills: tuple[int, ...], arrive: list[type]
) -> None:
    worker = LossyStormZooKeeper(receive_buffer=10, lost=lost).worker("job", "host", [TASK], 0.0)
    changes = []
    for at, fill in zip((0.1, 0.2, 0.3, 0.4), fills, strict=True):
        if fill:
            worker.added(at, TASK, fill, 0)
        else:
            worker.taken(at, TASK, fill)
        for change in worker.check(at):
            worker.written(at, change)
            changes.append(type(change))
    assert changes == arrive


def test_the_start_of_a_zookeeper_costs_its_mechanism_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each of two servers uses 2 s for its start, and another second each time that it is asked."""

    class Server:
        used = 1.0

        def processor_seconds(self) -> float:
            self.used += 1.0
            return self.used

    @contextmanager
    def started(_port: int, _folder: str) -> Iterator[Server]:
        yield Server()

    monkeypatch.setattr(lost_signals, "zookeeper_server", started)
    zookeeper = lost_signals.MortalZooKeeper(str(tmp_path))
    zookeeper.start()
    assert zookeeper.processor_seconds() == 1.0
    zookeeper.stop()
    assert zookeeper.processor_seconds() == 2.0
    zookeeper.start()
    assert zookeeper.processor_seconds() == 3.0


@pytest.mark.parametrize(("lost", "arrive"), [("stop", [False]), ("start", [True])])
def test_a_status_is_lost(lost: Lost, arrive: list[bool]) -> None:
    worker = LossyStormStatus(receive_buffer=1, lost=lost).stages(0, [TASK], 0.0)
    signals = [*worker.added(0.0, TASK, 1, 1), *worker.added(0.0, TASK, 2, 1)]
    worker.taken(0.0, TASK, 1)
    worker.taken(0.0, TASK, 0)
    signals += worker.check(1.0)
    assert [bool(status.full) for status in signals] == arrive


@pytest.mark.parametrize(("lost", "arrive"), [("stop", [False]), ("start", [True])])
def test_a_stop_or_a_release_is_lost(lost: Lost, arrive: list[bool]) -> None:
    worker = LossyJStormStages(receive_buffer=10, lost=lost).stages(0, [TASK])
    signals = []
    for queued in range(1, 11):
        signals += worker.added(0.0, TASK, queued, 1)
    for queued in reversed(range(10)):
        signals += worker.taken(0.0, TASK, queued)
    assert [signal.stops for signal in signals] == arrive


@pytest.mark.parametrize(("lost", "arrive"), [("stop", StopBackPressure), ("start", StartBackPressure)])
def test_an_announcement_is_lost(lost: Lost, arrive: type) -> None:
    worker = LossyHeronSpout(high=10, low=5, lost=lost).worker(0)
    signals = [*(worker.sent(TASK, 100) for _ in range(4)), worker.drained(TASK, 0)]
    assert [type(signal) for signal in signals if signal is not None] == [arrive]


@pytest.mark.parametrize(("lost", "kind"), [("stop", StartRequest), ("start", StopRequest)])
def test_the_first_request_to_the_coordinator_is_lost_and_the_next_one_is_not(lost: Lost, kind: type) -> None:
    mechanism = LossyJStormMaster(receive_buffer=10, samples=1, check_interval=1, lost=lost)
    whole = LossyJStormMaster(
        receive_buffer=10, samples=1, check_interval=1, lost="stop" if lost == "start" else "start"
    )
    requests = []
    for each in (mechanism, whole):
        sampler = each.sampler(TASK, 0.0)
        fills = [10] * 8 if kind is StartRequest else [10] * 4 + [0] * 8
        asked = [sampler.check(float(at), fill, 1.0) for at, fill in enumerate(fills, 1)]
        requests.append([request for request in asked if isinstance(request, kind)])
    assert len(requests[0]) == len(requests[1]) - 1 > 0


def test_a_new_coordinator_lets_sources_go_on_if_it_knows_of_them() -> None:
    orders = []
    replaced = (ReplacedJStormMaster(keeps_state=keeps) for keeps in (True, False))
    for mechanism in (JStormMaster(), *replaced):
        coordinator = mechanism.coordinator({0: [], 1: [0]}, {0: 1, 1: 1})
        assert coordinator.on_signal(0.0, StartRequest(TASK, 5)) == [SleepLonger(((0, 0),), 5)]
        told = {task for order in coordinator.on_signal(9.0, StopRequest(TASK)) for task in order.tasks}
        orders.append((0, 0) in told)
    assert orders == [True, True, False]


def test_a_lost_release_leaves_the_source_of_a_job_stuck() -> None:
    """On a busy machine more rows are in flight. They may fill the queue again, and its next release arrives."""
    run = one_run(CASES["jstorm-stages, lost start"], QUICK)
    if run.signals > 1:
        raise TooLate(f"{run.signals} signals")
    assert run.stopped_at(QUICK.before) is not None
    assert not goes_on(run, QUICK)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    "name",
    [
        "storm-zk 1.0, stale node",
        "storm-zk 1.0, telemetry",
        "storm-zk 1.0, lost start",
        "jstorm-master, coordinator replaced",
    ],
)
def test_a_fault_does_to_a_job_what_it_did_to_the_original(name: str) -> None:
    case = CASES[name]
    if case.needs_zookeeper:
        pytest.importorskip("kazoo")
    run = one_run(case, QUICK)
    assert run.stopped_at(QUICK.before) is not None
    assert run.signals > 0
    if case.goes_on and not goes_on(run, QUICK):
        raise TooLate("the source does not go on in time, or its rate is low: other tests use the processors too")
    assert goes_on(run, QUICK) is case.goes_on


@pytest.mark.soak
@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_when_zookeeper_is_back_the_source_reads_again(version: str) -> None:
    """While it is away nobody hears that the queue is empty, so the source stands for longer than the stall."""
    pytest.importorskip("kazoo")
    run = one_run(CASES[f"storm-zk {version}, ZooKeeper away"], QUICK)
    back = QUICK.over + QUICK.after / 2
    (*_, before) = (look for look in run.looks if look.at < back)
    assert run.stopped_at(QUICK.before) is not None
    assert before.rows_in < RATE * QUICK.over, "it does not read what has come since the stall began"
    assert run.looks[-1].rows_in > before.rows_in + RATE


def test_a_job_that_fails_is_an_error_and_no_finding() -> None:
    case = FaultCase(throttle=lambda _hosts, _factor: StormZooKeeper("127.0.0.1:1"), stops=True, goes_on=True)
    with pytest.raises(HeadgateError, match="ZooKeeper does not answer"):
        one_run(case, QUICK)
