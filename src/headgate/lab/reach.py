"""`reach`: how soon a stalled sink stops its source, and how many bytes are then in flight between them, by place.

A source at full speed sends over one or two connections to a sink that reads nothing for some seconds. Each row has the
time when it was made, so the rows show when the source stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.api.environment import StreamEnvironment
from headgate.api.stream import DataStream
from headgate.bench.case_options import Options
from headgate.bench.report import Figure
from headgate.config import Config, FlowControl
from headgate.errors import HeadgateError
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import ROW_BYTES, SCHEMA, Flow, Flows, by_target
from headgate.lab.places import A1, A2, B3, MODES, PARALLELISM, SLOTS, Place, processes
from headgate.lab.probe import Probe, Seen, Stall
from headgate.plan.network_memory import shared_pool
from headgate.simulation.simulated_environment import SimulatedEnvironment
from headgate.simulation.simulated_job import Watch

PLACES = ("segments", "pending", "gathering", "sockets")
#: Seconds between two looks at the job's counters. TaskManagers report the counters up to four times a second.
_POLL_INTERVAL = 0.05
#: The source has stopped if it made no row for this many seconds.
_STANDS = 0.6
#: The job has stopped if its counters did not change for this many seconds, which are two reports at least.
_UNCHANGED = 1.1
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Path:
    """The path from a source in one TaskManager over `connections` connections to a sink."""

    name: str
    connections: int

    @property
    def sink(self) -> int:
        return B3 if self.connections == 1 else A2

    def bound(self, config: Config) -> int:
        """Return the bytes of segments that the path's channels may hold at both ends.

        Without credit a busy channel may hold all buffers of its input.
        """
        written = config.max_buffers_per_channel + config.max_overdraft_buffers_per_gate
        received = config.buffers_per_channel + config.floating_buffers_per_gate
        if config.flow_control is not FlowControl.CREDIT:
            received = shared_pool(PARALLELISM - SLOTS, config).maximum
        return self.connections * (written + received) * config.segment_size

    def build(self, stream: DataStream) -> DataStream:
        partitioned = stream.partition_by(by_target)
        return (
            partitioned if self.connections == 1 else partitioned.map_batches(_same, schema=SCHEMA).partition_by(_to_a2)
        )


ONE, TWO = Path("one connection", 1), Path("two connections", 2)


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _to_a2(batch: pa.RecordBatch, _subtasks: int) -> npt.NDArray[np.int64]:
    return np.full(batch.num_rows, A2)


@dataclass(frozen=True, slots=True)
class Standing:
    """The outcome of one round: seconds until the source stopped, the bytes in flight at that time, and their
    places."""

    seconds: float
    bytes_made: int
    places: Mapping[str, int]
    #: The most bytes in segments at any time of the round.
    most_segments: int


@dataclass(slots=True)
class _Samples:
    """The job's counters over time. `stood` is the fullest one in which no row had moved for `_UNCHANGED` seconds."""

    most_segments: int = 0
    stood: dict[str, int] | None = None
    _since: float = 0.0
    _rows: tuple[int, int] = field(default=(0, 0))

    def add(self, now: float, metrics: Mapping[str, Any]) -> None:
        places = {place: sum(each[place] for each in metrics["in_flight"]) for place in PLACES}
        self.most_segments = max(self.most_segments, places["segments"])
        rows = (metrics["rows_in"], metrics["rows_out"])
        if rows != self._rows:
            self._rows, self._since = rows, now
        elif rows[0] and now - self._since >= _UNCHANGED and sum(places.values()) > sum((self.stood or {}).values()):
            self.stood = places


def run(options: Options) -> Experiment:
    """Measure every mode on both paths in turn, round by round."""
    return report(measure(options, lambda number: processes))


