"""The place of a simulated experiment: two virtual TaskManagers of two slots each, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import headgate as hg
from headgate.bench.case_options import Options
from headgate.lab.places import PARALLELISM, TASKMANAGERS, Place
from headgate.simulation.costs import Costs
from headgate.simulation.simulated_environment import SimulatedEnvironment

#: Seconds for each row of the lab's source and sink. On the machine of docs/evidence/lab.md two sinks read 300 MB/s
#: together, in rows of 128 bytes.
COSTS: Final = Costs(rows={"flows": 0.4e-6, "probe": 0.8e-6})


def simulation(seed: int) -> Place:
    """Return the place whose jobs have this seed."""
    return partial(_environment, seed)


def simulations(options: Options) -> Callable[[int], Place]:
    """Return the place of each round, by the number of the round from 0."""
    return lambda number: simulation(options.seed + number)


def _environment(seed: int, options: dict[str, Any]) -> hg.StreamEnvironment:
    return SimulatedEnvironment(
        parallelism=PARALLELISM, taskmanagers=TASKMANAGERS, config=hg.Config(**options), seed=seed, costs=COSTS
    )
