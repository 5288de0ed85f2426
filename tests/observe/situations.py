"""Jobs that run well until one place becomes slow: the place, the fault and the sizes are drawn by a seed.

The sources are paced, so a job keeps up before the onset. A fault costs time for each row, so that larger batches do
not make up for it. A file marks the onset, since the functions run in other processes.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import headgate as hg

SCHEMA = pa.schema({"k": pa.int64(), "n": pa.int64()})
#: Rows a second of each source.
RATE = 2000
#: A function on a batch of so many rows: `fault(folder, seconds a row, rows)`.
Fault = Callable[[Path, float, int], None]


def mark_onset(folder: Path) -> None:
    """Let the fault begin."""
    (folder / "onset").touch()


def has_begun(folder: Path) -> bool:
    return (folder / "onset").exists()


# --- faults


def waits(_folder: Path, seconds: float, rows: int) -> None:
    """Something outside answers slowly."""
    threading.Event().wait(seconds * rows)


def computes(_folder: Path, seconds: float, rows: int) -> None:
    """The function needs a processor for long."""
    until = time.thread_time() + seconds * rows
    while time.thread_time() < until:
        pass


def litters(_folder: Path, seconds: float, rows: int) -> None:
    """The function makes objects in circles, and the collector runs all the time."""
    until = time.perf_counter() + seconds * rows
    while time.perf_counter() < until:
        gc.collect()


def writes(_folder: Path, seconds: float, rows: int) -> None:
    """The function waits for a disk."""
    until = time.perf_counter() + seconds * rows
    with tempfile.TemporaryFile() as file:
        while time.perf_counter() < until:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())


def stands(_folder: Path, _seconds: float, _rows: int) -> None:
    """The function does not return for a minute."""
    threading.Event().wait(60)


def once(fault: Fault, folder: Path, seconds: float, rows: int) -> None:
    """Only the process that comes first is slow: one subtask."""
    with suppress(FileExistsError):
        os.close(os.open(folder / "slow", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        (folder / "pid").write_text(str(os.getpid()))
    with suppress(FileNotFoundError):
        if (folder / "pid").read_text() == str(os.getpid()):
            fault(folder, seconds, rows)


@dataclass(frozen=True)
class Slow:
    """A function of a job, which has the fault from the onset. A place without fault hands its rows on."""

    folder: Path
    seconds: float
    fault: Fault | None

    def __call__(self, batch: pa.RecordBatch, _info: object = None) -> pa.RecordBatch:
        if self.fault is not None and has_begun(self.folder):
            self.fault(self.folder, self.seconds, batch.num_rows)
        return batch


# --- topologies: each takes the function at a place


Place = Callable[[str], Slow]


def source(env: hg.StreamEnvironment, name: str, slow: Slow) -> hg.DataStream:
    def rows(start: int, count: int) -> pa.RecordBatch:
        numbers = np.arange(start, start + count)
        return slow(pa.record_batch([pa.array(numbers % 97), pa.array(numbers)], schema=SCHEMA))

    generated = hg.sources.generate(rows, rate=RATE, schema=SCHEMA, batch_rows=50)
    return env.from_source(generated).name(name)


def line(env: hg.StreamEnvironment, place: Place) -> None:
    """A source, two functions, sums and a sink, with an exchange before each but the sink."""
    rows = source(env, "numbers", place("numbers")).rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows = rows.rebalance().map_batches(place("second"), schema=SCHEMA).name("second")
    sums = rows.key_by("n").aggregate(k=hg.sum("k")).name("sums")
    sums.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def chain(env: hg.StreamEnvironment, place: Place) -> None:
    """A function in the chain of its source, then sums and a sink."""
    rows = source(env, "numbers", place("numbers")).map_batches(place("first"), schema=SCHEMA).name("first")
    sums = rows.key_by("n").aggregate(k=hg.sum("k")).name("sums")
    sums.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def fork(env: hg.StreamEnvironment, place: Place) -> None:
    """A source that two branches read, each with a sink of its own."""
    rows = source(env, "numbers", place("numbers"))
    for name, out in (("first", "out"), ("second", "other")):
        branch = rows.rebalance().map_batches(place(name), schema=SCHEMA).name(name)
        branch.sink_to(hg.sinks.for_each_batch(place(out))).name(out)


def union(env: hg.StreamEnvironment, place: Place) -> None:
    """Two sources of one stream, a function, sums and a sink."""
    rows = source(env, "numbers", place("numbers")).union(source(env, "others", place("others")))
    rows = rows.rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows.key_by("n").aggregate(k=hg.sum("k")).name("sums").sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def skewed(env: hg.StreamEnvironment, place: Place) -> None:
    """A function behind an exchange that sends nine rows of ten to one subtask."""
    hot = env.parallelism - 1

    def to_one(batch: pa.RecordBatch, subtasks: int) -> pa.Array:
        return pa.array(np.where(batch["n"].to_numpy() % 10 == 0, 0, hot % subtasks))

    rows = source(env, "numbers", place("numbers")).partition_by(to_one)
    rows.map_batches(place("first"), schema=SCHEMA).name("first").sink_to(hg.sinks.null()).name("out")


# --- the matrix


@dataclass(frozen=True)
class Situation:
    """A fault at a place of a topology, and the causes that a diagnosis may give. Without place nothing is slow."""

    topology: Callable[[hg.StreamEnvironment, Place], None]
    place: str
    fault: Fault
    causes: tuple[str, ...]

    @property
    def name(self) -> str:
        """For tables."""
        fault = self.fault
        word = f"{fault.args[0].__name__} in one subtask" if isinstance(fault, partial) else fault.__name__
        return f"{self.topology.__name__}: {self.place or 'nothing'} {word if self.place else ''}".strip()

    @property
    def file(self) -> str:
        """The beginning of the name of its recordings."""
        return self.name.replace(":", "").replace(" ", "-")


#: A function that computes may use up both processors, so it may be called that, too.
_WORKS = ("slow_function", "out_of_cpu")
#: The machine's disk may be so fast that no pressure shows.
_DISK = ("disk", "waiting_function", "slow_function")
MATRIX = (
    Situation(line, "first", waits, ("waiting_function",)),
    Situation(line, "second", waits, ("waiting_function",)),
    Situation(line, "out", waits, ("slow_sink",)),
    Situation(line, "numbers", waits, ("slow_source",)),
    Situation(line, "first", computes, _WORKS),
    Situation(line, "second", computes, _WORKS),
    Situation(line, "out", computes, ("slow_sink", "out_of_cpu")),
    Situation(line, "first", litters, ("garbage_collection",)),
    Situation(line, "second", writes, _DISK),
    Situation(line, "first", partial(once, waits), ("slow_instance",)),
    Situation(line, "second", partial(once, computes), ("slow_instance",)),
    Situation(line, "second", stands, ("waiting_function",)),
    Situation(chain, "first", waits, ("waiting_function",)),
    Situation(chain, "first", computes, _WORKS),
    Situation(chain, "numbers", waits, ("slow_source",)),
    Situation(chain, "out", waits, ("slow_sink",)),
    Situation(chain, "first", litters, ("garbage_collection",)),
    Situation(fork, "first", waits, ("waiting_function",)),
    Situation(fork, "second", computes, _WORKS),
    Situation(fork, "other", waits, ("slow_sink",)),
    Situation(fork, "numbers", waits, ("slow_source",)),
    Situation(union, "first", waits, ("waiting_function",)),
    Situation(union, "others", waits, ("slow_source",)),
    Situation(union, "out", waits, ("slow_sink",)),
    Situation(skewed, "first", waits, ("data_skew",)),
    Situation(skewed, "first", computes, ("data_skew",)),
)
HEALTHY = tuple(Situation(topology, "", waits, ()) for topology in (line, chain, fork, union))


def start(situation: Situation, seed: int, folder: Path) -> hg.JobHandle:
    """Start the job of a situation. `mark_onset` then lets its fault begin."""
    draw = random.Random(f"{situation.name} {seed}")
    parallelism = 2
    # A subtask gets RATE / parallelism rows a second (the hot one nine tenths of RATE): so many times too many.
    overload = draw.uniform(2, 5)
    seconds = overload * parallelism / RATE

    def place(name: str) -> Slow:
        return Slow(folder, seconds, situation.fault if name == situation.place else None)

    config = hg.Config(network_memory=f"{draw.choice([8, 16, 32])} MiB")
    env = hg.StreamEnvironment(parallelism=parallelism, config=config)
    situation.topology(env, place)
    return env.execute_async("matrix")
