"""Causes that lie in what comes: nearly empty buffers, large rows, bursts, and sources with too few splits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.diagnosis import diagnose, latest_window
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.own_work import own_work
from headgate.observe.roots import SlowTasks, roots
from headgate.observe.topology import EdgeShape, Topology
from tests.observe.made_metrics import Tasks, line, snapshots
from tests.runtime.jobs import NUMBERS, environment, eventually

IDLES = {"idle_s": 0.9, "busy_s": 0.1, "cpu_s": 0.1, "rows": 100}
WORKS = {"busy_s": 1.0, "cpu_s": 1.0, "rows": 100, "batches": 10}
#: A source that only serialises, and consumers that wait for it.
SERIALISES = {**WORKS, "output_s": 0.8, "in_s": 0.2}


def of(vertex: int, does: Mapping[str, Any], parallelism: int = 2) -> dict[tuple[int, int], Mapping[str, Any]]:
    return {(vertex, subtask): does for subtask in range(parallelism)}


@pytest.mark.parametrize(
    ("exchange", "cause"),
    [
        ({"rows_out": 1000, "bytes_out": 500_000, "buffers_out": 1000}, "nearly_empty_buffers"),
        ({"rows_out": 1000, "bytes_out": 30_000_000, "buffers_out": 1000}, "serialisation"),
        ({"rows_out": 10, "bytes_out": 30_000_000, "buffers_out": 1000}, "large_rows"),
        ({"rows_out": 1000, "bytes_out": 500_000}, "serialisation"),
        ({"rows_out": 0, "bytes_out": 0, "buffers_out": 0}, "serialisation"),
    ],
)
def test_what_the_exchange_carries_says_why_it_takes_long(exchange: dict[str, int], cause: str) -> None:
    topology = line("numbers", "out")
    made = snapshots(topology, {**of(0, SERIALISES), **of(1, IDLES)}, edges={"numbers -> out": exchange})
    (finding,) = diagnose(topology, made)
    assert finding.cause.name == cause


@pytest.mark.parametrize(("nbytes", "cause"), [(500_000, "nearly_empty_buffers"), (30_000_000, "out_of_cpu")])
def test_a_job_that_uses_all_processors_for_nearly_empty_buffers(nbytes: int, cause: str) -> None:
    topology = line("numbers", "out")
    exchange = {"rows_out": 1000, "bytes_out": nbytes, "buffers_out": 1000}
    waits = {**SERIALISES, "cpu_s": 0.4, "run_delay_s": 0.6}
    made = snapshots(topology, {**of(0, waits), **of(1, IDLES)}, edges={"numbers -> out": exchange})
    (finding,) = diagnose(topology, made)
    assert finding.cause.name == cause


def test_the_gain_of_full_buffers_is_what_the_exchange_takes() -> None:
    topology = line("numbers", "out")
    exchange = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    works = {**SERIALISES, "output_s": 0.6, "in_s": 0.4}
    (finding,) = diagnose(topology, snapshots(topology, {**of(0, works), **of(1, IDLES)}, edges=exchange))
    assert finding.remedy.gain == pytest.approx(1 / (1 - 0.6))
    assert "raise buffer_timeout" in finding.sentence


def test_a_gain_does_not_end_at_consumers_that_take_nearly_empty_buffers() -> None:
    """Fuller buffers relieve the consumers, too: their share for the exchange goes."""
    topology = line("numbers", "work", "out")
    empty = {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}
    full = {"rows_out": 1000, "bytes_out": 30_000_000, "buffers_out": 1000}
    works = {"busy_s": 0.45, "idle_s": 0.55, "cpu_s": 0.1, "rows": 100}
    sends = of(0, {**SERIALISES, "output_s": 0.7, "in_s": 0.3})
    takes = of(1, {**works, "input_s": 0.25, "output_s": 0.15, "in_s": 0.05})
    edges = {"numbers -> work": empty, "work -> out": empty}
    (finding,) = diagnose(topology, snapshots(topology, {**sends, **takes}, edges=edges))
    assert finding.remedy.gain == pytest.approx(1 / 0.3)
    assert finding.remedy.at_least
    assert "would carry at least 3.3 times as many rows" in finding.sentence
    assert finding.as_json()["at_least"] is True
    computes = of(1, {**works, "input_s": 0.05, "output_s": 0.05, "in_s": 0.35})
    edges = {"numbers -> work": empty, "work -> out": full}
    (finding,) = diagnose(topology, snapshots(topology, {**sends, **computes}, edges=edges))
    assert finding.remedy.gain == pytest.approx(1 / 0.4)


def test_full_buffers_gain_at_least_the_largest_gain_that_is_reported() -> None:
    topology = line("numbers", "out", parallelism=1)
    empty = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    sends = {**SERIALISES, "output_s": 0.95, "in_s": 0.05, "cpu_s": 0.9, **AT_LOCK}
    takes = {"busy_s": 0.1, "idle_s": 0.9, "input_s": 0.1, "in_s": 0.0, "cpu_s": 0.1, "rows": 100, **AT_LOCK}
    (finding,) = diagnose(topology, snapshots(topology, {**of(0, sends, 1), **of(1, takes, 1)}, edges=empty))
    assert finding.cause.name == "nearly_empty_buffers"
    assert finding.sentence.endswith("which would carry at least 10 times as many rows")
    assert (finding.remedy.gain, finding.remedy.at_least) == (10.0, True)


def test_waits_for_the_lock_of_consumers_shrink_with_their_work() -> None:
    topology = line("numbers", "out", parallelism=1)
    empty = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    does = {
        **of(0, {**SERIALISES, "output_s": 0.4, "in_s": 0.4, "interpreter_wait_s": 0.2}, 1),
        **of(1, {"busy_s": 0.4, "idle_s": 0.6, "input_s": 0.4, "in_s": 0.0, "cpu_s": 0.4, "rows": 100}, 1),
    }
    (finding,) = diagnose(topology, snapshots(topology, does, edges=empty))
    assert finding.remedy.gain == pytest.approx(1 / (1 - 0.4 - 0.2))  # the consumer keeps no work


def test_consumers_that_keep_some_work_do_more_of_it_once_more_rows_come() -> None:
    """The producer waits for what its consumer keeps of its work for each row, and then there are more rows."""
    topology = line("numbers", "out", parallelism=1)
    empty = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    does = {
        **of(0, {**SERIALISES, "output_s": 0.4, "in_s": 0.4, "interpreter_wait_s": 0.2}, 1),
        **of(1, {"busy_s": 0.4, "idle_s": 0.6, "input_s": 0.3, "in_s": 0.1, "cpu_s": 0.4, "rows": 100}, 1),
    }
    (finding,) = diagnose(topology, snapshots(topology, does, edges=empty))
    assert finding.remedy.gain is not None
    left = 1 / finding.remedy.gain
    assert left == pytest.approx(0.4 + 0.2 * (0.1 / 0.4) / left)


#: A task that computes, or waits for the lock, for as long as it is busy, and always holds or awaits the lock.
AT_LOCK = {"at_lock_s": 1.0, "running_s": 0.0}


def test_waits_for_the_interpreter_lock_shrink_too_and_the_gain_is_no_lower_bound() -> None:
    topology = line("numbers", "out", parallelism=1)
    empty = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    sends = {**SERIALISES, "output_s": 0.5, "in_s": 0.5, "cpu_s": 0.7, **AT_LOCK}
    takes = {"busy_s": 0.5, "idle_s": 0.5, "input_s": 0.5, "in_s": 0.0, "cpu_s": 0.3, "rows": 100, **AT_LOCK}
    (finding,) = diagnose(topology, snapshots(topology, {**of(0, sends, 1), **of(1, takes, 1)}, edges=empty))
    assert finding.remedy.gain == pytest.approx(1 / (1 - 0.5 - 0.3))
    assert not finding.remedy.at_least
    assert finding.remedy.limit == "its operators are busy"


def test_what_holds_the_lock_may_be_the_work_on_nearly_empty_buffers() -> None:
    """The root spends little on its exchange itself, but its producer does nothing else."""
    topology = line("numbers", "out", parallelism=1)
    works = {"busy_s": 0.5, "output_s": 0.5, "in_s": 0.0, "soft_backpressured_s": 0.5, "rows": 100}
    takes = {**WORKS, "busy_s": 1.0, "input_s": 0.3, "in_s": 0.7, "cpu_s": 0.6, **AT_LOCK}

    def cause(nbytes: int) -> str:
        exchange = {"numbers -> out": {"rows_out": 1000, "bytes_out": nbytes, "buffers_out": 1000}}
        made = snapshots(topology, {**of(0, works, 1), **of(1, takes, 1)}, edges=exchange)
        return diagnose(topology, made)[0].cause.name

    assert (cause(0), cause(30_000_000)) == ("nearly_empty_buffers", "interpreter_lock")


#: What an exchange carries in a second, in nearly empty buffers and in full ones.
EMPTY = {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}
FULL = {"rows_out": 1000, "bytes_out": 30_000_000, "buffers_out": 1000}


@pytest.mark.parametrize(
    ("first", "second", "cause"),
    [
        (EMPTY, EMPTY, "nearly_empty_buffers"),
        (FULL, {**EMPTY, "buffers_out": 2000}, "interpreter_lock"),  # the first exchange takes nearly all the work
    ],
)
def test_the_work_on_full_buffers_does_not_count_as_work_on_nearly_empty_ones(
    first: dict[str, int], second: dict[str, int], cause: str
) -> None:
    topology = line("numbers", "work", "out", parallelism=1)
    sends = {"busy_s": 0.5, "output_s": 0.5, "in_s": 0.0, "soft_backpressured_s": 0.5, "rows": 100, "cpu_s": 0.3}
    works = {**WORKS, "input_s": 0.3, "output_s": 0.05, "in_s": 0.65, "cpu_s": 0.6, **AT_LOCK}
    takes = {"busy_s": 0.05, "input_s": 0.05, "in_s": 0.0, "rows": 100}
    does = {**of(0, sends, 1), **of(1, works, 1), **of(2, takes, 1)}
    made = snapshots(topology, does, edges={"numbers -> work": first, "work -> out": second})
    assert diagnose(topology, made)[0].cause.name == cause


@pytest.mark.parametrize("partitioning", ["rebalance", "broadcast"])
@pytest.mark.parametrize(("buffers", "cause"), [(100, "nearly_empty_buffers"), (3000, "interpreter_lock")])
def test_of_a_task_with_two_outputs_the_part_of_the_nearly_empty_buffers_counts(
    partitioning: str, buffers: int, cause: str
) -> None:
    topology = line("numbers", "work", "other", parallelism=1)
    second = EdgeShape("numbers -> other", 0, 0, 2, partitioning)
    topology = replace(topology, edges=(topology.edges[0], second))
    sends = {"busy_s": 0.9, "output_s": 0.9, "in_s": 0.0, "soft_backpressured_s": 0.1, "rows": 100, "cpu_s": 0.3}
    works = {**WORKS, "input_s": 0.2, "in_s": 0.8, "cpu_s": 0.6, **AT_LOCK}
    full = {"rows_out": 1000, "bytes_out": 30_000 * buffers, "buffers_out": buffers}
    edges = {"numbers -> work": EMPTY, "numbers -> other": full}
    made = snapshots(topology, {**of(0, sends, 1), **of(1, works, 1)}, edges=edges)
    assert diagnose(topology, made)[0].cause.name == cause


def test_waits_for_a_processor_shrink_with_the_work_of_the_job() -> None:
    topology = line("numbers", "out", parallelism=1)
    empty = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    does = {
        **of(0, {**SERIALISES, "output_s": 0.5, "in_s": 0.5, "cpu_s": 0.9, "run_delay_s": 0.1}, 1),
        **of(1, {"busy_s": 0.5, "idle_s": 0.5, "input_s": 0.5, "in_s": 0.0, "cpu_s": 0.4, "rows": 100}, 1),
    }
    machine = {"cores": 2, "machine_cpu_s": 2.0, "cpu_s": 1.5}
    (finding,) = diagnose(topology, snapshots(topology, does, edges=empty, machine=machine))
    # The consumer keeps no work, and the job does three quarters of the machine's.
    assert finding.remedy.gain == pytest.approx(1 / (0.5 - 0.1 * 0.5 * 0.75))


def test_a_source_with_a_schedule_bounds_the_gain_of_full_buffers() -> None:
    topology = line("numbers", "out", parallelism=1)
    empty = {"numbers -> out": {"rows_out": 1000, "bytes_out": 0, "buffers_out": 1000}}
    does = {**of(0, {**SERIALISES, "lag_s": 0.2}, 1), **of(1, IDLES, 1)}
    (finding,) = diagnose(topology, snapshots(topology, does, edges=empty))
    assert finding.remedy.gain == pytest.approx(1.25)
    assert not finding.remedy.at_least
    assert finding.remedy.limit == "the sources keep their pace"


def joined(topology: Topology, before: Tasks, seconds: int, after: Tasks) -> list[MetricsSnapshot]:
    """Return snapshots of tasks that do one thing, and another from a second on."""
    first = snapshots(topology, before, count=seconds + 1)
    later = snapshots(topology, after, count=4, begin=1000.0 + seconds)[1:]
    base = first[-1].reports[0]
    for report in (snapshot.reports[0] for snapshot in later):
        report["clock_s"] += base["clock_s"]  # type: ignore[index]
        for kind, totals in (("tasks", "_s"), ("operators", ("_s", "rows_in", "rows_out", "batches_in"))):
            for old, new in zip(base[kind], report[kind], strict=True):
                new.update(
                    {name: new[name] + old[name] for name in old if name.endswith(totals) and old[name] is not None}
                )
    return [*first, *later]


CALM = {"idle_s": 0.5, "busy_s": 0.5, "cpu_s": 0.5, "rows": 50}
BEFORE: Tasks = {**of(0, {**IDLES, "rows": 50}), **of(1, CALM), **of(2, IDLES)}


def test_more_rows_than_usual_for_a_place_that_is_as_fast_as_it_was_are_a_burst() -> None:
    topology = line("numbers", "sums", "out")
    after = {**of(0, {**IDLES, "rows": 200}), **of(1, WORKS), **of(2, IDLES)}
    (finding,) = diagnose(topology, joined(topology, BEFORE, 12, after))
    assert finding.cause.name == "burst"
    assert finding.cause.evidence["times_usual"] == pytest.approx(4)
    assert "nothing if it is short" in finding.sentence


@pytest.mark.parametrize(("comes", "takes"), [(200, 30), (60, 50)], ids=["it became slow", "no more rows come"])
def test_what_is_no_burst(comes: int, takes: int) -> None:
    topology = line("numbers", "sums", "out")
    after = {**of(0, {**IDLES, "rows": comes}), **of(1, {**WORKS, "rows": takes}), **of(2, IDLES)}
    (finding,) = diagnose(topology, joined(topology, BEFORE, 12, after))
    assert finding.cause.name == "slow_function"


def test_what_lasts_is_no_burst() -> None:
    topology = line("numbers", "sums", "out")
    lasts = {**of(0, {**IDLES, "rows": 200}), **of(1, WORKS), **of(2, IDLES)}
    (finding,) = diagnose(topology, snapshots(topology, lasts, count=16))
    assert finding.cause.name == "slow_function"


@pytest.mark.parametrize("other", [{"ended": True}, {"idle_s": 1.0}])
def test_a_source_with_fewer_splits_than_subtasks(other: dict[str, float]) -> None:
    topology = line("numbers", "out", parallelism=4)
    tasks = {(0, 0): WORKS, **{(0, subtask): other for subtask in (1, 2, 3)}, **of(1, IDLES, 4)}
    (finding,) = diagnose(topology, snapshots(topology, tasks))
    assert finding.cause.name == "few_splits"
    assert "only 1 of its 4 subtasks have rows to read" in finding.sentence
    assert finding.remedy.gain == pytest.approx(4)


@pytest.mark.parametrize(
    ("exchange", "cause"),
    [
        ({"rows_out": 1000, "bytes_out": 500_000, "buffers_out": 1000}, "nearly_empty_buffers"),
        ({"rows_out": 10, "bytes_out": 30_000_000, "buffers_out": 1000}, "large_rows"),
        ({"rows_out": 1000, "bytes_out": 30_000_000, "buffers_out": 1000}, "exchange"),
    ],
)
def test_what_an_exchange_carries_says_why_producers_wait_for_it(exchange: dict[str, int], cause: str) -> None:
    topology = line("numbers", "out")
    waits = {"soft_backpressured_s": 0.5, "busy_s": 0.5, "cpu_s": 0.5, "rows": 100}
    made = snapshots(topology, {**of(0, waits), **of(1, IDLES)}, edges={"numbers -> out": exchange})
    (finding,) = diagnose(topology, made)
    assert finding.cause.name == cause
    assert finding.remedy.gain == pytest.approx(2)


# --- in jobs


def explained(job: hg.JobHandle, name: str) -> None:
    """Wait until a cause shows in a running job. On a taken machine the diagnosis names that first, so the rule about
    the task's own work is asked, too."""
    monitor = job._master.monitor

    def look() -> bool:
        window = latest_window(monitor.topology, monitor.snapshots())
        found = (
            [] if window is None else [own_work(window, root) for root in roots(window) if isinstance(root, SlowTasks)]
        )
        return name in {each.cause.name for each in job.diagnose()} | {each.name for each in found if each is not None}

    try:
        eventually(look, 90)
    finally:
        job.cancel()


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(0.05)
    return batch


