"""StormZooKeeper: marks, nodes and polls of Storm 1.0 and 1.2, and how they fail."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.throttle.level_flag import LevelFlag
from headgate.throttle.mechanism import NEVER, Scope, SourcePolicy
from headgate.throttle.storm_zookeeper import (
    TRANSFER,
    DeleteZnode,
    PutZnode,
    StormZooKeeper,
    StormZooKeeperWorker,
    ZnodeChange,
)

A, B = (1, 0), (1, 1)


class Cluster:
    """TaskManagers and the nodes of their job, with a watch on the list of nodes. A step lasts 100 ms.

    `loses` are the kinds of changes that do not reach ZooKeeper although their sender thinks so.
    """

    def __init__(self, *skews: float, **options: Any) -> None:
        self.now = 1000.0
        self.skews = skews or (0.0,)
        self.workers = [
            StormZooKeeper(**options).worker("job", f"host-{number}", [A, B], self.now + skew)
            for number, skew in enumerate(self.skews)
        ]
        self.nodes: dict[str, bytes] = {}
        self.loses: tuple[type[ZnodeChange], ...] = ()
        self.watch_works = True
        self.watched: set[str] = set()
        self.changes: list[ZnodeChange] = []
        self.step()

    def step(self, steps: int = 1) -> None:
        for _ in range(steps):
            for worker, skew in zip(self.workers, self.skews, strict=True):
                self._check(worker, self.now + skew)
            fires = self.watch_works and self.watched != set(self.nodes)
            self.watched = set(self.nodes)
            for worker, skew in zip(self.workers, self.skews, strict=True):
                if fires or worker.next_poll <= self.now + skew:
                    worker.on_children(self.now + skew, self.nodes)
            self.now += 0.1

    def _check(self, worker: StormZooKeeperWorker, now: float) -> None:
        for change in worker.check(now) if worker.next_check <= now else []:
            self._make(worker, now, change)

    def _make(self, worker: StormZooKeeperWorker, now: float, change: ZnodeChange) -> None:
        self.changes.append(change)
        worker.written(now, change)
        if isinstance(change, self.loses):
            return
        if isinstance(change, PutZnode):
            self.nodes[change.path] = change.data
        else:
            self.nodes.pop(change.path, None)

    def fill(self, number: int = 0) -> None:
        self.workers[number].added(self.now + self.skews[number], A, 1024, None)

    def drain(self, number: int = 0) -> None:
        self.workers[number].taken(self.now + self.skews[number], A, 0)

    def until(self, throttled: bool, number: int = 0) -> float:
        """Return the seconds until the sources of a TaskManager stop or go on; at most 200."""
        start = self.now
        while self.workers[number].throttled is not throttled and self.now < start + 200:
            self.step()
        return self.now - start


# --- the queue: Storm's test of its DisruptorQueue


def test_the_flag_rises_at_the_high_mark_and_falls_at_the_low_one() -> None:
    flag = LevelFlag(128, high=0.6, low=0.2)
    assert [queued for queued in range(1, 101) if flag.added(queued)] == [76]
    assert [queued for queued in reversed(range(100)) if flag.taken(queued)] == [25]
    assert not flag.is_up


def test_marks_are_whole_messages_of_1024() -> None:
    flag = LevelFlag(1024, high=0.9, low=0.4)
    assert [queued for queued in range(2000) if flag.added(queued)] == [921]
    assert [queued for queued in reversed(range(2000)) if flag.taken(queued)] == [409]


def test_the_high_mark_counts_the_handled_messages_of_the_consumers_batch() -> None:
    flag = LevelFlag(100, high=0.9, low=0.4)
    assert not flag.added(60)
    for queued in reversed(range(30, 60)):  # half of a batch of 60 messages
        flag.taken(queued)
    assert [queued for queued in range(31, 100) if flag.added(queued)] == [60]


def test_the_flag_falls_and_rises_again_within_a_long_batch() -> None:
    flag = LevelFlag(100, high=0.9, low=0.4)
    assert flag.added(95)
    for queued in reversed(range(41, 95)):
        flag.taken(queued)
    assert flag.taken(40)
    assert flag.added(41)
    assert flag.taken(40)


def test_a_handled_batch_does_not_count() -> None:
    flag = LevelFlag(100, high=0.9, low=0.4)
    for queued in reversed(range(95)):
        flag.taken(queued)
    assert [queued for queued in range(1, 100) if flag.added(queued)] == [90]


def test_messages_of_the_overflow_are_not_in_the_batch() -> None:
    flag = LevelFlag(100, high=0.9, low=0.4)
    for queued in reversed(range(50, 151)):  # 151 messages: the batch has 100, and then the next one begins
        flag.taken(queued)
    assert not flag.added(51)


# --- version 1.0


def test_a_full_queue_becomes_a_node_and_an_emptied_one_removes_it() -> None:
    cluster = Cluster()
    cluster.fill()
    cluster.step()
    assert cluster.nodes == {"/storm/backpressure/job/host-0": b""}
    cluster.step(10)
    cluster.drain()
    cluster.step(10)
    assert cluster.nodes == {}
    assert cluster.changes == [
        PutZnode("/storm/backpressure/job/host-0"),
        DeleteZnode("/storm/backpressure/job/host-0"),
    ]
    assert {change.scope for change in cluster.changes} == {Scope.ZOOKEEPER}


def test_the_node_stays_while_any_queue_is_full() -> None:
    cluster = Cluster()
    (worker,) = cluster.workers
    for queue in (A, B, TRANSFER):
        worker.added(cluster.now, queue, 1024, None)
    for queue in (A, TRANSFER):
        worker.taken(cluster.now, queue, 0)
        cluster.step()
        assert cluster.nodes
    worker.taken(cluster.now, B, 0)
    cluster.step()
    assert not cluster.nodes


def test_all_sources_of_the_job_stop() -> None:
    cluster = Cluster(0.0, 0.0, 0.0)
    policies: list[SourcePolicy] = [*cluster.workers]
    assert [policy.permit(5.0) for policy in policies] == [5.0] * 3
    cluster.fill(1)
    cluster.step()
    assert [policy.permit(5.0) for policy in policies] == [NEVER] * 3
    cluster.fill(2)
    cluster.step()
    cluster.drain(1)
    cluster.step()
    assert policies[0].permit(5.0) == NEVER
    cluster.drain(2)
    cluster.step()
    assert [policy.permit(5.0) for policy in policies] == [5.0] * 3


def test_a_crossed_mark_is_looked_at_at_once_and_otherwise_after_100_ms() -> None:
    worker = StormZooKeeper().worker("job", "host", [A], now=10.0)
    assert worker.next_check == 10.1
    worker.added(10.02, A, 920, None)
    assert worker.next_check == 10.1
    worker.added(10.03, A, 921, None)
    assert worker.next_check == 10.03
    worker.check(10.03)
    assert worker.next_check == pytest.approx(10.13)


def test_a_change_that_zookeeper_refused_is_tried_again() -> None:
    worker = StormZooKeeper().worker("job", "host", [A], now=0.0)
    worker.added(0.0, A, 1000, None)
    (change,) = worker.check(0.0)
    assert [change] == worker.check(0.1) == [PutZnode("/storm/backpressure/job/host")]
    worker.written(0.1, change)
    assert worker.check(0.2) == []
    worker.taken(0.3, A, 0)
    (change,) = worker.check(0.3)
    assert [change] == worker.check(0.4) == [DeleteZnode("/storm/backpressure/job/host")]
    worker.written(0.4, change)
    assert worker.check(0.5) == []


def test_a_congestion_that_ends_while_zookeeper_is_away_leaves_no_trace() -> None:
    worker = StormZooKeeper().worker("job", "host", [A], now=0.0)
    worker.added(0.0, A, 1000, None)
    assert worker.check(0.0)
    worker.taken(0.1, A, 0)
    assert worker.check(0.1) == []


def test_a_watch_that_fires_not_costs_up_to_30_s() -> None:
    cluster = Cluster()
    cluster.watch_works = False
    cluster.fill()
    assert cluster.until(throttled=True) == pytest.approx(30, abs=0.3)


def test_an_idle_job_is_never_throttled() -> None:
    cluster = Cluster(0.0, 0.0)
    cluster.step(2000)
    assert cluster.changes == []
    assert not any(worker.throttled for worker in cluster.workers)


def test_a_lost_on_signal_leaves_the_sources_running() -> None:
    """STORM-2836: only changes are written, so a node that somebody deletes does not come back."""
    cluster = Cluster()
    cluster.fill()
    cluster.step()
    cluster.nodes.clear()
    assert cluster.until(throttled=False) < 0.2
    assert cluster.until(throttled=True) > 199


def test_a_node_that_goes_with_its_session_comes_back_with_the_next_congestion() -> None:
    """Storm's worker writes only when its flag changes. To delete a node that has gone counts as done."""
    cluster = Cluster(0.0, 0.0)
    cluster.fill()
    cluster.step()
    cluster.nodes.clear()
    assert cluster.until(throttled=False, number=1) < 0.2
    cluster.step(400)
    assert cluster.nodes == {}, "the queue is full all the time"
    cluster.drain()
    cluster.step()
    cluster.fill()
    assert cluster.until(throttled=True, number=1) < 0.2
    assert [type(change) for change in cluster.changes] == [PutZnode, DeleteZnode, PutZnode]


