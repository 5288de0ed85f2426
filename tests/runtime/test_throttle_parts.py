"""What the parts of a throttle make of a job's plan."""

from __future__ import annotations

import math
from typing import Any
from unittest.mock import Mock

import headgate as hg
from headgate.memory.memory_guard import MemoryGuard
from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import build_job_graph
from headgate.runtime.control_messages import OrderSleep, ReportTrees, RequestSleep
from headgate.runtime.master.throttle_master import throttle_master_of
from headgate.runtime.task.watched_input import WatchedInput
from headgate.runtime.taskmanager.throttling.connected_throttles import destinations
from headgate.runtime.taskmanager.throttling.sleep_throttling import SleepThrottling
from tests.runtime.jobs import numbers
from tests.runtime.test_input import CODEC, rows
from tests.runtime.test_queued_barriers import Aligned, barrier


def _plan(env: hg.StreamEnvironment) -> ExecutionPlan:
    graph = env._jobs.graph.graph(env._jobs.pending)
    return ExecutionPlan(build_job_graph(graph), 1)


def _source(env: hg.StreamEnvironment, name: str, **options: Any) -> hg.DataStream:
    return env.from_source(hg.sources.generate(numbers, rows=10), **options).name(name)


def test_a_source_with_a_throttle_of_its_own_never_sleeps() -> None:
    mechanism = hg.throttle.JStormMaster()
    env = hg.StreamEnvironment(config=hg.Config(throttle=mechanism, flow_control="unbounded"))
    own = _source(env, "own", throttle=hg.throttle.FixedRate(10))
    own.union(_source(env, "other")).rebalance().sink_to(hg.sinks.null())
    plan = _plan(env)
    vertices = {vertex.name: vertex.id for vertex in plan.job.vertices}
    (sink,) = vertices.keys() - {"own", "other"}
    master = throttle_master_of(mechanism, plan)
    assert master is not None
    ((order, _),) = master.on_message(0.0, 0, RequestSleep(task=(vertices[sink], 0), flow_ms=5))
    assert isinstance(order, OrderSleep)
    assert order.tasks == [(vertices["other"], 0)]


def test_a_broadcast_row_goes_to_each_subtask_and_another_row_to_one() -> None:
    env = hg.StreamEnvironment(parallelism=10)
    stream = _source(env, "numbers")
    stream.rebalance().sink_to(hg.sinks.null())
    assert destinations(_plan(env).job, 0) == 1
    stream.broadcast().sink_to(hg.sinks.null())
    assert destinations(_plan(env).job, 0) == 11


def test_a_subtask_of_jstorm_master_works_on_messages_not_on_setting_them_aside() -> None:
    now, task = 0.0, (1, 0)
    fed = Aligned(2)
    throttling = SleepThrottling(
        hg.throttle.JStormMaster(),
        destinations=lambda vertex: 1,
        clock=lambda: now,
        network=Mock(),
        send=Mock(),
        guard=MemoryGuard(1 << 20, lambda: 0.0),
    )
    made = throttling.input(task, [None] * 2, Mock())(fed.gates, [CODEC], 1 << 20, fed.barriers)
    assert isinstance(made, WatchedInput)
    fed.input = made

    def step(_now: float) -> float:
        nonlocal now
        now += 5 if fed.work(steps=1) else 1
        return 0.0

    head = throttling.reader(task, Mock(step=step))
    queue = throttling._queues[task]
    fed.feed(0, 0, barrier(1), rows(1), rows(2))
    head.step(0.0)
    assert (queue.ring.occupied, queue.worked) == (0, 0.0)
    fed.feed(0, 1, barrier(1))
    head.step(0.0)
    assert fed.done == [1]
    assert queue.worked == 5


def test_the_acker_wakes_the_driver_only_while_it_holds_trees() -> None:
    mechanism = hg.throttle.MaxPending(10, timeout=5)
    env = hg.StreamEnvironment(config=hg.Config(throttle=mechanism, flow_control="unbounded", buffer_timeout=0))
    _source(env, "numbers").rebalance().sink_to(hg.sinks.null())
    master = throttle_master_of(mechanism, _plan(env))
    assert master is not None
    assert master.deadline == math.inf
    master.on_message(1.0, 0, ReportTrees(started=[(7, 3, 0, 0)], done=[]))
    master.on_message(2.0, 0, ReportTrees(started=[(8, 4, 0, 0)], done=[]))
    assert master.deadline == 6
    master.on_message(3.0, 0, ReportTrees(started=[], done=[(7, 3)]))
    assert master.deadline == 6
    for now in (6.0, 11.0):
        assert master.deadline == now
        assert master.on_time(now) == ()
    assert master.deadline == math.inf, "the other tree is too old"
