"""`checkpoint`: how long checkpoints take under back-pressure, with barriers of each kind.

A.1 and A.2 partition rows at full speed over B.3 and B.4. B.3 and B.4 read only a tenth of what they could. Checkpoints
count when both sources are held back for more than half of their time. An aligned barrier waits for the rows that are
queued before it. An unaligned barrier overtakes these rows, and the checkpoint stores them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import Figure
from headgate.errors import HeadgateError
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import ROW_BYTES, Flow, Flows, by_target
from headgate.lab.places import A1, A2, B3, B4, MODES, Place, processes
from headgate.lab.probe import Probe
from headgate.lab.waiting import PATIENCE, held_back_s, queued_bytes, wait_for

#: Seconds that a checkpoint with overtaking barriers may take.
PROMPT = 0.1
#: The share of the unthrottled rate that B reads.
SHARE = 0.1
#: Back-pressure is high if a task is held back for this share of its time, as in Flink's web UI.
HIGH = 0.5
#: The options of each kind of barrier, by name.
_DEBLOATING: dict[str, Any] = {"debloat": True, "debloat_target": "20 ms", "debloat_period": "100 ms"}
CASES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "aligned, debloating": _DEBLOATING,
    "unaligned": {"unaligned": True},
    "unaligned after 50 ms": {"unaligned": True, "aligned_timeout": "50 ms"},
    "aligned, plain TCP": MODES["tcp"],
    "aligned, debloating, plain TCP": {**_DEBLOATING, **MODES["tcp"]},
}
PROMPT_CASE = "unaligned"
ROUNDS, CHECKPOINTS = 3, 5
#: The pause between checkpoints. An aligned checkpoint drains the queues, and the queues need this time to fill again.
_PAUSE = "300 ms"
_UNTHROTTLED_SECONDS = 3.0
_WATCH_SECONDS = 1.0


@dataclass(slots=True)
class Case:
    """The measurements of one kind of barrier.

    By checkpoint: `durations` (s), `queued` (bytes queued at the trigger divided by B's rate, s), and `sizes` (bytes
    stored). By round: `held_back`, the share of its time for which a source was held back. The source with the smaller
    share counts.
    """

    durations: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    held_back: list[float] = field(default_factory=list)


def run(options: Options) -> Experiment:
    """Measure the unthrottled rate, then all cases in turn, round by round."""
    options.say("checkpoint: without limits")
    drain = SHARE * unthrottled(processes, 1.0 if options.quick else _UNTHROTTLED_SECONDS)
    cases = {name: Case() for name in CASES}
    for number in range(1 if options.quick else ROUNDS):
        for name, case in cases.items():
            options.say(f"checkpoint: round {number + 1}, {name}")
            under_pressure(processes, CASES[name], drain, 2 if options.quick else CHECKPOINTS, case)
    return report(cases, drain)


def unthrottled(place: Place, seconds: float) -> float:
    """Return the bytes/s that B.3 and B.4 read together without a limit."""
    env = place({})
    result = _stream(env, Flows(_FLOWS, seconds), Probe()).execute("checkpoint")
    return result.rows_in * ROW_BYTES / seconds


def under_pressure(place: Place, options: Mapping[str, Any], drain: float, checkpoints: int, case: Case) -> None:
    """Take `checkpoints` checkpoints while B.3 and B.4 read `drain` bytes/s together. Add the figures to `case`.

    Raises HeadgateError if a source is not held back for half of its time.
    """
    probe = Probe(drains={B3: drain / 2, B4: drain / 2})
    with tempfile.TemporaryDirectory(prefix="headgate-lab-") as folder:
        taking = {"checkpoint_dir": folder, "checkpoint_interval": _PAUSE, "checkpoint_min_pause": _PAUSE}
        env = place({**options, **taking})
        job = _stream(env, Flows(_FLOWS, PATIENCE), probe).execute_async("checkpoint")
        try:
            wait_for(job, lambda: min(_held_back(job).values()) > 0, "checkpoint")
            source, share = _least_held_back(job)
            if share < HIGH:
                raise HeadgateError(f"checkpoint: {source} is held back {share:.0%} of its time, not {HIGH:.0%}")
            case.held_back.append(share)
            taken, queued = _watch(job, checkpoints)
        finally:
            job.cancel()
    case.durations += [each.duration for each in taken]
    case.sizes += [each.size for each in taken]
    case.queued += [amount / drain for amount in queued]


_FLOWS = {A1: Flow((B3, B4)), A2: Flow((B3, B4))}
#: The names of the sources' tasks.
_SOURCES = {"A.1": f"A[{A1}]", "A.2": f"A[{A2}]"}


def _stream(env: hg.StreamEnvironment, flows: Flows, probe: Probe) -> hg.StreamEnvironment:
    env.from_source(flows).name("A").partition_by(by_target).sink_to(probe).name("B")
    return env


def _held_back(job: hg.JobHandle) -> dict[str, float]:
    """Return the seconds that each source has been held back."""
    return {source: held_back_s(job, task) for source, task in _SOURCES.items()}


def _least_held_back(job: hg.JobHandle) -> tuple[str, float]:
    """Watch both sources for a second. Return the one that was held back less, and for which share of the second."""
    began, before = time.monotonic(), _held_back(job)
    time.sleep(_WATCH_SECONDS)
    after, seconds = _held_back(job), time.monotonic() - began
    shares = {source: (after[source] - before[source]) / seconds for source in before}
    source = min(shares, key=lambda source: shares[source])
    return source, shares[source]


def _watch(job: hg.JobHandle, checkpoints: int) -> tuple[list[Any], list[int]]:
    """Wait for the next checkpoints. Return them, and the bytes that were queued when each checkpoint began."""
    begin = time.time()
    samples = [(begin, queued_bytes(job))]

    def taken() -> list[Any]:
        return [each for each in job.checkpoints() if each.failure is None and each.triggered_at >= begin]

    def enough() -> bool:
        samples.append((time.time(), queued_bytes(job)))
        return len(taken()) >= checkpoints

    wait_for(job, enough, "checkpoint")
    watched = taken()[:checkpoints]
    return watched, [max((at, amount) for at, amount in samples if at <= each.triggered_at)[1] for each in watched]


def report(cases: Mapping[str, Case], drain: float) -> Experiment:
    """Return the figures and the verdict."""
    figures: list[Figure] = []
    for name, case in cases.items():
        figures += [
            Figure(f"{name}: duration", "s", tuple(case.durations)),
            Figure(f"{name}: queued bytes / drain rate", "s", tuple(case.queued)),
            Figure(f"{name}: stored", "MB", tuple(size / 1e6 for size in case.sizes)),
            Figure(f"{name}: share of its time that A.1 or A.2, the lesser, is held back", "", tuple(case.held_back)),
        ]
    curves = [
        Series(name, tuple(float(number + 1) for number in range(len(case.durations))), tuple(case.durations))
        for name, case in cases.items()
    ]
    return Experiment(
        case="checkpoint",
        target=f"with sinks that read a tenth of what they could, an unaligned checkpoint takes less than "
        f"{PROMPT * 1000:g} ms",
        met=median(cases[PROMPT_CASE].durations) < PROMPT,
        figures=tuple(figures),
        settings={"sinks take, MB/s": drain / 1e6, "bytes per row": ROW_BYTES},
        plots=(Plot(title="From trigger to completion", x="checkpoint", y="s", series=tuple(curves), log_y=True),),
    )
