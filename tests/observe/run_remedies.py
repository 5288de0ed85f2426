"""Apply remedies, and compare what they gain with what the diagnosis predicted.

  .venv/bin/python -m tests.observe.run_remedies [--only TEXT] [--rounds N]

Each case runs a job twice: as it is, and with the remedy of its finding applied. A case is right if the measured gain
is within 30 % of the predicted one, or above it if the prediction says `at least`. The machine must be idle: processors
that others use change both.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

import headgate as hg
from headgate.observe.finding import Finding
from tests.observe.delayed_links import delayed_links
from tests.observe.faults import computes, waits

#: Seconds that a job runs before it is measured, seconds of the measure, and seconds until a finding must be there.
SETTLE, MEASURED, ALLOWED = 8.0, 10.0, 30.0
#: A measured gain is right within this share of the predicted one.
TOLERANCE = 0.30
SCHEMA = pa.schema({"k": pa.int64(), "n": pa.int64()})
#: What a slow function takes. A batch of 8,192 rows then takes 0.4 s.
SECONDS_PER_ROW = 50e-6
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Measure:
    """The rows a second that a job carries, and what the diagnosis said of it."""

    rate: float
    finding: Finding | None


@dataclass(frozen=True)
class Case:
    """A job that a remedy makes faster. `start(1)` starts it as it is; `start(gain)` with the remedy that the finding
    predicts to gain so much. `counted` is the operator whose rows count."""

    name: str
    causes: tuple[str, ...]
    start: Callable[[float], hg.JobHandle]
    counted: str
    around: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class Outcome:
    """What was predicted, and what the remedy gained."""

    case: Case
    before: Measure
    after: Measure

    @property
    def predicted(self) -> float | None:
        return None if self.before.finding is None else self.before.finding.remedy.gain

    @property
    def gained(self) -> float:
        return self.after.rate / max(1.0, self.before.rate)

    @property
    def is_right(self) -> bool:
        """Whether the gain is within the tolerance. A gain of at least so much may be larger."""
        predicted, finding = self.predicted, self.before.finding
        if predicted is None or finding is None:
            return False
        if finding.remedy.at_least and self.gained >= predicted:
            return True
        return abs(self.gained - predicted) <= TOLERANCE * predicted

    @property
    def row(self) -> str:
        """A row of the table in docs/evidence/diagnosis.md."""
        finding = self.before.finding
        least = "at least " if finding is not None and finding.remedy.at_least else ""
        predicted = "none" if self.predicted is None else f"{least}{self.predicted:.2f}"
        limit = "" if finding is None else finding.remedy.limit
        verdict = "yes" if self.is_right else "NO"
        return f"| {self.case.name} | {self.before.rate:,.0f} | {predicted} | {limit} | {self.gained:.2f} | {verdict} |"


# --- the jobs


def numbers(env: hg.StreamEnvironment, batch_rows: int = 1000) -> hg.DataStream:
    def rows(start: int, count: int) -> pa.RecordBatch:
        made = np.arange(start, start + count)
        return pa.record_batch([pa.array(made % 97), pa.array(made)], schema=SCHEMA)

    source = hg.sources.generate(rows, schema=SCHEMA, batch_rows=batch_rows)
    return env.from_source(source).set_parallelism(1).name("numbers")


def environment(
    subtasks: int, processes: bool = True, taskmanagers: int | None = None, **options: object
) -> hg.StreamEnvironment:
    """Return an environment with a process, or a thread, for each subtask, or with so many TaskManagers."""
    deployment = hg.LocalDeployment(taskmanagers=taskmanagers or subtasks, processes=processes)
    return hg.StreamEnvironment(parallelism=subtasks, config=hg.Config(**options), deployment=deployment)


def work(seconds: float, function: Callable[..., None], batch: pa.RecordBatch) -> pa.RecordBatch:
    function(Path(), seconds, batch.num_rows)
    return batch


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def more_subtasks(function: Callable[..., None], subtasks: int, gain: float) -> hg.JobHandle:
    """A function that is too slow: the remedy is as many more subtasks as the gain needs, at least twice as many."""
    count = subtasks if gain == 1 else max(2 * subtasks, round(subtasks * gain))
    env = environment(count, network_memory="8 MiB")
    done = numbers(env).rebalance().map_batches(partial(work, SECONDS_PER_ROW, function), schema=SCHEMA).name("work")
    done.sink_to(hg.sinks.null()).name("out")
    return env.execute_async("remedy")


def pause(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Wait half a millisecond, however many rows there are."""
    waits(Path(), 0.0005, 1)
    return batch


def flush_timeout(gain: float) -> hg.JobHandle:
    """Each batch goes to 16 channels, and each flush sends nearly empty buffers: the remedy is a longer timeout. What
    the operators of the source's chain wait for stays."""
    env = environment(1, buffer_timeout=0 if gain == 1 else "100 ms")
    paused = numbers(env, batch_rows=64)
    for name in ("first", "second"):
        paused = paused.map_batches(pause, schema=SCHEMA).name(name)
    dealt = paused.partition_by(lambda batch, subtasks: batch["n"].to_numpy() % subtasks)
    dealt.map_batches(same, schema=SCHEMA).set_parallelism(16).name("work").sink_to(hg.sinks.null()).name("out")
    return env.execute_async("remedy")


