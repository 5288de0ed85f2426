"""`headgate lab reach --simulate`: the same paths and targets in virtual time; each round has its own seed."""

from __future__ import annotations

from headgate.bench.case_options import Options
from headgate.lab import reach
from headgate.lab.experiment import Experiment
from headgate.lab.simulated.simulated_place import simulations


def run(options: Options) -> Experiment:
    """Simulate every mode on both paths in turn, round by round."""
    return reach.report(reach.measure(options, simulations(options)))