def test_a_lost_off_signal_stops_all_sources_for_ever() -> None:
    cluster = Cluster(0.0, 0.0)
    cluster.loses = (DeleteZnode,)
    cluster.fill()
    cluster.step()
    cluster.drain()
    assert cluster.until(throttled=False, number=1) > 199
    cluster.nodes.clear()  # by hand, as STORM-1949 reports
    assert cluster.until(throttled=False, number=1) < 0.2


def test_a_stale_node_stops_all_sources_until_its_session_ends() -> None:
    """A node outlives its dead TaskManager: ZooKeeper removes it when the session has timed out."""
    cluster = Cluster(0.0, 0.0)
    cluster.fill(1)
    cluster.step()
    cluster.workers, cluster.skews = cluster.workers[:1], (0.0,)
    assert cluster.until(throttled=False) > 199
    del cluster.nodes["/storm/backpressure/job/host-1"]
    assert cluster.until(throttled=False) < 0.2


def test_telemetry_that_sources_do_not_cause_stops_them_for_ever() -> None:
    """STORM-1832: a slow consumer of metrics fills its queue; throttled sources do not relieve it."""
    cluster = Cluster()
    (worker,) = cluster.workers
    queued = 0
    for _ in range(600):  # each second 20 metrics come and 10 are worked on
        for _ in range(2):
            queued += 1
            worker.added(cluster.now, B, queued, None)
        queued -= 1
        worker.taken(cluster.now, B, queued)
        cluster.step()
    assert queued == 600
    assert not worker.throttled
    for _ in range(400):
        queued += 2
        worker.added(cluster.now, B, queued, None)
        queued -= 1
        worker.taken(cluster.now, B, queued)
        cluster.step()
    assert worker.throttled
    assert queued == 1000