def more_processes(gain: float) -> hg.JobHandle:
    """Tasks of one process compute: the remedy is a process for each."""
    env = environment(CORES, taskmanagers=1 if gain == 1 else CORES, network_memory="8 MiB")
    done = numbers(env).rebalance().map_batches(partial(work, SECONDS_PER_ROW, computes), schema=SCHEMA).name("work")
    done.sink_to(hg.sinks.null()).name("out")
    return env.execute_async("remedy")


def more_buffers(gain: float) -> hg.JobHandle:
    """A line with a long delay: the remedy is as many more buffers, which are on their way."""
    factor = max(1, round(gain))
    env = environment(
        2, processes=False, segment_size=4096, message_size=4096, bind_host="127.0.0.1",
        buffers_per_channel=2 * factor, floating_buffers_per_gate=8 * factor,
    )  # fmt: skip
    sent = numbers(env).partition_by(lambda batch, _: np.full(batch.num_rows, 1))
    sent.map_batches(same, schema=SCHEMA).name("work").sink_to(hg.sinks.null()).name("out")
    return env.execute_async("remedy")


def spread_keys(gain: float) -> hg.JobHandle:
    """Nine rows of ten have the key of one subtask: the remedy spreads them over all."""

    def to_one(batch: pa.RecordBatch, subtasks: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        number = batch["n"].to_numpy()
        chosen: np.ndarray[tuple[int], np.dtype[np.int64]] = np.where(number % 10 == 0, number // 10 % subtasks, 0)
        return chosen

    env = environment(4, network_memory="8 MiB")
    dealt = numbers(env).partition_by(to_one if gain == 1 else lambda batch, subtasks: batch["n"].to_numpy() % subtasks)
    done = dealt.map_batches(partial(work, SECONDS_PER_ROW, waits), schema=SCHEMA).name("work")
    done.sink_to(hg.sinks.null()).name("out")
    return env.execute_async("remedy")


_WORK = ("slow_function", "out_of_cpu")
CASES = (
    Case("more subtasks, waiting", ("waiting_function",), partial(more_subtasks, waits, 1), "work"),
    Case("more subtasks, free processors", _WORK, partial(more_subtasks, computes, 1), "work"),
    Case("more subtasks, no free processor", _WORK, partial(more_subtasks, computes, CORES), "work"),
    Case("a longer flush timeout", ("nearly_empty_buffers",), flush_timeout, "work"),
    Case("more processes", ("interpreter_lock",), more_processes, "work"),
    Case("more buffers on a delayed line", ("credit_round_trip",), more_buffers, "work", partial(delayed_links, 0.2)),
    Case("hot keys spread", ("data_skew",), spread_keys, "work"),
)


# --- the measure


def run(case: Case) -> Outcome:
    """Run a case: as it is, then with the remedy."""
    before = measure(case, 1.0)
    gain = before.finding.remedy.gain if before.finding is not None else None
    return Outcome(case, before, measure(case, max(1.01, gain or 1.01)))


def measure(case: Case, gain: float) -> Measure:
    """Run a job until it is settled, and count the rows of some seconds. Without a remedy also look for the finding."""
    with case.around():
        job = case.start(gain)
        try:
            while not job.backpressure():
                time.sleep(0.1)
            time.sleep(SETTLE)
            finding = awaited(job, case.causes) if gain == 1 else None
            rows, at = counted(job, case.counted), time.monotonic()
            time.sleep(MEASURED)
            return Measure((counted(job, case.counted) - rows) / (time.monotonic() - at), finding)
        finally:
            job.cancel()


def awaited(job: hg.JobHandle, causes: tuple[str, ...]) -> Finding | None:
    """Return the finding with the median gain of those that name one of the causes in five seconds, None without."""
    seen: list[Finding] = []
    until = time.monotonic() + ALLOWED
    while time.monotonic() < until and len(seen) < 5:
        seen += [each for each in job.diagnose()[:1] if each.cause.name in causes and each.remedy.gain is not None]
        time.sleep(1.0)
    middle = median([each.remedy.gain or 0.0 for each in seen]) if seen else 0.0
    return min(seen, key=lambda each: abs((each.remedy.gain or 0.0) - middle), default=None)


def counted(job: hg.JobHandle, operator: str) -> int:
    return int(job.metrics()["operators"][operator]["rows_in"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each case")
    options = parser.parse_args()
    right: list[bool] = []
    print("| remedy | rows/s before | predicted gain | which ends at | measured gain | within 30 % |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        for _ in range(options.rounds if options.only in case.name else 0):
            outcome = run(case)
            right.append(outcome.is_right)
            print(outcome.row, flush=True)
    print(f"{sum(right)} of {len(right)} right", file=sys.stderr)
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
