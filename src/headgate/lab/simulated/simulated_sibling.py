"""`headgate lab sibling --simulate`: the same streams and mechanisms in virtual time. Each round has its own seed."""

from __future__ import annotations

from dataclasses import replace

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms import sibling
from headgate.lab.mechanisms.contestants import WITHOUT_SERVER
from headgate.lab.simulated.simulated_place import simulation


def run(options: Options) -> Experiment:
    """Simulate every mechanism in turn, round by round."""
    chosen = replace(options, mechanisms=options.mechanisms or WITHOUT_SERVER)
    return sibling.run(chosen, simulation)
