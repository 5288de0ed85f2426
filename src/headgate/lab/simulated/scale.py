"""`scale`: one subtask of many stalls. How far does that reach, and how many signals does it take?

Each source sends to ten sinks of its own, in turn (pointwise edges with a fan-out of ten). Source 0 is fast, and the
second of its sinks stalls. The other sources are independent of it, but for the connections of the ten TaskManagers.
The experiment always runs in virtual time, with the policies, exchanges and turns of the runtime.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final, Literal

import pyarrow as pa

import headgate as hg
from headgate.bench.case_options import Options
from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import NetworkMemoryFull
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.contest import simulated_ones
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, Contestant
from headgate.lab.mechanisms.mechanism_report import mechanism_report
from headgate.lab.mechanisms.observed import check_readers
from headgate.lab.mechanisms.verdicts import Measured, Observation
from headgate.lab.simulated.simulated_place import COSTS
from headgate.runtime.launch.cores import usable_cores
from headgate.simulation.costs import Costs, Line
from headgate.simulation.simulated_environment import SimulatedEnvironment
from headgate.simulation.simulated_job import Watch
from headgate.simulation.world import EPOCH

FAN_OUT: Final = 10
TASKMANAGERS: Final = 10
#: The sink that stalls: it belongs to source 0, and is in another TaskManager.
STALLED: Final = 1
#: Batches per second of source 0, and of each other source.
FAST: Final = 1000.0
SLOW: Final = 10.0
#: Sizes and times of mechanisms are their documented defaults, divided by this.
FACTOR: Final = 100.0
#: Seconds until the sink stalls, until the sources end, how many before the end count, and from look to look.
BEFORE: Final = 0.5
END: Final = 5.5
COUNTED: Final = 2.0
_LOOK: Final = 0.5
#: Buffers are small, so that those of many channels fit into memory. The sockets' are small, so that they fill in time.
_OPTIONS: Final[Mapping[str, Any]] = {"segment_size": 4096, "network_memory": "512 MiB"}
_LINE: Final = Line(buffer=1 << 18)
#: The sink takes no time for a row: it only counts.
_COSTS: Final = Costs(rows={"flows": COSTS.rows["flows"]})
#: The largest number of sources, and the mechanisms that run with it unless some are chosen: each takes up to five
#: minutes of processor time.
MOST: Final = 910
LARGEST: Final = ("credit", "tcp", "max-pending", "heron", "jstorm-master")
#: What differs here from one stalled stream of two. JStorm's coordinator acts only if 10 % of the tasks of an operator
#: ask for it, so one of 20 tasks or more does not move it.
EXPECTED: Final[Mapping[str, bool]] = {"jstorm-master": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """What one run showed of the sinks of other sources, of the sources, and of the mechanism.

    `starving` sinks got no row in the last two seconds, `stopped` sources waited for most of them. The mechanism had so
    many `signals` per second, and so many for each written row. `sent_per_row` rows were sent for a written row. If
    memory was full, nothing of this is known, and `out_of_memory` is true.
    """

    starving: int = 0
    stopped: int = 0
    signals: float = 0.0
    signals_per_row: float | None = None
    sent_per_row: float | None = None
    events: int = 0
    out_of_memory: bool = False


def run(options: Options) -> Experiment:
    """Simulate every mechanism with each number of sources.

    With `quick` as many simulations run at the same time as there are cores. Others need too much memory for that.
    """
    plan = [
        (sources, name)
        for sources in ((20,) if options.quick else (10, 100, MOST))
        for name in ((options.mechanisms or LARGEST) if sources == MOST else simulated_ones(options).mechanisms)
    ]
    options.say(f"scale: {len(plan)} simulations, all sizes and times divided by {FACTOR:g}")
    runs: dict[str, dict[int, Scaled]] = {}
    for (sources, name), run in zip(plan, _simulated(plan, options), strict=True):
        options.say(f"scale: {subtasks(sources):,} subtasks, {name}: {run.events:,} events")
        runs.setdefault(name, {})[sources] = run
    return report(runs)


def _simulated(plan: Sequence[tuple[int, str]], options: Options) -> Iterator[Scaled]:
    """Yield the runs of the plan, in its order."""
    if not options.quick:
        yield from (one_named_run(name, sources, options.seed) for sources, name in plan)
        return
    # Ctrl-C reaches these processes, too, and ends them.
    with ProcessPoolExecutor(
        usable_cores(), get_context("spawn"), signal.signal, (signal.SIGINT, signal.SIG_DFL)
    ) as pool:
        futures = [pool.submit(one_named_run, name, sources, options.seed) for sources, name in plan]
        try:
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def one_named_run(name: str, sources: int, seed: int) -> Scaled:
    """Run a job like `one_run`, in any process."""
    return one_run(CONTESTANTS[name], sources, seed)


def subtasks(sources: int) -> int:
    return sources * (1 + FAN_OUT)


def one_run(contestant: Contestant, sources: int, seed: int = 0) -> Scaled:
    """Run a job with so many sources in virtual time. Raises HeadgateError if the run is void."""
    waits: list[dict[str, float]] = []
    options = contestant.options(FACTOR)
    environment = SimulatedEnvironment(
        parallelism=sources,
        taskmanagers=TASKMANAGERS,
        seed=seed,
        config=hg.Config(**{**options, **_OPTIONS}),
        costs=_COSTS,
        line=_LINE,
        watch=Watch(interval=_LOOK, look=lambda now, metrics: waits.append(_waits(metrics))),
    )
    sink = _StallingSink()
    rates = {source: FAST if source == 0 else SLOW for source in range(sources)}
    flows = Flows({source: Flow((0,), BATCH * rate, batch_rows=BATCH) for source, rate in rates.items()}, END)
    stream = environment.from_source(flows).name("flows").rescale()
    stream.sink_to(sink).set_parallelism(FAN_OUT * sources)
    try:
        result = environment.execute("scale")
    except NetworkMemoryFull:
        return Scaled(out_of_memory=True)
    check_readers(options.get("flow_control"), result.metrics)
    written = min(result.rows_in, result.rows_out)
    return Scaled(
        starving=FAN_OUT * (sources - 1)
        - sum(sink.rows.get(each, 0) > 0 for each in range(FAN_OUT, FAN_OUT * sources)),
        stopped=_stopped(waits),
        signals=result.metrics["throttle_signals"] / result.duration_s,
        signals_per_row=result.metrics["throttle_signals"] / written,
        sent_per_row=sum(each["rows_out"] for each in result.metrics["edges"].values()) / written,
        events=result.events,
    )


def _waits(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return for how long each source has waited: for its throttle, or for room in its output."""
    return {
        name: task["throttle_wait_s"] + task["soft_backpressured_s"]
        for name, task in metrics["tasks"].items()
        if name.startswith("flows[")
    }


