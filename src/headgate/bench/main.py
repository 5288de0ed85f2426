"""`headgate bench [CASE...]`: run cases, show a table, write JSON.

Exit 1 when a target is missed or a peer could not run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headgate.bench.options import Options
from headgate.bench.report import CaseResult, run_description

#: Cases by name, in the order they run; each module has `run(options) -> CaseResult`.
CASES = {
    "exchange": "headgate.bench.exchange",
    "keyed-sum": "headgate.bench.keyed_sum",
    "latency": "headgate.bench.latency",
    "slow-sink": "headgate.bench.slow_sink",
}


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit code: 0 all targets met, 1 not so, 2 wrong usage (argparse exits)."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.cases if name not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; cases: {', '.join(CASES)}")
    console = Console(stderr=arguments.json == "-")
    options = Options(quick=arguments.quick, say=lambda text: console.print(f"[dim]{text}[/]", highlight=False))
    report = {"run": run_description(shlex.join(["headgate", "bench", *argv]))}
    results = []
    for name in arguments.cases or CASES:
        options.say(f"{name} ...")
        result = importlib.import_module(CASES[name]).run(options)
        console.print(_table(result))
        results.append(result)
    _write_json(arguments.json, {**report, "cases": [result.to_json() for result in results]})
    return 0 if all(result.passed for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate bench", description="Measure Headgate, beside its peers.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of {', '.join(CASES)}")
    parser.add_argument("--json", metavar="PATH", help="write the figures as JSON; - is stdout")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; no figures to keep")
    return parser


def _write_json(target: str | None, report: dict[str, Any]) -> None:
    if target is None:
        return
    text = json.dumps(report, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def _table(result: CaseResult) -> Table:
    verdict = "[green]met[/]" if result.met else "[red]missed[/]"
    table = Table(title=f"{result.case}: {result.target}: {verdict}", title_justify="left")
    for heading in ("figure", "median", "low", "high", "unit"):
        table.add_column(heading, justify="left" if heading in ("figure", "unit") else "right")
    for figure in result.figures:
        values = (figure.median, min(figure.values), max(figure.values))
        table.add_row(figure.name, *map(_number, values), figure.unit)
    for skipped in result.skipped:
        table.add_row(f"[red]{skipped.what}[/]", "skipped", "", "", skipped.reason)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
