"""`--json PATH` of the commands: looked at before anything runs, so that no report is lost to a bad path."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from headgate.errors import SinkError


def add_json_option(parser: argparse.ArgumentParser, **how: Any) -> None:
    """The option; a path that cannot be written is wrong usage. `how` goes to `add_argument`, too."""
    parser.add_argument("--json", type=_writable, metavar="PATH", help="write the report as JSON; - is stdout", **how)


def write_json(target: str | None, report: Any) -> None:
    """Write a report to a path, to standard output (`-`), or nowhere; what is no finite number is null there, since
    JSON has no word for it. Raises SinkError."""
    if target is None:
        return
    text = json.dumps(_finite(report), indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text)
    except OSError as error:
        raise SinkError(f"the report is not written: {error}") from None


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
        raise argparse.ArgumentTypeError(f"{text!r}: there is no such folder")
    if not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return text
