"""What the commands `bench` and `lab` have in common: their arguments, how one of them runs, a table of its result."""

from __future__ import annotations

import argparse
import importlib
import traceback
from collections.abc import Iterable, Mapping
from typing import TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.bench.case_options import Options
from headgate.bench.report import CaseResult, Skipped
from headgate.errors import HeadgateError, printable
from headgate.json_option import add_json_option

#: What comes with the extra `bench`.
_EXTRA = {"hdrh", "psutil"}

Result = TypeVar("Result", bound=CaseResult)


def parser(prog: str, description: str, what: str, about: Mapping[str, str]) -> argparse.ArgumentParser:
    """Arguments of a command that runs some `what`, all of them if none is named; `about` says of each what it does."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog="\n".join([f"{what}s:", *(f"  {name:18}{text}" for name, text in about.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar=what.upper(), help=f"which {what}s, see below; none: all of them")
    add_json_option(parser)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; no figures to keep")
    return parser


def chosen(parser: argparse.ArgumentParser, what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names given, or else all that are known; an unknown one is wrong usage and ends the program."""
    known, names = list(known), list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown {what} {unknown[0]!r}; {what}s: {', '.join(known)}")
    return names or known


def options(console: Console, quick: bool) -> Options:
    """What to tell a case: it speaks to `console`, as plain text."""
    return Options(quick, lambda text: console.print(text, style="dim"))


def outcome(name: str, module: str, kind: type[Result], options: Options) -> Result:
    """What the module's `run` gives. One that fails has a result too, so that what others measured is not lost."""
    try:
        result: Result = importlib.import_module(module).run(options)
        return result
    except HeadgateError as error:
        reason = f"{type(error).__name__}: {error}"
    except ModuleNotFoundError as error:
        reason = str(error)
        if (error.name or "").partition(".")[0] in _EXTRA:
            reason = f"{reason}; it comes with pip install 'headgate[bench]'"
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
    return kind(case=name, target="to be measured", met=False, figures=(), skipped=(Skipped(name, reason),))


def table(result: CaseResult) -> Table:
    """A result for the terminal: each figure's median and spread."""
    verdict = ("met", "green") if result.met else ("missed", "red")
    title = Text.assemble(printable(f"{result.case}: {result.target}: "), verdict)
    table = Table(title=title, title_justify="left")
    for heading in ("figure", "median", "low", "high", "unit"):
        table.add_column(heading, justify="left" if heading in ("figure", "unit") else "right")
    for figure in result.figures:
        values = (figure.median, min(figure.values), max(figure.values))
        table.add_row(figure.name, *map(number, values), figure.unit)
    for skipped in result.skipped:
        table.add_row(Text(printable(skipped.what), "red"), "skipped", "", "", skipped.reason)
    return table


def number(value: float) -> str:
    """Three significant digits, thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
