"""`rows`: rows/s of Python functions on rows and of functions with state, per core, beside Bytewax and Spark.

A rate is rows by processor time. The rate of a job comes from a small and a large job: the difference of their rows,
divided by the difference of their times. The start-up, which both have, therefore does not count. Headgate and Bytewax
run in turn, task by task and round by round. Bytewax gets its rows as Python objects; Headgate makes them from columns,
and makes columns of the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.keyed_sum import Sizes
from headgate.bench.peers.bytewax import Bytewax
from headgate.bench.peers.spark_state import spark_rates
from headgate.bench.report import CaseResult, Figure, Skipped, ratios
from headgate.bench.rows_job import BATCH, KEYS, TASKS, RowTask, keys_per_row
from headgate.bench.state_writes import OTHERS, VALUES, other_cost, write_cost

#: The least rows/s of each operator alone, on one core; for `process`, the least keys/s.
TARGETS: Final = {
    "map": 500_000, "map without a time": 900_000, "flat_map": 500_000, "flat_map without a time": 900_000,
    "process_element": 400_000, "process": 100_000, "vectorised": 8_000_000,
    "vectorised, a million strings": 3_000_000,
}  # fmt: skip
#: The task whose operator alone must be as fast as Bytewax. Of the other tasks only the job is compared.
_AGAINST_BYTEWAX: Final = "process_element"
#: The most microseconds of a write to keyed state.
MOST_WRITE: Final = 1.5
_WRITES: Final = 100_000
ROUNDS: Final = 5
#: The seconds that a measured part should take.
_SECONDS: Final = 2.0
#: The rows of a batch of Bytewax.
BYTEWAX_BATCH: Final = 1000
_BYTEWAX_RATE: Final = 300_000
SPARK_ROWS: Final = 100_000
SPARK_BATCHES: Final = 5
PARALLELISM: Final = 2


@dataclass(slots=True)
class _Rates:
    """Rows/s of a task, round by round."""

    alone: list[float] = field(default_factory=list)
    job: list[float] = field(default_factory=list)
    bytewax: list[float] = field(default_factory=list)


def run(options: Options) -> CaseResult:
    """Measure Headgate and Bytewax in turn, then Spark. Without Bytewax, measure Headgate alone."""
    rates, skipped = {task.name: _Rates() for task in TASKS}, []
    try:
        with Bytewax(options.say) as bytewax:
            _rounds(rates, options, bytewax)
    except ChildFailed as error:
        skipped.append(Skipped("Bytewax", str(error)))
        rates = {task.name: _Rates() for task in TASKS}
        _rounds(rates, options, None)
    spark: list[float] = []
    try:
        options.say("rows: Spark transformWithStateInPandas")
        spark += spark_rates(SPARK_ROWS, 1 if options.quick else SPARK_BATCHES, PARALLELISM)
    except ChildFailed as error:
        skipped.append(Skipped("Spark transformWithStateInPandas", str(error)))
    figures = [figure for task in TASKS for figure in _figures(task.name, rates[task.name])]
    if spark:
        figures.append(Figure("Spark transformWithStateInPandas, two cores", "rows/s", tuple(spark)))
    share = keys_per_row()
    keys = Figure("process: operator alone, keys", "keys/s", tuple(rate * share for rate in rates["process"].alone))
    figures.append(keys)
    writes = _writes(options)
    medians = {name: median(each.alone) for name, each in rates.items()} | {"process": keys.median}
    met = all(medians[name] >= target for name, target in TARGETS.items()) and _keeps_up(rates[_AGAINST_BYTEWAX])
    met = met and all(figure.median <= MOST_WRITE for figure in writes)
    target = ", ".join(f"{name} {target / 1e6:g} M" for name, target in TARGETS.items())
    return CaseResult(
        case="rows", met=met, figures=(*figures, *writes),
        target=f"each operator alone at least: {target} rows/s; process: keys/s; {_AGAINST_BYTEWAX} alone at least "
               f"as fast as Bytewax's job; a write of each plain type, to a list or a map at most {MOST_WRITE:g} us",
        settings={"keys": KEYS, "rows of a batch": BATCH, "rows of a batch of Bytewax": BYTEWAX_BATCH},
        skipped=tuple(skipped),
    )  # fmt: skip


def _writes(options: Options) -> list[Figure]:
    """Return the cost of a write to keyed state: for each plain type, and for an element of a list and a map."""
    options.say("rows: writes to keyed state")
    rounds, writes = (range(1), _WRITES // 10) if options.quick else (range(ROUNDS), _WRITES)
    values = [Figure(f"write of {kind}", "us", tuple(write_cost(kind, writes) for _ in rounds)) for kind in VALUES]
    return values + [Figure(name, "us", tuple(other_cost(name, writes) for _ in rounds)) for name in OTHERS]


def _keeps_up(rates: _Rates) -> bool:
    """Return whether the operator alone is as fast as Bytewax's whole job, or Bytewax could not run."""
    return not rates.bytewax or median(ratios(rates.alone, rates.bytewax)) >= 1


def _rounds(rates: dict[str, _Rates], options: Options, bytewax: Bytewax | None) -> None:
    scale = 0.1 if options.quick else 1.0
    for number in range(1 if options.quick else ROUNDS):
        for task in TASKS:
            options.say(f"rows: round {number + 1}, {task.name}")
            _measure(rates[task.name], task, scale, bytewax)


def _measure(rates: _Rates, task: RowTask, scale: float, bytewax: Bytewax | None) -> None:
    ours = max(round(_SECONDS * scale * task.rate / BATCH), 1) * BATCH
    rates.alone.append(ours / task.alone(ours))
    rates.job.append(Sizes(ours // 10, ours).rate(task.in_a_job))
    if bytewax is not None and task.peer:
        theirs = round(_SECONDS * scale * _BYTEWAX_RATE / BYTEWAX_BATCH) * BYTEWAX_BATCH
        seconds = partial(bytewax.seconds, task.peer, timed=task.timed)
        rates.bytewax.append(Sizes(theirs // 10 // BYTEWAX_BATCH * BYTEWAX_BATCH, theirs).rate(seconds))


def _figures(name: str, rates: _Rates) -> list[Figure]:
    figures = [
        Figure(f"{name}: operator alone", "rows/s", tuple(rates.alone)),
        Figure(f"{name}: whole job", "rows/s", tuple(rates.job)),
    ]
    if rates.bytewax:
        figures += [
            Figure(f"{name}: Bytewax", "rows/s", tuple(rates.bytewax)),
            Figure(f"{name}: ratio of the job to Bytewax", "", ratios(rates.job, rates.bytewax)),
        ]
    if rates.bytewax and name == _AGAINST_BYTEWAX:
        alone = ratios(rates.alone, rates.bytewax)
        figures.append(Figure(f"{name}: ratio of the operator alone to Bytewax, at least 1", "", alone))
    return figures
