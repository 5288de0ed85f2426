"""Jobs with a `KeyedProcessFunction`: its state and timers survive what kills a job, and its clock runs by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.operator import Operator, OperatorContext
from headgate.runtime.task.chain import ToOperator
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.task.heads import MORE, WAIT
from headgate.runtime.task.operator_timers import operator_timers
from headgate.runtime.task.task import Task
from headgate.runtime.task.time_account import Wait
from tests.exactly_once import LARGE, SMALL, _rows, attempts, committed, environment, expected
from tests.runtime.faults import gated, kill, open_gate
from tests.runtime.jobs import eventually, pid_of
from tests.runtime.test_throttled_head import Rig


def windows_by_hand(small: int) -> hg.KeyedProcessFunction:
    """What a tumbling window of sums does; defined in here, it travels whole."""

    class Windows(hg.KeyedProcessFunction):
        totals = hg.MapState(pa.int64(), pa.int64(), ttl="1 h")
        rows = hg.ListState(pa.int64())

        def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> None:
            for at, value in zip(ctx.timestamps.tolist(), batch["value"].to_pylist(), strict=True):
                window = at // small
                self.totals.put(window, self.totals.get(window, 0) + value)
                self.rows.add(window)
                ctx.register_event_time_timer((window + 1) * small - 1)

        def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
            window, rows = time // small, self.rows.get()
            self.rows.update(each for each in rows if each != window)
            total = self.totals.get(window)
            self.totals.remove(window)
            yield {"digit": ctx.key[0] % 10, "total": total, "n": rows.count(window), "at": time}

    return Windows()


SUMS = pa.schema([("digit", pa.int64()), ("total", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def build(env: hg.StreamEnvironment, folder: Path) -> hg.StreamEnvironment:
    """Does not come to its end before the gate is open."""
    stream = env.from_source(gated(folder, before=12_000), watermark=hg.Watermark("at"))
    sums = stream.key_by("key").process(windows_by_hand(SMALL), schema=SUMS)
    totals = sums.key_by("digit").window(hg.tumble(LARGE / 1e6)).aggregate(total=hg.sum("total"), n=hg.sum("n"))
    totals.sink_to(hg.sinks.parquet(folder / "out"))
    return env


def test_state_and_timers_of_a_process_that_is_killed(tmp_path: Path) -> None:
    job = build(environment(tmp_path, hg.LocalDeployment(2, processes=True)), tmp_path).execute_async()
    eventually(lambda: 0 in attempts(tmp_path))
    kill(pid_of(job, 1))
    open_gate(tmp_path)
    assert job.wait(60).restarts == 1
    assert committed(tmp_path) == expected()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_program_goes_on_with_another_parallelism(tmp_path: Path, parallelism: int) -> None:
    first = build(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: any((tmp_path / "out").glob("part-*")))
    first.cancel()
    open_gate(tmp_path)
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False), parallelism=parallelism)
    build(env, tmp_path).execute(resume="latest")
    assert committed(tmp_path) == expected()


class Ticks(hg.KeyedProcessFunction):
    """A row each 20 ms, for ever."""

    ticks = hg.ValueState(pa.int64())

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> None:
        ctx.register_processing_time_timer(ctx.processing_time + 20_000)

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        self.ticks.update(self.ticks.value(0) + 1)
        ctx.register_processing_time_timer(time + 20_000)
        yield {"tick": self.ticks.value(), "was_due": time <= ctx.processing_time}


TICKS = pa.schema([("tick", pa.int64()), ("was_due", pa.bool_())])


def test_processing_time_timers_run_while_there_is_no_input() -> None:
    seen: list[pa.RecordBatch] = []
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
    one = env.from_source(hg.sources.generate(_rows(), rate=0.001))  # the second row is due in a quarter of an hour
    ticks = one.key_by("key").process(Ticks(), schema=TICKS)
    ticks.sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.append(batch)))
    job = env.execute_async()
    eventually(lambda: len(seen) >= 5)
    job.cancel()
    rows = [row for batch in list(seen) for row in batch.to_pylist()]
    assert rows == [{"tick": number, "was_due": True} for number in range(1, len(rows) + 1)]


def test_at_the_end_of_a_bounded_input_they_are_dropped() -> None:
    env = hg.StreamEnvironment(parallelism=2)
    ten = env.from_source(hg.sources.generate(_rows(), rows=10))
    far = pa.schema([("tick", pa.int64())])

    class Far(hg.KeyedProcessFunction):
        def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> None:
            ctx.register_processing_time_timer(ctx.processing_time + 3_600_000_000)

        def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
            raise AssertionError("an hour is not over")

    assert ten.key_by("key").process(Far(), schema=far).collect().num_rows == 0


def test_an_error_in_a_timer_names_operator_and_subtask() -> None:
    class Fails(Ticks):
        def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
            raise ValueError("no")

    env = hg.StreamEnvironment(parallelism=1)
    one = env.from_source(hg.sources.generate(_rows(), rows=2, rate=0.001))
    with pytest.raises(hg.UserFunctionError, match=r"(?s)ticking\[0\]: .*Fails.on_timer raised ValueError: no"):
        one.key_by("key").process(Fails(), schema=TICKS).name("ticking").collect()


class AsksForTimes(hg.KeyedProcessFunction):
    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Any:
        yield {"tick": int(ctx.timestamps.max()), "was_due": True}


def test_timestamps_without_a_watermark_are_an_error_that_says_what_to_add() -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(hg.sources.iterable([[{"key": 1}]]))
    with pytest.raises(hg.UserFunctionError, match=r"ctx.timestamps needs event time, .* add watermark=hg.Watermark"):
        rows.key_by("key").process(AsksForTimes(), schema=TICKS).collect()


class Due(Operator):
    """Has something to do by the clock all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.called = 0

    def next_time(self) -> int:
        return 0

    def on_processing_time(self) -> None:
        self.called += 1


