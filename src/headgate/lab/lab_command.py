"""`headgate lab [EXPERIMENT...]`: run experiments on the real runtime. Show a table; write JSON, plots and a page.

Exit with code 1 when an experiment misses its target, or when a part of it could not run.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headgate.bench.command import chosen, options, outcome, parser, table
from headgate.bench.report import run_description
from headgate.json_option import write_json
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms import contestants
from headgate.lab.mechanisms.contestants import CONTESTANTS
from headgate.lab.page import page
from headgate.lab.places import warm_up
from headgate.lab.plots import draw
from headgate.terminal import PlainConsole
from headgate.web.job_pages import pages

#: Experiments by name, in the order in which they run. Each module has `run(options) -> Experiment`.
EXPERIMENTS = {
    "cost": "headgate.lab.cost",
    "isolation": "headgate.lab.isolation",
    "sibling": "headgate.lab.mechanisms.sibling",
    "burst": "headgate.lab.mechanisms.burst",
    "slow-sink": "headgate.lab.mechanisms.slowed_sink",
    "skew": "headgate.lab.mechanisms.skew",
    "scale": "headgate.lab.simulated.scale",
    "faults": "headgate.lab.faults.lost_signals",
    "tuning": "headgate.lab.mechanisms.tuning",
    "waits": "headgate.lab.mechanisms.waits",
    "spark-streaming": "headgate.lab.spark_controller",
    "storm": "headgate.lab.storm_originals",
    "barrier": "headgate.lab.barrier",
    "checkpoint": "headgate.lab.checkpoint_delay",
    "reach": "headgate.lab.reach",
    "sizing": "headgate.lab.sizing",
    "buffer-timeout": "headgate.lab.buffer_timeout",
}
#: Experiments that can be simulated, in the same form.
SIMULATED = {
    "isolation": "headgate.lab.simulated.simulated_isolation",
    "sibling": "headgate.lab.simulated.simulated_sibling",
    "burst": "headgate.lab.simulated.simulated_burst",
    "slow-sink": "headgate.lab.simulated.simulated_slowed_sink",
    "skew": "headgate.lab.simulated.simulated_skew",
    "scale": "headgate.lab.simulated.scale",
    "tuning": "headgate.lab.simulated.simulated_tuning",
    "waits": "headgate.lab.simulated.simulated_waits",
    "reach": "headgate.lab.simulated.simulated_reach",
}
#: Experiments that compare mechanisms.
COMPARED = ("sibling", "burst", "slow-sink", "skew", "scale")
ABOUT = {
    "cost": "what credit costs compared with plain TCP, on one channel",
    "isolation": "whether a stalled consumer holds back others of its connection; on Spark too",
    "sibling": "the same for all mechanisms: whether an independent stream keeps its rate while another one stalls",
    "burst": "what mechanisms do when the load is above what the sink takes for a time",
    "slow-sink": "what mechanisms lose and double while a sink is slow",
    "skew": "what mechanisms do to the rows of all other keys when one key is hot",
    "scale": "how far one stalled subtask reaches among up to 10,000; always in virtual time",
    "faults": "what mechanisms do when one of their signals, ZooKeeper or the coordinator is lost",
    "tuning": "what limits that are too small or too large cost, with mechanisms that have a limit",
    "waits": "whether the longest waits of three mechanisms last as long as documented, with nothing divided",
    "spark-streaming": "whether SparkPid settles where Spark Streaming's own controller does",
    "storm": "whether StormZooKeeper and StormStatus stop and start a source as Storm itself does",
    "barrier": "how long barriers take to a slow consumer, and to one whose connection has a stalled consumer too",
    "checkpoint": "how long checkpoints take under back-pressure, aligned and unaligned",
    "reach": "how soon a stalled sink stops its source, and how many bytes are in flight then",
    "sizing": "how many buffers keep a network of known rate and delay busy",
    "buffer-timeout": "latency and throughput of flush timeouts, on 1 to 1,000 channels",
}
#: How many runs of mechanisms are made at the same time with --quick. A run mostly waits: its load is 20,000 rows/s.
_AT_ONCE = 4
#: Experiments that make their runs so. In `scale`, there are as many simulations at the same time as cores.
_SIDE_BY_SIDE = ("sibling", "burst", "slow-sink", "skew", "faults", "tuning", "waits")
_DESCRIPTION = (
    "Run experiments on the exchange: credit against plain TCP and other mechanisms, barriers, buffers. All "
    f"experiments take about two hours; docs/evidence/lab.md says more. With --quick, {_AT_ONCE} runs of "
    f"{', '.join(_SIDE_BY_SIDE)} are made at the same time, so that they share the cores. "
    "What misses an expectation then runs again, alone."
)

_FOLDER = Path("headgate-lab")


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code: 0 if all targets are met, otherwise 1. Wrong usage exits with 2."""
    argument_parser = parser("headgate lab", _DESCRIPTION, "experiment", ABOUT)
    folder_help = f"folder for JSON, plots and the page of results, {_FOLDER} by default"
    argument_parser.add_argument("--out", metavar="DIR", type=Path, default=_FOLDER, help=folder_help)
    simulate_help = f"run in virtual time, without processes and sockets; only {', '.join(SIMULATED)}"
    argument_parser.add_argument("--simulate", action="store_true", help=simulate_help)
    mechanisms_help = f"mechanisms to compare in {', '.join(COMPARED)}, with commas: {','.join(CONTESTANTS)}"
    argument_parser.add_argument("--mechanisms", metavar="NAMES", default="", help=mechanisms_help)
    seed_help = "seed of the first round, 0 by default; each further round has the next one; only with --simulate"
    argument_parser.add_argument("--seed", metavar="NUMBER", type=int, help=seed_help)
    arguments = argument_parser.parse_args(argv)
    if arguments.seed is not None and not arguments.simulate:
        argument_parser.error("argument --seed needs --simulate: the load of real runs has no random numbers")
    experiments = SIMULATED if arguments.simulate else EXPERIMENTS
    names = chosen(argument_parser, "experiment", arguments.names, experiments)
    mechanisms = _mechanisms(argument_parser, arguments.mechanisms, names)
    if arguments.simulate and (real := [name for name in mechanisms if name not in contestants.SIMULATED]):
        argument_parser.error(
            f"argument --mechanisms: {real[0]} cannot be simulated, only {', '.join(contestants.SIMULATED)}"
        )
    console = PlainConsole(stderr=arguments.json == "-")
    at_once = _AT_ONCE if arguments.quick and not arguments.simulate else 1
    case_options = replace(
        options(console, arguments.quick), mechanisms=mechanisms, seed=arguments.seed or 0, at_once=at_once
    )
    run = run_description(shlex.join(["headgate", "lab", *argv]))
    if arguments.simulate:
        run["seed"] = case_options.seed
    folder: Path = arguments.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        argument_parser.error(f"argument --out: {error}")
    if not os.access(folder, os.W_OK):
        argument_parser.error(f"argument --out: {str(folder)!r} cannot be written")
    results: list[Experiment] = []
    plotted: dict[str, str] = {}
    if not arguments.simulate and (address := pages.show_report(page(run, [], {}, names))):
        pages.serve()
        case_options.say(f"until the command ends, the report is at {address} too, beside the pages of the jobs")
    for name in names:
        case_options.say(f"{name} ...")
        if name in _SIDE_BY_SIDE and not arguments.simulate:
            warm_up()
        result = outcome(name, experiments[name], Experiment, case_options)
        results.append(result)
        console.print(table(result))
        for finding in result.findings:
            console.print(finding, style="dim", markup=False)
        write_json(f"{folder}/{name}.json", {"run": run, **result.to_json()})
        if result.plots and draw(result.plots, folder / f"{name}.svg"):
            plotted[name] = (folder / f"{name}.svg").read_text()
        elif result.plots:
            case_options.say(f"{name}: no plot, matplotlib is not installed; it comes with pip install 'headgate[lab]'")
        report = page(run, results, plotted, names[len(results) :])
        (folder / "index.html").write_text(report)
        if not arguments.simulate:
            pages.show_report(report)
    case_options.say(f"results: {folder / 'index.html'}")
    write_json(arguments.json, {"run": run, "experiments": [result.to_json() for result in results]})
    return 0 if all(result.passed for result in results) else 1


def _mechanisms(parser: argparse.ArgumentParser, given: str, experiments: Sequence[str]) -> tuple[str, ...]:
    """Return the given mechanisms. An unknown one, or an experiment that compares none, ends the program."""
    mechanisms = tuple(given.split(",")) if given else ()
    if unknown := [name for name in mechanisms if name not in CONTESTANTS]:
        parser.error(f"argument --mechanisms: unknown {unknown[0]!r}; mechanisms: {', '.join(CONTESTANTS)}")
    if mechanisms and (others := [name for name in experiments if name not in COMPARED]):
        parser.error(f"argument --mechanisms has no effect on {others[0]}; name {' or '.join(COMPARED)}")
    return mechanisms
