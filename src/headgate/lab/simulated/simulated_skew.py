"""`headgate lab skew --simulate`: the same keys and mechanisms in virtual time. Each round has its own seed."""

from __future__ import annotations

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms import skew
from headgate.lab.mechanisms.contest import simulated_ones
from headgate.lab.simulated.simulated_place import simulations


def run(options: Options) -> Experiment:
    """Simulate every mechanism in turn, round by round."""
    return skew.run(simulated_ones(options), simulations(options))