class Writer:
    is_available = True
    is_gated = False
    deadline = None

    def drain(self) -> None: ...

    def before_wait(self) -> None: ...


class Box:
    """A mailbox without mail."""

    def put(self, mail: Callable[[], None]) -> None: ...

    def run(self) -> None: ...

    def wake(self) -> None: ...

    def wait(self, timeout: float | None) -> None: ...


class NoInput:
    """A head that never has input."""

    waits_for = Wait.INPUT

    def step(self, now: float) -> float:
        return WAIT

    def end(self) -> None: ...

    def on_backpressure(self, begins: bool, now: float) -> None: ...

    def close(self) -> None: ...


def test_timers_wait_while_the_task_is_back_pressured() -> None:
    operator, writer = Due(), Writer()
    clocks = Clocks(lambda: 5.0, lambda: 1000.0)
    entry = ToOperator(operator, OperatorContext("job", "due", 0, 1))
    parts: dict[str, Any] = {"operators": [entry], "writers": [writer], "mailbox": Box()}
    task = Task("due", NoInput(), opened=lambda: None, clocks=clocks, **parts)
    task.add_timers(operator_timers([entry], clocks))
    task._begin()
    for _ in ("it opens", "it begins"):
        assert task.turn(5.0) == MORE
    until = task.turn(5.0)
    assert (operator.called, task.waits_for) == (1, Wait.INPUT)
    assert until < 5.0  # its next call is due
    writer.is_available = False
    assert task.turn(5.0) == WAIT
    assert (operator.called, task.waits_for) == (1, Wait.OUTPUT_SOFT)


def test_timers_go_on_while_the_throttle_holds_the_source_back() -> None:
    rig = Rig()
    rig.give(5)
    rig.gate.opens_at = 1000.0
    operator, clocks = Due(), Clocks(lambda: rig.now, lambda: 1000.0)
    entry = ToOperator(operator, OperatorContext("job", "due", 0, 1))
    parts: dict[str, Any] = {"operators": [entry], "writers": [], "mailbox": Box()}
    task = Task("due", rig.head, opened=lambda: None, clocks=clocks, **parts)
    task.add_timers(operator_timers([entry], clocks))
    task._begin()
    for _ in ("it opens", "it begins"):
        assert task.turn(rig.now) == MORE
    for calls in (1, 2, 3):
        until = task.turn(rig.now)
        assert (operator.called, rig.output.rows, task.waits_for) == (calls, 0, Wait.THROTTLED)
        assert until < 1000.0, "its next call is due sooner than the throttle permits the next read"
        rig.now += 1.0
