"""`headgate lab waits --simulate`: the same loads in virtual time, with one factor after the other."""

from __future__ import annotations

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms import waits
from headgate.lab.simulated.simulated_place import simulations


def run(options: Options) -> Experiment:
    """Simulate the mechanisms that can be simulated, with each factor."""
    return waits.sweep(options, simulations(options))