# --- version 1.2


def test_the_node_holds_the_time_of_the_congestion_in_milliseconds() -> None:
    cluster = Cluster(version="1.2")
    cluster.fill()
    cluster.step()
    assert cluster.nodes == {"/storm/backpressure/job/host-0": (1_000_100).to_bytes(8, "big")}
    assert cluster.workers[0].throttled


def test_the_time_is_written_every_15_s_while_a_queue_is_full() -> None:
    cluster = Cluster(version="1.2")
    cluster.fill()
    cluster.step(600)
    times = [int.from_bytes(change.data, "big") for change in cluster.changes if isinstance(change, PutZnode)]
    assert len(times) == len(cluster.changes) == 4
    assert [one - other for one, other in zip(times[1:], times, strict=False)] == pytest.approx([15_050] * 3, abs=60)


def test_a_time_is_written_again_when_it_is_older_than_15_s() -> None:
    worker = StormZooKeeper(version="1.2").worker("job", "host", [A], now=100.0)
    worker.added(100.0, A, 1024, None)
    (change,) = worker.check(100.0)
    worker.written(100.0, change)
    assert worker.check(115.0) == []
    assert worker.check(115.1) == [PutZnode(change.path, (115_100).to_bytes(8, "big"))]


def test_sources_go_on_30_to_60_s_after_the_last_written_time() -> None:
    cluster = Cluster(version="1.2")
    cluster.fill()
    cluster.step()
    cluster.drain()
    assert 30 <= cluster.until(throttled=False) <= 60.2
    assert cluster.nodes  # nothing removes the node


