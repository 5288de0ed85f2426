"""`headgate bench [CASE...]`: run cases, show a table, write JSON.

Exit 1 when a target is missed or a peer could not run.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence

from rich.console import Console

from headgate.bench.command import chosen, parser, table, write_json
from headgate.bench.options import Options
from headgate.bench.report import run_description

#: Cases by name, in the order they run; each module has `run(options) -> CaseResult`.
CASES = {
    "checkpoint": "headgate.bench.checkpoint",
    "exchange": "headgate.bench.exchange",
    "keyed-sum": "headgate.bench.keyed_sum",
    "keys": "headgate.bench.keys",
    "latency": "headgate.bench.latency",
    "latency-adaptive": "headgate.bench.latency_adaptive",
    "slow-sink": "headgate.bench.slow_sink",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0 all targets met, 1 not so, 2 wrong usage (argparse exits)."""
    arguments_of = parser("headgate bench", "Measure Headgate, beside its peers.", "case", CASES)
    arguments = arguments_of.parse_args(argv)
    names = chosen(arguments_of, "case", arguments.names, CASES)
    console = Console(stderr=arguments.json == "-")
    options = Options(quick=arguments.quick, say=lambda text: console.print(f"[dim]{text}[/]", highlight=False))
    report = {"run": run_description(shlex.join(["headgate", "bench", *argv]))}
    options.say(f"package: {report['run']['package']}")
    results = []
    for name in names:
        options.say(f"{name} ...")
        result = importlib.import_module(CASES[name]).run(options)
        console.print(table(result))
        results.append(result)
    write_json(arguments.json, {**report, "cases": [result.to_json() for result in results]})
    return 0 if all(result.passed for result in results) else 1
