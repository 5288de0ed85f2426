"""`storm`: do StormZooKeeper and StormStatus stop and start a source as Storm itself does under the same load?

A source emits more messages than a sink can process, so it is stopped and started again and again. Storm 1.0, 1.2 and
2.x run in local mode, each in a program of its own, with two workers. Our jobs have two TaskManagers. Our message is a
batch of one row, like a tuple.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import Figure
from headgate.connectors.connector import ReaderContext, Sink, SinkWriter, Source, SourceReader, WriterContext
from headgate.errors import HeadgateError
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.mechanisms.observed import MechanismRun, check_readers, counted, overhead
from headgate.lab.mechanisms.processor_times import ProcessorTimes
from headgate.lab.mechanisms.verdicts import figures as figures_of
from headgate.lab.originals.compared import compared
from headgate.lab.originals.stop_and_go import SAVED, StopAndGoLoad, Trace
from headgate.lab.originals.storm_cluster import Storm
from headgate.lab.zookeeper_server import zookeeper_server

#: Messages/s that the source emits, and seconds that the sink needs for each.
RATE, COST = 400.0, 0.0125
ROUNDS, QUICK_ROUNDS = 3, 1
#: The times of Storm 1.2 in these runs, in whole seconds. Its defaults are 30 s, 15 s and 30 s.
_TIMEOUT, _UPDATE, _POLL = 3, 2, 3
#: The messages of an input queue in these runs. The defaults are 1,024 in Storm 1, and 32,768 in Storm 2.
_QUEUE: Final = 512
_STORM1: Final = {
    "topology.workers": 2,
    "topology.acker.executors": 0,
    "topology.backpressure.enable": True,
    "topology.disruptor.batch.size": 1,
    "topology.executor.receive.buffer.size": _QUEUE,
}
SCHEMA: Final = pa.schema([("n", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A version of Storm, our mechanism (a function of ZooKeeper's address), and the seconds of a run of both."""

    original: Storm
    ours: Callable[[str], Any]
    needs_zookeeper: bool
    seconds: float
    quick_seconds: float


PAIRS: Final[dict[str, Pair]] = {
    "Storm 1.0.6": Pair(
        original=Storm(version="1.0.6", artifact="storm-core", options=_STORM1),
        ours=lambda hosts: hg.throttle.StormZooKeeper(hosts, receive_buffer=_QUEUE),
        needs_zookeeper=True,
        seconds=30,
        quick_seconds=15,
    ),
    "Storm 1.2.4": Pair(
        original=Storm(
            version="1.2.4",
            artifact="storm-core",
            options=_STORM1,
            cluster={
                "backpressure.znode.timeout.secs": _TIMEOUT,
                "backpressure.znode.update.freq.secs": _UPDATE,
                "task.backpressure.poll.secs": _POLL,
            },
            main="StormOnNewJava",
            sources=("StormLoad.java", "StormOnNewJava.java", "StaticHostProvider.java"),
        ),
        ours=lambda hosts: hg.throttle.StormZooKeeper(
            hosts, version="1.2", receive_buffer=_QUEUE, znode_timeout=_TIMEOUT, znode_update=_UPDATE, poll=_POLL
        ),
        needs_zookeeper=True,
        seconds=60,
        quick_seconds=30,
    ),
    "Storm 2.8.1": Pair(
        original=Storm(
            version="2.8.1",
            artifact="storm-server",
            options={
                "topology.workers": 2,
                "topology.acker.executors": 0,
                "topology.executor.receive.buffer.size": _QUEUE,
            },
            cluster={"storm.local.mode.zmq": True},  # workers have connections, as in a real cluster
        ),
        ours=lambda hosts: hg.throttle.StormStatus(_QUEUE),
        needs_zookeeper=False,
        seconds=30,
        quick_seconds=18,
    ),
}


