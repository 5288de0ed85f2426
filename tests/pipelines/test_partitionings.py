"""However rows are distributed, none is lost or doubled, and each goes where it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from tests.pipelines.pipeline_rig import ROWS, assert_same, expected, stream_of

Partitioned = Callable[[hg.DataStream], hg.DataStream]
PARTITIONINGS: dict[str, Partitioned] = {
    "rescale": lambda stream: stream.rescale(),
    "shuffle": lambda stream: stream.shuffle(),
    "to_one": lambda stream: stream.to_one(),
    "load_aware": lambda stream: stream.rebalance(load_aware=True),
    "partition_by": lambda stream: stream.partition_by(lambda batch, subtasks: np.arange(len(batch)) % subtasks),
}
WORKERS = pa.schema({"number": pa.int64(), "worker": pa.int64()})


def environment(parallelism: int, processes: bool = False) -> hg.StreamEnvironment:
    deployment = hg.LocalDeployment(taskmanagers=2, processes=processes)
    return hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(paranoid=True), deployment=deployment)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("partitioned", PARTITIONINGS.values(), ids=PARTITIONINGS)
def test_the_answer_is_the_same_with_every_partitioning(partitioned: Partitioned, parallelism: int) -> None:
    env = environment(parallelism)
    totals = (
        partitioned(stream_of(env).set_parallelism(2))
        .with_columns(doubled="number * 2")
        .key_by("name")
        .window(hg.tumble("10 s"))
        .aggregate(rows=hg.count(), doubled=hg.sum("doubled"))
        .collect()
    )
    wanted = """
        select name, time_bucket(interval 10 seconds, ts, timestamp '1970-01-01') as window_start,
            window_start + interval 10 seconds as window_end, count(*) as rows, sum(number * 2)::bigint as doubled
        from events group by all
    """
    assert_same(totals, expected(wanted))


@pytest.mark.parametrize("partitioned", PARTITIONINGS.values(), ids=PARTITIONINGS)
def test_each_partitioning_sends_rows_to_other_processes(partitioned: Partitioned) -> None:
    rows = partitioned(stream_of(environment(2, processes=True)).set_parallelism(1)).filter("number is not null")
    assert_same(rows.set_parallelism(2).collect(), expected("select * from events where number is not null"))


def subtasks_of(stream: hg.DataStream, parallelism: int) -> dict[Any, set[int]]:
    """Which subtasks the values of `number` went to, written down by a sink's function."""
    seen: dict[Any, set[int]] = {}

    def note(batch: pa.RecordBatch, info: Any) -> None:
        for value in batch["number"].to_pylist():
            seen.setdefault(value, set()).add(info.subtask)

    stream.sink_to(hg.sinks.for_each_batch(note)).set_parallelism(parallelism)
    assert stream._jobs.start("job", None, False).wait().rows_out == ROWS
    return seen


def test_rows_go_where_the_function_says() -> None:
    def by_number(batch: pa.RecordBatch, subtasks: int) -> pa.Array:
        numbers = batch["number"].fill_null(0)
        return pa.array(np.asarray(numbers) % subtasks)

    seen = subtasks_of(stream_of(environment(3)).partition_by(by_number), 3)
    assert seen == {number: {(number or 0) % 3} for number in seen}


def test_to_one_uses_the_first_subtask_alone() -> None:
    assert set().union(*subtasks_of(stream_of(environment(3)).to_one(), 3).values()) == {0}


def test_a_shuffle_uses_all_subtasks() -> None:
    assert set().union(*subtasks_of(stream_of(environment(3)).shuffle(), 3).values()) == {0, 1, 2}


def test_the_function_never_sees_the_hidden_event_time() -> None:
    columns = []

    def note(batch: pa.RecordBatch, _subtasks: int) -> Any:
        columns.append(batch.schema.names)
        return np.zeros(len(batch), np.int64)

    stream = stream_of(environment(1)).select("number").partition_by(note).filter("number > 0")
    stream.key_by().window(hg.tumble("1 h")).aggregate(rows=hg.count()).collect()
    assert set(map(tuple, columns)) == {("number",)}


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda batch, n: np.zeros(3, np.int64), "returned 3 numbers for a batch of (250|500) rows"),
        (lambda batch, n: np.full(len(batch), n), "returned subtask 2, and there are 2, from 0 on"),
        (lambda batch, n: np.full(len(batch), -1), "returned subtask -1"),
        (lambda batch, n: np.zeros(len(batch)), "must return a NumPy or pyarrow array of integers.* array of float64"),
        (lambda batch, n: [0] * len(batch), "and returned list"),
        (lambda batch, n: pa.nulls(len(batch), pa.int8()), "returned (250|500) nulls"),
        (lambda batch, n: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_a_wrong_function_is_named_with_its_operator(returned: Any, words: str) -> None:
    stream = stream_of(environment(2)).set_parallelism(1).partition_by(returned)
    with pytest.raises(hg.UserFunctionError, match=rf"(?s)iterable\[0\]: .*{words}") as caught:
        stream.filter("number > 0").collect()
    assert "<lambda>" in str(caught.value)
