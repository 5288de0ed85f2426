"""`max_state_memory`: a job whose operators hold more fails with the name of the one that holds the most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.operator import Operator, OperatorContext
from headgate.runtime.task.state_memory import StateMemory
from tests.runtime.jobs import counted, environment


class Lists(hg.KeyedProcessFunction):
    elements = hg.ListState(pa.string())

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> None:
        self.elements.add("x" * 10_000)


class Sums(hg.KeyedBatchFunction):
    total = hg.ColumnState(pa.int64())

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: hg.BatchContext) -> None:
        self.total.update(self.total.values() + 1)


BY_CLOCK = hg.tumble("9 d", time="processing")
STATEFUL = {
    "running": lambda stream: stream.key_by("n").aggregate(rows=hg.count(), final=True),
    "window": lambda stream: stream.key_by("n").window(hg.tumble("1 h")).aggregate(rows=hg.collect_list("n")),
    "join": lambda stream: stream.join(stream, on="n", within=("-1 h", "1 h"), suffix="_2"),
    "as of": lambda stream: stream.join_as_of(stream, on="n", suffix="_2"),
    "session": lambda stream: stream.key_by("n").window(hg.session("1 h")).aggregate(rows=hg.count()),
    "count": lambda stream: stream.key_by("n").window(hg.count_window(100)).aggregate(rows=hg.count()),
    "by the clock": lambda stream: stream.key_by("n").window(BY_CLOCK).aggregate(rows=hg.count()),
    "top": lambda stream: stream.key_by("n").top(2, by="at", final=True),
    "first": lambda stream: stream.deduplicate("n"),
    "last": lambda stream: stream.deduplicate("n", keep="last", final=True),
    "batches": lambda stream: stream.key_by("n").process(Sums(), schema=stream.schema),
    "process": lambda stream: stream.key_by("n").process(Lists(), schema=stream.schema),
}


def stream(env: hg.StreamEnvironment, rows: int = 20_000) -> hg.DataStream:
    def made(start: int, n: int) -> pa.RecordBatch:
        numbers = pa.array(range(start, start + n), pa.int64())
        return pa.RecordBatch.from_arrays([numbers, numbers.cast(pa.timestamp("us"))], names=["n", "at"])

    return env.from_source(hg.sources.generate(made, rows=rows, batch_rows=256), watermark=hg.Watermark("at"))


@pytest.mark.parametrize("kind", STATEFUL)
def test_the_operator_is_named_and_nothing_starts_again(kind: str, tmp_path: Path) -> None:
    env = environment(max_state_memory="300 kb", checkpoint_dir=tmp_path)
    STATEFUL[kind](stream(env)).name("hoards").sink_to(hg.sinks.null())
    job = env.execute_async()
    with pytest.raises(hg.StateMemoryExceeded, match="max_state_memory is 307200 .* has [1-9][0-9]* keys") as caught:
        job.wait(60)
    assert caught.value.operator == "hoards"
    assert caught.value.subtask in (0, 1)
    assert job.restarts == 0


def test_a_job_that_holds_less_is_left_alone() -> None:
    env = environment(max_state_memory="1 gb")
    assert counted(env).key_by("n").aggregate(rows=hg.count(), final=True).collect().num_rows == 1000


class Holds(Operator):
    held = 0

    def state_bytes(self) -> int:
        return self.held

    def state_keys(self) -> int:
        return 3


def context(name: str, subtask: int) -> OperatorContext:
    return OperatorContext("job", name, subtask, 2)


def test_all_operators_of_a_taskmanager_count_and_the_largest_is_named() -> None:
    memory = StateMemory(100)
    small, large = Holds(), Holds()
    accounts: list[Any] = [
        memory.open_account(small, context("small", 1)),
        memory.open_account(large, context("large", 0)),
    ]
    assert memory.open_account(Operator(), context("none", 0)) is None
    large.held = 80
    accounts[1].update()
    small.held = 20
    accounts[0].update()
    small.held = 21
    with pytest.raises(hg.StateMemoryExceeded, match="hold 101 bytes, .* is 100 bytes; 80 bytes are") as caught:
        accounts[0].update()
    assert (caught.value.operator, caught.value.subtask) == ("large", 0)
    accounts[1].close()
    accounts[0].update()


@pytest.mark.parametrize("value", [0, -1, "much", 1.5])
def test_impossible_limits(value: object) -> None:
    with pytest.raises(hg.ConfigError, match="max_state_memory"):
        hg.Config(max_state_memory=value)
