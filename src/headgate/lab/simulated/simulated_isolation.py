"""`headgate lab isolation --simulate`: the same streams, stall and targets in virtual time.

Each round has its own seed. Two parts need a real machine and are left out: Spark, and the stall that burns Python.
"""

from __future__ import annotations

from headgate.bench.case_options import Options
from headgate.lab import all_to_all, isolation
from headgate.lab.experiment import Experiment
from headgate.lab.places import MODES
from headgate.lab.simulated.simulated_place import simulation


def run(options: Options) -> Experiment:
    """Simulate every mode in turn, round by round."""
    times, rounds = isolation.plan(options)
    outcomes: dict[tuple[str, str], isolation.Rounds] = {}
    shared: dict[str, list[all_to_all.Standstill]] = {mode: [] for mode in MODES}
    for seed in range(rounds):
        place = simulation(options.seed + seed)
        for mode in MODES:
            options.say(f"isolation: seed {seed}, {mode}")
            outcome = outcomes.setdefault(("simulation", mode), isolation.Rounds())
            outcome.add(f"{mode}, simulation", isolation.one_round(place, mode, times), times)
            shared[mode].append(all_to_all.one_round(place, mode, times.before, times.stalled))
    return isolation.report(outcomes, None, shared, times, ())