def test_a_job_whose_buffers_leave_nearly_empty() -> None:
    def rows(start: int, count: int) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(np.arange(start, start + count))})

    env = environment(True, parallelism=1, taskmanagers=1, buffer_timeout=0)
    read = env.from_source(hg.sources.generate(rows, schema=NUMBERS, batch_rows=64)).name("numbers")
    dealt = read.partition_by(lambda batch, subtasks: batch["n"].to_numpy() % subtasks)
    dealt.map_batches(same, schema=NUMBERS).set_parallelism(32).name("ids").sink_to(hg.sinks.null())
    explained(env.execute_async(), "nearly_empty_buffers")


def test_a_job_whose_source_has_one_split_for_two_subtasks() -> None:
    def rows(subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        while subtask == 0:
            yield pa.record_batch({"n": pa.array([1, 2, 3])})

    env = environment(False, parallelism=2)
    read = env.from_source(hg.sources.iterable(rows, schema=NUMBERS)).map_batches(slow, schema=NUMBERS).name("slow")
    read.rebalance().map_batches(same, schema=NUMBERS).name("ids").sink_to(hg.sinks.null())
    explained(env.execute_async(), "few_splits")


def test_a_job_with_large_rows() -> None:
    """The second of three tasks both receives and sends them, so it is the limit."""
    content = b"x" * (1 << 20)
    schema = pa.schema({"n": pa.int64(), "content": pa.binary()})

    def rows(start: int, count: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array(range(start, start + count)), pa.array([content] * count)], schema=schema)

    env = environment(True, parallelism=1, network_memory="64 MiB")
    read = env.from_source(hg.sources.generate(rows, schema=schema, batch_rows=16)).name("files")
    sent = read.rebalance().map_batches(same, schema=schema).name("ids")
    sent.rebalance().map_batches(same, schema=schema).name("again").sink_to(hg.sinks.null())
    explained(env.execute_async(), "large_rows")


@pytest.mark.soak
def test_a_job_that_gets_a_burst(tmp_path: Path) -> None:
    begins = tmp_path / "begins"

    def rows(start: int, count: int) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(np.arange(start, start + count))})

    def some(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if begins.exists() else batch.filter(pa.array(batch["n"].to_numpy() % 10 == 0))

    env = environment(True, parallelism=1)
    read = env.from_source(hg.sources.generate(rows, rate=4000, schema=NUMBERS, batch_rows=100)).name("numbers")
    few = read.map_batches(some, schema=NUMBERS).name("some").rebalance()
    few.map_batches(slow_per_row, schema=NUMBERS).name("prices").sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: len(job._master.monitor.snapshots()) >= 16, 60)
    begins.touch()
    explained(job, "burst")


def slow_per_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(0.0005 * batch.num_rows)
    return batch
