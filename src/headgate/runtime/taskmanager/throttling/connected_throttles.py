"""Creates the part of a throttling mechanism that runs in one TaskManager."""

from __future__ import annotations

from functools import partial

from headgate.plan.graph import BROADCAST
from headgate.plan.job_graph import JobGraph
from headgate.runtime.task.throttling import Throttling
from headgate.runtime.taskmanager.throttling.throttle_place import ThrottlePlace
from headgate.runtime.taskmanager.throttling.transfer_queue import TransferQueue
from headgate.throttle.heron_spout import HeronSpout
from headgate.throttle.jstorm_master import JStormMaster
from headgate.throttle.max_pending import MaxPending
from headgate.throttle.mechanism import Mechanism, StagePolicy
from headgate.throttle.spark_pid import SparkPid
from headgate.throttle.storm_zookeeper import StormZooKeeper


def throttling(mechanism: Mechanism, place: ThrottlePlace) -> Throttling | None:
    """Return the mechanism's part in this TaskManager, or None if it needs none. Imports only the module of this
    mechanism."""
    if (queue := mechanism.queue_policy()) is not None:
        from headgate.runtime.taskmanager.throttling.shedding import Shedding

        return Shedding(queue)
    guard, clock = place.guard, place.clocks.monotonic
    if isinstance(mechanism, HeronSpout):
        from headgate.runtime.taskmanager.throttling.heron_throttling import HeronThrottling

        return HeronThrottling(mechanism.worker(place.index), clock=clock, send=place.signal_driver, guard=guard)
    if isinstance(mechanism, JStormMaster):
        from headgate.runtime.taskmanager.throttling.sleep_throttling import SleepThrottling

        return SleepThrottling(
            mechanism,
            destinations=partial(destinations, place.plan.job),
            clock=clock,
            network=place.network,
            send=place.signal_driver,
            guard=guard,
        )
    if isinstance(mechanism, MaxPending):
        return _acks(mechanism, place)
    if isinstance(mechanism, SparkPid):
        from headgate.runtime.taskmanager.throttling.batch_throttling import BatchThrottling

        folder = place.config.spill_dir
        return BatchThrottling(mechanism, clocks=place.clocks, send=place.signal_driver, guard=guard, folder=folder)
    if isinstance(mechanism, StormZooKeeper):
        return _zookeeper(mechanism, place)
    tasks = [(vertex.id, subtask) for vertex, subtask in place.plan.subtasks(place.index)]
    stages = mechanism.stages(place.index, tasks, place.clocks.monotonic())
    return None if stages is None else _stages(stages, place)


def destinations(job: JobGraph, vertex: int) -> int:
    """Return to how many subtasks each row of a vertex goes."""
    return sum(
        job.vertex(edge.target).parallelism if edge.partitioning == BROADCAST else 1
        for edge in job.edges
        if edge.source == vertex
    )


def _acks(mechanism: MaxPending, place: ThrottlePlace) -> Throttling | None:
    if not mechanism.acking:
        return None  # without acks a source does not learn when messages are processed, so no limit applies
    from headgate.runtime.taskmanager.throttling.ack_throttling import AckThrottling

    return AckThrottling(
        mechanism,
        clock=place.clocks.monotonic,
        network=place.network,
        send=place.signal_driver,
        random_id=partial(place.chance.getrandbits, 64),
    )


def _zookeeper(mechanism: StormZooKeeper, place: ThrottlePlace) -> Throttling:
    from headgate.runtime.taskmanager.throttling.zookeeper_throttling import ZooKeeperThrottling

    tasks = [(vertex.id, subtask) for vertex, subtask in place.plan.subtasks(place.index)]
    job = place.job.replace("/", "_")
    worker = mechanism.worker(job, f"taskmanager-{place.index}", tasks, place.clocks.monotonic())
    transfers = TransferQueue(place.index, place.plan.place)
    return ZooKeeperThrottling(
        mechanism,
        worker,
        job=job,
        clocks=place.clocks,
        transfers=transfers,
        guard=place.guard,
        count=place.count,
    )


def _stages(policy: StagePolicy, place: ThrottlePlace) -> Throttling:
    from headgate.runtime.taskmanager.throttling.stage_throttling import StageThrottling

    throttling = StageThrottling(
        policy,
        transfers=TransferQueue(place.index, place.plan.place),
        clock=place.clocks.monotonic,
        network=place.network,
        send=place.signal_senders,
        guard=place.guard,
    )
    place.links.on_signal = throttling.on_signal
    return throttling
