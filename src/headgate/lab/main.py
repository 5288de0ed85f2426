"""`headgate lab [EXPERIMENT...]`: run experiments on the real runtime; a table, JSON, plots and a page of results.

Exit 1 when a proof misses its number or a part of it could not run.
"""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from headgate.bench.command import chosen, parser, table, write_json
from headgate.bench.options import Options
from headgate.bench.report import run_description
from headgate.lab.page import page
from headgate.lab.plots import draw
from headgate.lab.report import Experiment

#: Experiments by name, in the order they run; each module has `run(options) -> Experiment`.
EXPERIMENTS = {
    "cost": "headgate.lab.cost",
    "isolation": "headgate.lab.isolation",
    "barrier": "headgate.lab.barrier",
    "checkpoint": "headgate.lab.checkpoint",
    "reach": "headgate.lab.reach",
    "sizing": "headgate.lab.sizing",
    "buffer-timeout": "headgate.lab.buffer_timeout",
}

_FOLDER = Path("headgate-lab")


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0 all proofs met, 1 not so, 2 wrong usage (argparse exits)."""
    arguments_of = parser("headgate lab", "Show what the exchange claims to do.", "experiment", EXPERIMENTS)
    folder_help = f"folder for JSON, plots and the page of results, {_FOLDER} by default"
    arguments_of.add_argument("--out", metavar="DIR", type=Path, default=_FOLDER, help=folder_help)
    arguments = arguments_of.parse_args(argv)
    names = chosen(arguments_of, "experiment", arguments.names, EXPERIMENTS)
    console = Console(stderr=arguments.json == "-")
    options = Options(quick=arguments.quick, say=lambda text: console.print(f"[dim]{text}[/]", highlight=False))
    run = run_description(shlex.join(["headgate", "lab", *argv]))
    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Experiment] = []
    plotted: dict[str, str] = {}
    for name in names:
        options.say(f"{name} ...")
        result: Experiment = importlib.import_module(EXPERIMENTS[name]).run(options)
        results.append(result)
        console.print(table(result))
        (folder / f"{name}.json").write_text(json.dumps({"run": run, **result.to_json()}, indent=2) + "\n")
        if result.plots and draw(result.plots, folder / f"{name}.svg"):
            plotted[name] = f"{name}.svg"
        elif result.plots:
            options.say(f"{name}: no plot, matplotlib is not installed; it comes with pip install 'headgate[lab]'")
        (folder / "index.html").write_text(page(run, results, plotted))
    options.say(f"results: {folder / 'index.html'}")
    write_json(arguments.json, {"run": run, "experiments": [result.to_json() for result in results]})
    return 0 if all(result.passed for result in results) else 1
