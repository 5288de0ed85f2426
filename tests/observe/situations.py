"""Situations: paced jobs of which one or two places become slow, and healthy jobs. A seed draws the sizes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headgate as hg
from tests.observe.cause_topologies import (
    committed,
    large,
    loaded,
    loaded_chain,
    one_split,
    scattered,
    seldom,
    throttled,
    to_driver,
    two_in_time,
    two_rooms,
    wide,
)
from tests.observe.faults import (
    Fault,
    OneSubtask,
    Slow,
    bursts,
    collects,
    computes,
    fails,
    falls_silent,
    lingers,
    litters,
    pauses,
    pours,
    stands,
    swells,
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
from tests.observe.surroundings import (
    Surroundings,
    far_processes,
    narrow_network,
    one_far_link,
    other_programs,
    quiet,
    small_quota,
)
from tests.observe.topologies import RATE, Place, chain, diamond, fork, line, narrow, skewed, union, windows
from tests.spark_session import SharedSpark

SPARK = SharedSpark()
Topology = Callable[[hg.StreamEnvironment, Place], None]
#: How the tasks of a job run.
DEPLOYMENTS = ("processes", "threads", "spark")


@dataclass(frozen=True)
class Trouble:
    """A fault at a place, and the causes that a diagnosis may give it. Without fault, what surrounds the job makes the
    place slow. A diagnosis may also name the exchange, if there is one."""

    place: str
    fault: Fault | None
    causes: tuple[str, ...]
    exchange: str = ""

    @property
    def is_in_one_subtask(self) -> bool:
        return isinstance(self.fault, OneSubtask) or "data_skew" in self.causes


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a situation runs if it is not as the others: what happens around the job, the only deployment in which that
    can happen, options, the seconds before the onset, and the seconds that a diagnosis has."""

    around: Callable[[], AbstractContextManager[Surroundings]] = quiet
    deployment: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    settle: float = 5.0
    allowed: float = 5.0


@dataclass(frozen=True)
class Situation:
    """Troubles of a topology; without causes, the job is healthy."""

    topology: Topology
    troubles: tuple[Trouble, ...]
    setting: Setting = Setting()

    @property
    def name(self) -> str:
        """For tables."""
        around = self.setting.around.__name__
        troubles = [f"{each.place} {each.fault.__name__}" for each in self.troubles if each.fault is not None]
        happens = ", ".join([*troubles, *([] if around == "quiet" else [around.replace("_", " ")])])
        return f"{self.topology.__name__}: {happens or 'nothing'}"

    @property
    def file(self) -> str:
        """The beginning of the name of its recordings."""
        return self.name.replace(":", "").replace(",", "").replace(" ", "-")

    @property
    def is_healthy(self) -> bool:
        return not any(trouble.causes for trouble in self.troubles)


def _one(
    topology: Topology, place: str, fault: Fault | None, *causes: str, exchange: str = "", **setting: Any
) -> Situation:
    return Situation(topology, (Trouble(place, fault, causes, exchange),), Setting(**setting))


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
#: TaskManagers that are threads, with a network between them.
_NETWORK: dict[str, Any] = {"deployment": "linked threads"}
#: The fault begins with the job, so that it is no burst.
_AT_ONCE: dict[str, Any] = {"settle": 0.0, "allowed": 10.0}
#: Causes that no slow function makes, and that the other sets do not have. No rule was changed for them.
CAUSES = (
    _one(loaded, "first", None, "machine_taken", around=other_programs),
    _one(loaded_chain, "first", None, "machine_taken", around=other_programs),
    _one(loaded, "first", None, "processor_quota", around=small_quota),
    _one(loaded_chain, "first", None, "processor_quota", around=small_quota),
    _one(
        two_rooms, "", None, "credit_round_trip", exchange="filled -> first", around=far_processes, **_NETWORK,
        options={"segment_size": 4096, "message_size": 4096, "floating_buffers_per_gate": 1},
    ),
    _one(wide, "", None, "network", exchange="filled -> first", around=narrow_network, **_NETWORK),
    _one(throttled, "numbers", pours, "throttle"),
    _one(one_split, "numbers", waits, "few_splits"),
    _one(to_driver, "out", waits, "slow_driver"),
    _one(committed, "out", lingers, "checkpoint"),
    _one(scattered, "numbers", pours, "nearly_empty_buffers", **_AT_ONCE, options={"buffer_timeout": 0}),
    _one(large, "opened", pours, "large_rows", exchange="opened -> first", **_AT_ONCE),
    _one(seldom, "first", swells, "burst", settle=14.0),
    _one(two_in_time, "others", falls_silent, "standing_watermark", allowed=14.0),
)  # fmt: skip
#: Causes that no situation has, and why.
WITHOUT = {
    "stolen_processor": "only the host of a virtual machine can take its processors",
    "serialisation": "which part of an exchange is slowest depends on the machine",
    "deserialisation": "as above",
    "no_buffers": "other channels of an idle consumer would have to keep all its buffers",
    "receiver_window": "a process would have to read slowly while its tasks are idle",
    "exchange": "it is what is left without evidence for another cause",
}
HEALTHY = (
    *(Situation(topology, ()) for topology in (line, chain, fork, union, windows, diamond)),
    _one(line, "numbers", bursts),
    _one(chain, "numbers", bursts),
    _one(line, "first", pauses),
    _one(fork, "other", pauses),
    _one(union, "first", collects),
    _one(line, "second", fails),
    Situation(two_rooms, (), Setting(around=one_far_link, **_NETWORK)),
)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a seed draws: how many times too slow a fault is, the network memory, the parallelism, whether there are
    checkpoints, and which subtask is slow or gets most rows, if it is only one."""

    overload: float
    network_memory: str
    parallelism: int
    has_checkpoints: bool
    subtask: int

    @property
    def seconds_per_row(self) -> float:
        """What a row costs at a slow place. A subtask gets RATE / parallelism rows a second (the hot one nine tenths of
        RATE): that is so many times too much."""
        return self.overload * self.parallelism / RATE


def drawn(situation: Situation, seed: int) -> Drawn:
    """Draw the sizes of a situation. The first seed has two subtasks and no checkpoints."""
    draw = random.Random(f"{situation.name} {seed}")
    overload, memory = draw.uniform(2, 5), f"{draw.choice([8, 16, 32])} MiB"
    parallelism = draw.choice([2, 2, 3, 4]) if seed else 2
    return Drawn(
        overload=overload,
        network_memory=memory,
        parallelism=parallelism,
        has_checkpoints=bool(seed) and draw.random() < 0.3,
        subtask=draw.randrange(parallelism),
    )


def start(situation: Situation, seed: int, folder: Path, deployment: str = "processes") -> hg.JobHandle:
    """Start the job of a situation. `mark_onset` then lets its faults begin."""
    sizes = drawn(situation, seed)
    faults = {trouble.place: trouble.fault for trouble in situation.troubles}
    options = {"network_memory": sizes.network_memory, **situation.setting.options}
    if sizes.has_checkpoints or not {fails, lingers}.isdisjoint(faults.values()):
        options |= _checkpoints(folder)
    env = _environment(deployment, parallelism=sizes.parallelism, config=hg.Config(**options))
    situation.topology(env, lambda name: Slow(folder, sizes.seconds_per_row, faults.get(name), sizes.subtask))
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
    if deployment == "linked threads":
        return hg.StreamEnvironment(deployment=hg.LocalDeployment(2, processes=False), **options)
    return hg.StreamEnvironment(**options)