def test_a_later_congestion_is_seen_only_at_a_poll() -> None:
    """Only the first one makes a node. A later one changes its data, and the watch is on the list of nodes."""
    cluster = Cluster(version="1.2")
    cluster.fill()
    assert cluster.until(throttled=True) <= 0.2
    cluster.drain()
    cluster.until(throttled=False)
    cluster.step(10)
    cluster.fill()
    assert 28 < cluster.until(throttled=True) <= 30


def test_a_node_that_goes_with_its_session_is_written_again_within_15_s() -> None:
    cluster = Cluster(0.0, 0.0, version="1.2")
    cluster.fill()
    cluster.step()
    cluster.nodes.clear()
    assert cluster.until(throttled=False, number=1) < 0.2
    assert cluster.until(throttled=True, number=1) == pytest.approx(15, abs=0.3)


def test_a_lost_node_and_a_stale_node_do_no_lasting_harm() -> None:
    cluster = Cluster(0.0, 0.0, version="1.2")
    cluster.fill()
    cluster.step()
    cluster.nodes.clear()
    cluster.step(151)
    assert cluster.nodes  # written again
    cluster.workers, cluster.skews = cluster.workers[1:], (0.0,)  # its TaskManager dies
    assert cluster.until(throttled=False) <= 60.2


@pytest.mark.parametrize(("skew", "throttled"), [(-31.0, False), (29.0, True)])
def test_clocks_that_differ_shift_the_timeout(skew: float, throttled: bool) -> None:
    """A congested TaskManager whose clock is half a minute late throttles nobody."""
    cluster = Cluster(skew, 0.0, version="1.2")
    cluster.fill(0)
    cluster.step(100)
    assert cluster.workers[1].throttled is throttled


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"version": []}, r'version=\[\] is unknown: it must be "1.0" or "1.2"'),
        ({"version": "2.0"}, 'version=\'2.0\' is unknown: it must be "1.0" or "1.2"'),
        ({"low": 0.9}, "low=0.9 and high=0.9 are impossible: they must be fractions above 0 and up to 1, low below"),
        ({"high": 1.1}, "low=0.4 and high=1.1 are impossible"),
        ({"low": 0}, "low=0 and high=0.9 are impossible"),
        ({"high": "much"}, "low=0.4 and high='much' are impossible"),
        ({"receive_buffer": 0}, "receive_buffer=0 is impossible"),
        ({"poll": -1}, "poll=-1 is impossible"),
        ({"poll": 0}, "poll=0 is impossible: it must be above 0"),
        ({"znode_timeout": 0}, "znode_timeout=0 is impossible: it must be above 0"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        StormZooKeeper(**wrong)
