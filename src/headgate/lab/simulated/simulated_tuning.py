"""`headgate lab tuning --simulate`: the same limits in virtual time. Each round has its own seed."""

from __future__ import annotations

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms import tuning
from headgate.lab.simulated.simulated_place import simulations


def run(options: Options) -> Experiment:
    """Simulate each mechanism with each limit in turn, round by round."""
    return tuning.run(options, simulations(options))