def run(options: Options) -> Experiment:
    """Run each version of Storm and our mechanism in turn, round by round."""
    runs: dict[str, list[tuple[Trace, Trace]]] = {name: [] for name in PAIRS}
    costs: dict[str, list[MechanismRun]] = {name: [] for name in PAIRS}
    for number in range(QUICK_ROUNDS if options.quick else ROUNDS):
        for name, pair in PAIRS.items():
            load = _load(pair, options.quick)
            options.say(f"storm: round {number + 1}, {name}, {load.seconds:g} s")
            original = pair.original.run(load)
            options.say(f"storm: round {number + 1}, ours beside {name}, {load.seconds:g} s")
            mine, cost = ours(pair, load)
            runs[name].append((original, mine))
            costs[name].append(cost)
    return report(runs, costs, quick=options.quick)


def _load(pair: Pair, quick: bool) -> StopAndGoLoad:
    return StopAndGoLoad(rate=RATE, cost=COST, seconds=pair.quick_seconds if quick else pair.seconds)


def ours(pair: Pair, load: StopAndGoLoad) -> tuple[Trace, MechanismRun]:
    """Run our mechanism under the load. Return its trace, and the counters of its job.

    Raises HeadgateError if the job ends early, or if the run is void.
    """
    with (
        zookeeper_server() if pair.needs_zookeeper else nullcontext() as server,
        tempfile.TemporaryDirectory() as path,
    ):
        config = hg.Config(
            flow_control="unbounded",
            buffer_timeout=0,
            network_memory="256 MiB",
            throttle=pair.ours(server.address if server else ""),
        )
        deployment = hg.LocalDeployment(taskmanagers=2, processes=True)
        environment = hg.StreamEnvironment(parallelism=2, config=config, deployment=deployment)
        messages = environment.from_source(PacedMessages(load.rate, path)).partition_by(_to_the_other)
        messages.sink_to(SlowSink(load.cost, path))
        times = ProcessorTimes(server.processor_seconds if server else None)
        job = environment.execute_async("storm")
        try:
            _await(job, Path(path, "emitted"), load.seconds)
            check_readers(config.flow_control, job.metrics())
            cost = counted(job, times, load.seconds)
        finally:
            job.cancel()
        return Trace.read(Path(path)), cost


def _to_the_other(batch: pa.RecordBatch, _subtasks: int) -> npt.NDArray[np.int64]:
    """Return the subtask for each row: that of the other TaskManager."""
    return np.ones(batch.num_rows, dtype=np.int64)


def _await(job: hg.JobHandle, emitted: Path, seconds: float) -> None:
    """Wait for the first message, at most a minute, and then `seconds`. Raises HeadgateError if the job ends."""
    end, has_begun = time.monotonic() + 60, False
    while time.monotonic() < end:
        if not has_begun and emitted.exists() and emitted.stat().st_size:
            end, has_begun = time.monotonic() + seconds, True
        if job.status() not in ("CREATED", "RUNNING"):
            job.wait()
            raise HeadgateError("the job of our mechanism ended before its time")
        time.sleep(0.02)


class PacedMessages(Source):
    """Subtask 0 emits `rate` batches of one row per second, and writes their times to a file."""

    schema = SCHEMA
    replayable = False

    def __init__(self, rate: float, folder: str) -> None:
        self._rate = rate
        self._folder = folder

    def reader(self, context: ReaderContext) -> SourceReader:
        return _PacedReader(self._rate, self._folder, context)


class _PacedReader(SourceReader):
    def __init__(self, rate: float, folder: str, context: ReaderContext) -> None:
        self._period = 1 / rate
        self._clock = context.clock
        self._is_idle = context.subtask > 0
        self._due = self._clock()
        self._batch = pa.record_batch([pa.array([0])], schema=SCHEMA)
        self._lines = _lines(folder, "emitted")

    def read(self) -> pa.RecordBatch | None:
        now = self._clock()
        if self._is_idle or now < self._due:
            return None
        self._due = max(self._due, now - SAVED) + self._period
        self._lines.write(f"{now * 1000:.3f}\n")
        return self._batch

    def next_read(self) -> float | None:
        return None if self._is_idle else self._due

    def position(self) -> None:
        """Return None: the source is not replayable."""