def measure(options: Options, place_of: Callable[[int], Place]) -> dict[tuple[str, Path], list[Standing]]:
    """Return the outcomes of all rounds. `place_of` returns the place of a round, which counts from 0."""
    rounds, flow, stall = (1, 1.0, 3.0) if options.quick else (ROUNDS, 2.0, 3.0)
    outcomes: dict[tuple[str, Path], list[Standing]] = {}
    for number in range(rounds):
        for mode in MODES:
            for path in (ONE, TWO):
                options.say(f"reach: round {number + 1}, {mode}, {path.name}")
                outcomes.setdefault((mode, path), []).append(one_round(place_of(number), mode, path, flow, stall))
    return outcomes


def one_round(place: Place, mode: str, path: Path, flow: float, stall: float) -> Standing:
    """Let rows flow for `flow` seconds, then stall the sink. Raises HeadgateError if the source did not stop."""
    environment = place(MODES[mode])
    probe = Probe({path.sink: Stall(after=flow, seconds=stall)})
    # The source continues after the stall, because only later rows show how long it stopped.
    source = Flows({A1: Flow((B3,))}, flow + stall + 1.5)
    path.build(environment.from_source(source)).sink_to(probe)
    samples = _Samples()
    _run_sampled(environment, samples)
    return _standing(probe.seen[path.sink], samples)


def _run_sampled(environment: StreamEnvironment, samples: _Samples) -> None:
    """Run the job to its end, and sample its counters meanwhile."""
    if isinstance(environment, SimulatedEnvironment):
        environment.watch = Watch(interval=_POLL_INTERVAL, look=samples.add)
        environment.execute("reach")
        return
    job = environment.execute_async("reach")
    try:
        while job.status() in ("CREATED", "RUNNING"):
            samples.add(time.monotonic(), job.metrics())
            time.sleep(_POLL_INTERVAL)
        job.wait()
    finally:
        job.cancel()


def _standing(seen: Seen, samples: _Samples) -> Standing:
    gap = seen.gaps[A1]
    if seen.stalled is None or samples.stood is None or gap.seconds < _STANDS:
        raise HeadgateError(
            f"reach: the job made no pause of {_UNCHANGED:g} s while its sink stalled, so the round does not count"
        )
    seconds = max(0.0, gap.begin - seen.stalled[0])
    return Standing(seconds, gap.in_flight * ROW_BYTES, samples.stood, samples.most_segments)


def report(outcomes: Mapping[tuple[str, Path], list[Standing]]) -> Experiment:
    """Return the figures and the verdict: segments must never hold more than the path's channels may hold."""
    figures: list[Figure] = []
    met = True
    for (mode, path), rounds in outcomes.items():
        name, bound = f"{mode}, {path.name}", path.bound(Config(**MODES[mode]))
        met = met and all(each.most_segments <= bound for each in rounds)
        figures.append(Figure(f"{name}: source stands after", "ms", tuple(1000 * each.seconds for each in rounds)))
        figures.append(Figure(f"{name}: made and not taken", "B", tuple(float(each.bytes_made) for each in rounds)))
        figures += [
            Figure(f"{name}: {place}", "B", tuple(float(each.places[place]) for each in rounds)) for place in PLACES
        ]
        figures.append(Figure(f"{name}: most segments", "B", tuple(float(each.most_segments) for each in rounds)))
        figures.append(Figure(f"{name}: segments may be", "B", (float(bound),)))
    return Experiment(
        case="reach",
        target="a stalled sink stops its source, and segments never hold more than their channels' pools may hold",
        met=met,
        figures=tuple(figures),
        settings={"bytes per row": ROW_BYTES, "segment": Config().segment_size},
        plots=(_plot(outcomes),),
    )


def _plot(outcomes: Mapping[tuple[str, Path], list[Standing]]) -> Plot:
    """Return the plot of the bytes in flight at each place (y axis) for each number of connections (x axis)."""
    series = []
    for mode in dict.fromkeys(mode for mode, _ in outcomes):
        paths = [path for each, path in outcomes if each == mode]
        for place in PLACES:
            amounts = tuple(float(np.median([s.places[place] for s in outcomes[mode, path]])) for path in paths)
            series.append(Series(f"{mode}, {place}", tuple(float(path.connections) for path in paths), amounts))
    return Plot(title="In flight when the source has stopped", x="connections", y="bytes", series=tuple(series))
