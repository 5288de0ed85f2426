"""The common part of the commands `bench` and `lab`: arguments, the run of a case, and the table of its result."""

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

#: Modules that the extra `bench` installs.
_EXTRA = {"hdrh", "psutil"}

Result = TypeVar("Result", bound=CaseResult)


def parser(prog: str, description: str, what: str, about: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of a command that runs cases. `what` is the word for a case; `about` describes each case."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog="\n".join([f"{what}s:", *(f"  {name:18}{text}" for name, text in about.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar=what.upper(),
        help=f"the {what}s to run, see below; without this argument all of them run",
    )
    add_json_option(parser)
    parser.add_argument(
        "--quick", action="store_true", help="run for seconds instead of minutes; the figures are not useful"
    )
    return parser


def chosen(parser: argparse.ArgumentParser, what: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the given names, or all known names if none is given. An unknown name ends the program as wrong usage."""
    known, names = list(known), list(names)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"unknown {what} {unknown[0]!r}; {what}s: {', '.join(known)}")
    return names or known


def options(console: Console, quick: bool) -> Options:
    """Return the options of a case that shows its progress on `console`."""
    return Options(quick, lambda text: console.print(text, style="dim"))


def outcome(name: str, module: str, kind: type[Result], options: Options) -> Result:
    """Return the result of the module's `run`. A failed case has a result too, so that no other result is lost."""
    try:
        result: Result = importlib.import_module(module).run(options)
        return result
    except Exception as error:
        skipped = Skipped(name, reason(error))
    return kind(case=name, target="to be measured", met=False, figures=(), skipped=(skipped,))


def reason(error: Exception) -> str:
    """Return why a case, or a part of one, could not run. Prints the traceback of an error that nobody foresaw."""
    if isinstance(error, ModuleNotFoundError):
        is_extra = (error.name or "").partition(".")[0] in _EXTRA
        return f"{error}; it comes with pip install 'headgate[bench]'" if is_extra else str(error)
    if not isinstance(error, HeadgateError):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}"


def table(result: CaseResult) -> Table:
    """Return a result as a table for the terminal: the median, lowest and highest value of each figure."""
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
    """Return the value as text: with three significant digits, or from 1,000 on as a whole number with commas."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