def _stopped(waits: Sequence[Mapping[str, float]]) -> int:
    """Return how many sources waited for most of the last `COUNTED` seconds before the end. There is a look each
    `_LOOK` seconds."""
    last, first = round(END / _LOOK) - 1, round((END - COUNTED) / _LOOK) - 1
    return sum(waits[last][name] - waited > COUNTED / 2 for name, waited in waits[first].items())


class _StallingSink(Sink):
    """A sink whose subtask `STALLED` stalls. `rows` has the rows of each subtask in the seconds that count."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _StallingWriter(context)

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        self.rows = dict(pending)


class _StallingWriter(SinkWriter):
    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._rows = 0
        self._stalls = context.subtask == STALLED

    def write(self, batch: pa.RecordBatch) -> None:
        now = self._context.clock() - EPOCH
        if END - COUNTED <= now < END:
            self._rows += batch.num_rows
        if self._stalls and now >= BEFORE:
            self._stalls = False
            self._context.sleep(END - now)

    def finish(self) -> tuple[int, int]:
        return self._context.subtask, self._rows


def report(runs: Mapping[str, Mapping[int, Scaled]]) -> Experiment:
    """Return how far the stall reached with each mechanism, and whether that was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    better: dict[str, Literal["less", "more"]] = {}
    for name, by_sources in runs.items():
        expected = CONTESTANTS[name].expected
        findings += [
            Observation(
                name,
                "sinks of other sources get all their rows",
                not any(each.starving for each in by_sources.values()),
                EXPECTED.get(name, expected.keeps_sibling),
            ),
            Observation(name, "memory is full", any(each.out_of_memory for each in by_sources.values()), False),
        ]
        measured[name] = {}
        for sources, each in by_sources.items():
            size = f"of {subtasks(sources):,} subtasks"
            shown: dict[str, tuple[str, Sequence[float | None]]] = {
                f"sinks of other sources that get nothing, {size}": ("", [float(each.starving)]),
                f"sources that stop, {size}": ("", [float(each.stopped)]),
                f"signals, {size}": ("per second", [each.signals]),
                f"signals for a written row, {size}": ("", [each.signals_per_row]),
                f"rows sent for a written row, {size}": ("", [each.sent_per_row]),
            }
            measured[name] |= shown
            better |= {figure: "less" for figure in measured[name] if figure.endswith(size)}
    return mechanism_report(
        "scale",
        "one stalled subtask of many reaches as far as was expected of each mechanism",
        findings=findings,
        measured=measured,
        better=better,
        settings={
            "TaskManagers": TASKMANAGERS,
            "sinks of a source": FAN_OUT,
            "messages/s of the stalled sink": FAST / FAN_OUT,
            "messages/s of each other sink": SLOW / FAN_OUT,
            "rows of a batch": BATCH,
            "sizes and times divided by": FACTOR,
            "events simulated": sum(each.events for by_sources in runs.values() for each in by_sources.values()),
        },
        plots=(
            Plot(
                title="signals of the mechanism",
                x="subtasks",
                y="signals/s",
                series=tuple(_curve(name, by_sources) for name, by_sources in runs.items()),
                log_x=True,
            ),
        ),
    )


def _curve(name: str, by_sources: Mapping[int, Scaled]) -> Series:
    return Series(
        name,
        tuple(float(subtasks(sources)) for sources in by_sources),
        tuple(each.signals for each in by_sources.values()),
    )
