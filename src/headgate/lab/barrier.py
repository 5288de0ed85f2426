"""`barrier`: how long a checkpoint's barrier takes while one of two streams of a connection is held back.

The streams are A.1 -> B.3 and A.2 -> B.4, as in `isolation`. The experiment has three parts:

- (a) B.4 reads nothing. How long does it take until B.3 has all of its barriers?
- (b) B.4 is slow, and its barriers wait behind all queued rows. How long does it take until B.4 has all of them?
- (c) As (b), but the barriers overtake the queued rows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import Figure
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import ROW_BYTES, Flow, Flows, by_target
from headgate.lab.places import A1, A2, B3, B4, MODES, Place, processes
from headgate.lab.probe import Probe, Stall
from headgate.lab.waiting import PATIENCE, held_back_s, queued_bytes, wait_for
from headgate.records.events import Alignment
from headgate.runtime.control_messages import Part

#: Seconds that a barrier may take with credit: to B.3 in (a), and to B.4 in (c).
PROMPT = 0.1
#: Rows/s of A.1 and, in (a), of A.2: far below their full speed.
RATE = 100_000.0
#: Bytes/s that B.4 reads in (b) and (c). Batches are small, so that B.4 is never busy with one batch for long.
DRAIN = 2e6
_SMALL = {"message_size": 16 << 10}
#: For how many seconds A.2 must have waited for room in its output before a barrier is sent.
_HELD_BACK = 0.5
ROUNDS = 3


@dataclass(slots=True)
class BarrierRounds:
    """The measurements in one mode, round by round.

    `sibling` (a), `slow` (b) and `overtaking` (c) are the seconds from the injection of barriers until a task has all
    of its barriers.
    """

    sibling: list[float] = field(default_factory=list)
    #: (a): for how many seconds B.4 still stalled after the barrier was sent.
    rest_of_stall: list[float] = field(default_factory=list)
    slow: list[float] = field(default_factory=list)
    #: (b): the bytes in flight when the barrier was sent, divided by B.4's rate, in seconds.
    queued: list[float] = field(default_factory=list)
    #: (c), with credit only.
    overtaking: list[float] = field(default_factory=list)


def run(options: Options) -> Experiment:
    """Measure (a), (b) and (c) in both modes in turn, round by round."""
    rounds, stall = (1, 3.0) if options.quick else (ROUNDS, 4.0)
    outcomes = {mode: BarrierRounds() for mode in MODES}
    for number in range(rounds):
        for mode, outcome in outcomes.items():
            options.say(f"barrier: round {number + 1}, {mode}")
            beside_a_stall(processes, mode, stall, outcome)
            on_a_slow_channel(processes, mode, outcome)
    return report(outcomes)


def beside_a_stall(place: Place, mode: str, stall: float, outcome: BarrierRounds) -> None:
    """Measure (a): the time of B.3's barriers while B.4 reads nothing for `stall` seconds."""
    probe = Probe({B4: Stall(after=0.5, seconds=stall)})
    flows = Flows({A1: Flow((B3,), RATE), A2: Flow((B4,), RATE)}, 0.5 + stall)
    job = _start(place(MODES[mode]), flows, probe)
    try:
        wait_for(job, lambda: _is_held_back(job), "barrier")
        sent = time.time()
        part = _part(job, job._master.inject_barrier(), B3)
        job.wait()
    finally:
        job.cancel()
    seen = probe.seen[B4]
    assert seen.stalled is not None
    outcome.sibling.append(part["completed_s"])
    outcome.rest_of_stall.append(seen.start + seen.stalled[1] - sent)


def on_a_slow_channel(place: Place, mode: str, outcome: BarrierRounds) -> None:
    """Measure (b), and with credit also (c): the time of the barriers of the slow B.4."""
    flows = Flows({A1: Flow((B3,), RATE), A2: Flow((B4,))}, PATIENCE)
    job = _start(place({**MODES[mode], **_SMALL}), flows, Probe(drains={B4: DRAIN}))
    try:
        wait_for(job, lambda: _is_held_back(job), "barrier")
        queued = queued_bytes(job)
        aligned = _part(job, job._master.inject_barrier(), B4)
        outcome.slow.append(aligned["completed_s"])
        outcome.queued.append(queued / DRAIN)
        if mode == "credit":
            overtaking = _part(job, job._master.inject_barrier(Alignment.UNALIGNED), B4)
            outcome.overtaking.append(overtaking["completed_s"])
    finally:
        job.cancel()


def _start(environment: hg.StreamEnvironment, flows: Flows, probe: Probe) -> hg.JobHandle:
    environment.from_source(flows).name("A").partition_by(by_target).sink_to(probe).name("B")
    return environment.execute_async("barrier")


def _is_held_back(job: hg.JobHandle) -> bool:
    return held_back_s(job, f"A[{A2}]") >= _HELD_BACK


def _part(job: hg.JobHandle, checkpoint: int, subtask: int) -> Part:
    """Wait for the report of B's subtask on a checkpoint, and return it."""
    wait_for(job, lambda: f"B[{subtask}]" in job._master.checkpoint_parts(checkpoint), "barrier")
    return job._master.checkpoint_parts(checkpoint)[f"B[{subtask}]"]


def report(outcomes: Mapping[str, BarrierRounds]) -> Experiment:
    """Return the figures and the verdict."""
    figures: list[Figure] = []
    for mode, rounds in outcomes.items():
        figures += [
            Figure(f"{mode}: B.3 while B.4 stalls", "s", tuple(rounds.sibling)),
            Figure(f"{mode}: rest of the stall", "s", tuple(rounds.rest_of_stall)),
            Figure(f"{mode}: slow B.4, aligned", "s", tuple(rounds.slow)),
            Figure(f"{mode}: queued before it / drain rate", "s", tuple(rounds.queued)),
        ]
        if rounds.overtaking:
            figures.append(Figure(f"{mode}: slow B.4, overtaking", "s", tuple(rounds.overtaking)))
    x = tuple(float(number + 1) for number in range(len(outcomes["credit"].sibling)))
    curves = [Series(f"{mode}, B.3 beside a stall", x, tuple(rounds.sibling)) for mode, rounds in outcomes.items()]
    curves += [Series(f"{mode}, slow B.4", x, tuple(rounds.slow)) for mode, rounds in outcomes.items()]
    return Experiment(
        case="barrier",
        target=f"with credit B.3 has its barriers within {PROMPT * 1000:g} ms while B.4 stalls, and a slow B.4 one "
        "that overtakes; over plain TCP B.3 waits for the rest of the stall",
        met=_met(outcomes),
        figures=tuple(figures),
        settings={"rows/s": RATE, "bytes per row": ROW_BYTES, "slow B.4 takes, bytes/s": DRAIN},
        plots=(Plot(title="From injection to all barriers", x="round", y="s", series=tuple(curves), log_y=True),),
    )


def _met(outcomes: Mapping[str, BarrierRounds]) -> bool:
    credit, tcp = outcomes["credit"], outcomes["tcp"]
    prompt = median(credit.sibling) < PROMPT and median(credit.overtaking) < PROMPT
    return prompt and all(took >= rest for took, rest in zip(tcp.sibling, tcp.rest_of_stall, strict=True))
