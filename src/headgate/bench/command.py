"""What the commands `bench` and `lab` have in common: their arguments, a table of a result, the JSON they write."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from headgate.bench.report import CaseResult


def parser(prog: str, description: str, what: str, names: Iterable[str]) -> argparse.ArgumentParser:
    """Arguments of a command that runs some `what`, all of `names` if none is named."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("names", nargs="*", metavar=what.upper(), help=f"one of {', '.join(names)}; none: all of them")
    parser.add_argument("--json", metavar="PATH", help="write the figures as JSON; - is stdout")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; no figures to keep")
    return parser


def chosen(parser: argparse.ArgumentParser, what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names given, or else all that are known; an unknown one is wrong usage and ends the program."""
    known, names = list(known), list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown {what} {unknown[0]!r}; {what}s: {', '.join(known)}")
    return names or known


def write_json(target: str | None, report: dict[str, Any]) -> None:
    """Write a report to a path, to standard output (`-`), or nowhere."""
    if target is None:
        return
    text = json.dumps(report, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)


def table(result: CaseResult) -> Table:
    """A result for the terminal: each figure's median and spread."""
    verdict = "[green]met[/]" if result.met else "[red]missed[/]"
    table = Table(title=f"{result.case}: {result.target}: {verdict}", title_justify="left")
    for heading in ("figure", "median", "low", "high", "unit"):
        table.add_column(heading, justify="left" if heading in ("figure", "unit") else "right")
    for figure in result.figures:
        values = (figure.median, min(figure.values), max(figure.values))
        table.add_row(figure.name, *map(number, values), figure.unit)
    for skipped in result.skipped:
        table.add_row(f"[red]{skipped.what}[/]", "skipped", "", "", skipped.reason)
    return table


def number(value: float) -> str:
    """Three significant digits, thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
