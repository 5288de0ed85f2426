"""The option `--json PATH` of the commands. A command checks the path first, so a bad path does not lose a report."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from headgate.errors import SinkError


def add_json_option(parser: argparse.ArgumentParser, **options: Any) -> None:
    """Add `--json PATH` to a parser, which then refuses a path that cannot be written.

    `options` are further arguments of `add_argument`.
    """
    text = "write the report as JSON; - is stdout"
    parser.add_argument("--json", type=_writable, metavar="PATH", help=text, **options)


def write_json(target: str | None, report: Any) -> None:
    """Write a report to a path, to standard output (`-`), or nowhere (None).

    NaN and infinite numbers become null, since JSON cannot express them. Raises SinkError if the file cannot be
    written.
    """
    if target is None:
        return
    text = json.dumps(_finite(report), indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text)
    except OSError as error:
        raise SinkError(f"cannot write the report to {target}: {error}") from None


def _finite(report: Any) -> Any:
    if isinstance(report, dict):
        return {key: _finite(value) for key, value in report.items()}
    if isinstance(report, list | tuple):
        return [_finite(value) for value in report]
    return None if isinstance(report, float) and not math.isfinite(report) else report


def _writable(text: str) -> str:
    path = Path(text).absolute()
    if text == "-":
        return text
    if os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file in it")
    if not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"{text!r}: there is no such folder; make {path.parent} first")
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; check the permissions")
    return text
