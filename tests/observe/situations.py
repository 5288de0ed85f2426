"""Situations: paced jobs of which one or two places become slow, and healthy jobs. A seed draws the sizes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headgate as hg
from tests.observe.faults import (
    Fault,
    OneSubtask,
    Slow,
    bursts,
    collects,
    computes,
    fails,
    litters,
    pauses,
    stands,
    waits,
    writes,
)
from tests.observe.other_topologies import (
    by_row,
    deep,
    joined,
    keyed,
    long_chain,
    looked_up,
    sessions,
    three_sources,
    to_all,
    to_one,
    two_windows,
)
from tests.observe.topologies import RATE, Place, chain, diamond, fork, line, narrow, skewed, union, windows
from tests.spark_session import SharedSpark

SPARK = SharedSpark()
Topology = Callable[[hg.StreamEnvironment, Place], None]
#: How the tasks of a job run.
DEPLOYMENTS = ("processes", "threads", "spark")


@dataclass(frozen=True)
class Trouble:
    """A fault at a place, and the causes that a diagnosis may give it."""

    place: str
    fault: Fault
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Situation:
    """Troubles of a topology; without causes, the job is healthy."""

    topology: Topology
    troubles: tuple[Trouble, ...]

    @property
    def name(self) -> str:
        """For tables."""
        troubles = ", ".join(f"{each.place} {each.fault.__name__}" for each in self.troubles)
        return f"{self.topology.__name__}: {troubles or 'nothing'}"

    @property
    def file(self) -> str:
        """The beginning of the name of its recordings."""
        return self.name.replace(":", "").replace(",", "").replace(" ", "-")

    @property
    def is_healthy(self) -> bool:
        return not any(trouble.causes for trouble in self.troubles)


def _one(topology: Topology, place: str, fault: Fault, *causes: str) -> Situation:
    return Situation(topology, (Trouble(place, fault, causes),))


#: A function that computes may use up both processors or the interpreter lock, so those causes are right, too.
_WORKS = ("slow_function", "out_of_cpu", "interpreter_lock")
_SINK_WORKS = ("slow_sink", "out_of_cpu", "interpreter_lock")
#: The situations that were run while the rules were written.
TUNING = (
    _one(line, "first", waits, "waiting_function"),
    _one(line, "second", waits, "waiting_function"),
    _one(line, "out", waits, "slow_sink"),
    _one(line, "numbers", waits, "slow_source"),
    _one(line, "first", computes, *_WORKS),
    _one(line, "second", computes, *_WORKS),
    _one(line, "out", computes, *_SINK_WORKS),
    _one(line, "first", litters, "garbage_collection"),
    _one(line, "second", writes, "disk"),
    _one(line, "first", OneSubtask(waits), "slow_instance"),
    _one(line, "second", OneSubtask(computes), "slow_instance"),
    _one(line, "second", stands, "waiting_function"),
    _one(chain, "first", waits, "waiting_function"),
    _one(chain, "first", computes, *_WORKS),
    _one(chain, "numbers", waits, "slow_source"),
    _one(chain, "out", waits, "slow_sink"),
    _one(chain, "first", litters, "garbage_collection"),
    _one(chain, "first", writes, "disk"),
    _one(fork, "first", waits, "waiting_function"),
    _one(fork, "second", computes, *_WORKS),
    _one(fork, "other", waits, "slow_sink"),
    _one(fork, "other", writes, "disk"),
    _one(fork, "numbers", waits, "slow_source"),
    _one(union, "first", waits, "waiting_function"),
    _one(union, "others", waits, "slow_source"),
    _one(union, "out", waits, "slow_sink"),
    _one(skewed, "first", waits, "data_skew"),
    _one(skewed, "first", computes, "data_skew"),
)
#: Other topologies, and two places at once: never run before the thresholds were frozen.
UNSEEN = (
    _one(diamond, "left", waits, "waiting_function"),
    _one(diamond, "both", computes, *_WORKS),
    _one(diamond, "right", OneSubtask(waits), "slow_instance"),
    _one(diamond, "out", waits, "slow_sink"),
    _one(narrow, "late", waits, "waiting_function"),
    _one(narrow, "early", computes, *_WORKS),
    _one(narrow, "last", stands, "waiting_function"),
    _one(narrow, "numbers", waits, "slow_source"),
    _one(narrow, "late", writes, "disk"),
    _one(diamond, "right", OneSubtask(writes), "disk"),
    _one(windows, "first", waits, "waiting_function"),
    Situation(fork, (Trouble("first", waits, ("waiting_function",)), Trouble("other", waits, ("slow_sink",)))),
    Situation(fork, (Trouble("out", waits, ("slow_sink",)), Trouble("second", computes, _WORKS))),
    Situation(union, (Trouble("numbers", waits, ("slow_source",)), Trouble("others", waits, ("slow_source",)))),
)
#: Pipelines of kinds that neither set has. No rule was changed for them.
OTHERS = (
    _one(joined, "left", waits, "waiting_function"),
    _one(joined, "right", computes, *_WORKS),
    _one(joined, "others", waits, "slow_source"),
    _one(joined, "after", waits, "waiting_function"),
    _one(joined, "out", waits, "slow_sink"),
    _one(sessions, "first", waits, "waiting_function"),
    _one(looked_up, "names", waits, "slow_lookup"),
    _one(looked_up, "out", computes, *_SINK_WORKS),
    _one(keyed, "counts", waits, "waiting_function"),
    _one(keyed, "counts", computes, *_WORKS),
    _one(by_row, "first", waits, "waiting_function"),
    _one(by_row, "first", computes, *_WORKS),
    _one(deep, "step1", waits, "waiting_function"),
    _one(deep, "step3", OneSubtask(waits), "slow_instance"),
    _one(deep, "step5", computes, *_WORKS),
    _one(to_all, "first", waits, "waiting_function"),
    _one(to_all, "first", OneSubtask(waits), "slow_instance"),
    _one(long_chain, "one", waits, "waiting_function"),
    _one(long_chain, "two", computes, *_WORKS),
    _one(long_chain, "three", OneSubtask(waits), "slow_instance"),
    _one(three_sources, "two", waits, "slow_source"),
    _one(three_sources, "first", OneSubtask(computes), "slow_instance"),
    _one(to_one, "last", waits, "waiting_function"),
    _one(to_one, "out", computes, *_SINK_WORKS),
    _one(two_windows, "numbers", waits, "slow_source"),
    Situation(joined, (Trouble("numbers", waits, ("slow_source",)), Trouble("others", waits, ("slow_source",)))),
    *(
        Situation(topology, ())
        for topology in (joined, sessions, looked_up, keyed, by_row, to_all, three_sources, to_one, two_windows)
    ),
)
HEALTHY = (
    *(Situation(topology, ()) for topology in (line, chain, fork, union, windows, diamond)),
    _one(line, "numbers", bursts),
    _one(chain, "numbers", bursts),
    _one(line, "first", pauses),
    _one(fork, "other", pauses),
    _one(union, "first", collects),
    _one(line, "second", fails),
)


def start(situation: Situation, seed: int, folder: Path, deployment: str = "processes") -> hg.JobHandle:
    """Start the job of a situation. `mark_onset` then lets its faults begin.

    The seed draws how many times too slow a fault is, the network memory, and, for all but the first seed, the
    parallelism and whether there are checkpoints.
    """
    draw = random.Random(f"{situation.name} {seed}")
    overload, memory = draw.uniform(2, 5), f"{draw.choice([8, 16, 32])} MiB"
    parallelism = draw.choice([2, 2, 3, 4]) if seed else 2
    has_checkpoints = (seed and draw.random() < 0.3) or any(each.fault is fails for each in situation.troubles)
    config = hg.Config(network_memory=memory, **(_checkpoints(folder) if has_checkpoints else {}))
    env = _environment(deployment, parallelism=parallelism, config=config)
    faults = {trouble.place: trouble.fault for trouble in situation.troubles}
    # A subtask gets RATE / parallelism rows a second (the hot one nine tenths of RATE): so many times too many.
    seconds = overload * parallelism / RATE
    situation.topology(env, lambda name: Slow(folder, seconds, faults.get(name)))
    return env.execute_async("matrix")


def _checkpoints(folder: Path) -> dict[str, Any]:
    """Return the options of a job with a checkpoint each second, which restarts at once."""
    restart = hg.restart.fixed(3, delay="100 ms")
    return {"checkpoint_dir": str(folder / "checkpoints"), "checkpoint_interval": "1 s", "restart": restart}


def _environment(deployment: str, **options: Any) -> hg.StreamEnvironment:
    if deployment == "spark":
        return hg.StreamEnvironment(SPARK.on("local[8]"), **options)
    if deployment == "threads":
        return hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False), **options)
    return hg.StreamEnvironment(**options)