class SlowSink(Sink):
    """A sink that needs `cost` seconds for each batch, and writes to a file the time at which a batch is done."""

    def __init__(self, cost: float, folder: str) -> None:
        self._cost = cost
        self._folder = folder

    def writer(self, context: WriterContext) -> SinkWriter:
        return _SlowWriter(self._cost, self._folder, context)


class _SlowWriter(SinkWriter):
    def __init__(self, cost: float, folder: str, context: WriterContext) -> None:
        self._cost = cost
        self._context = context
        self._free_at = 0.0
        self._lines = _lines(folder, "done")

    def write(self, batch: pa.RecordBatch) -> None:
        now = self._context.clock()
        self._free_at = max(self._free_at, now - SAVED) + self._cost
        self._context.sleep(max(0.0, self._free_at - now))
        self._lines.write(f"{self._context.clock() * 1000:.3f}\n")

    def finish(self) -> None: ...


def _lines(folder: str, name: str) -> IO[str]:
    return Path(folder, name).open("a", buffering=1)


def report(
    runs: Mapping[str, list[tuple[Trace, Trace]]],
    costs: Mapping[str, Sequence[MechanismRun]] = MappingProxyType({}),
    *,
    quick: bool = False,
) -> Experiment:
    """Return the rates and the stops of each pair, and whether they are the same within 25 %; and our `costs`."""
    figures: list[Figure] = []
    misses: list[str] = []
    for name, rounds in runs.items():
        load = _load(PAIRS[name], quick)
        theirs, mine = (_measures([pair[side] for pair in rounds], load) for side in (0, 1))
        for quantity, unit in _UNITS.items():
            original, our = (name, theirs[quantity]), (f"ours beside {name}", mine[quantity])
            made, is_same = compared(quantity, unit, original, our, f"ratio: {name}")
            figures += made
            misses += [] if is_same else [f"{name}: {quantity}"]
    figures += figures_of({f"ours beside {name}": overhead(rounds) for name, rounds in costs.items()}, ())
    return Experiment(
        case="storm",
        target="rates, stops and times of ours are those of Storm, within 25 %"
        + "".join(f"; missed: {miss}" for miss in misses),
        met=not misses,
        figures=tuple(figures),
        settings={
            "messages/s offered": RATE,
            "seconds per message": COST,
            "seconds of a run": ", ".join(f"{_load(pair, quick).seconds:g}" for pair in PAIRS.values()),
            "timeout, update and poll of Storm 1.2, s": f"{_TIMEOUT}, {_UPDATE}, {_POLL}",
            "messages of an input queue": _QUEUE,
        },
        plots=tuple(_plot(name, rounds[-1]) for name, rounds in runs.items()),
    )


_UNITS: Final = {
    "messages processed": "messages/s",
    "share of the time in which the source is stopped": "",
    "stops": "per minute",
    "messages that wait when it stops": "",
    "messages that wait at most": "",
}


def _measures(traces: list[Trace], load: StopAndGoLoad) -> dict[str, list[float]]:
    stops = [trace.stops() for trace in traces]
    return {
        "messages processed": [trace.processed(0, load.seconds) for trace in traces],
        "share of the time in which the source is stopped": [trace.stopped_share(load.seconds) for trace in traces],
        "stops": [len(each) * 60 / load.seconds for each in stops],
        "messages that wait when it stops": [
            float(median(stop.waiting for stop in each)) if each else 0.0 for each in stops
        ],
        "messages that wait at most": [float(trace.most_waiting) for trace in traces],
    }


def _plot(name: str, last: tuple[Trace, Trace]) -> Plot:
    series = []
    for label, trace in zip((name, "ours"), last, strict=True):
        end = float(max(trace.emitted[-1], trace.done[-1]))
        times = [step * end / 600 for step in range(601)]
        series.append(Series(label, tuple(times), tuple(float(trace.waiting(at)) for at in times)))
    return Plot(title=f"{name}: messages that wait, last round", x="time, s", y="messages", series=tuple(series))
