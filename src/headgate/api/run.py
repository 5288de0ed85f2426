"""`headgate run`: a script of the user's, whose jobs may go on from a checkpoint."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from headgate.api.environment import RESUME
from headgate.api.progress import SHOWN

_WHAT = (
    "Run a script as `python SCRIPT` does. On a terminal, jobs that it waits for by execute() say how they are: their "
    "checkpoints, and how often they have started again."
)


def main(argv: Sequence[str]) -> int:
    """Run the script as Python would. Returns 0; raises what the script raises."""
    arguments = _parser().parse_args(argv)
    if arguments.start is not None:
        os.environ[RESUME] = arguments.start
    os.environ[SHOWN] = "1"
    sys.argv = [str(arguments.script), *arguments.arguments]
    sys.path.insert(0, str(arguments.script.resolve().parent))
    runpy.run_path(str(arguments.script), run_name="__main__")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate run", description=_WHAT)
    where = (
        'checkpoint to go on from: its path or URI, "latest" of those in the job\'s checkpoint_dir, or '
        '"latest-if-any", a fresh start where there is none yet'
    )
    parser.add_argument("--from", dest="start", metavar="CHECKPOINT", help=where)
    parser.add_argument("script", type=_script, metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the script is given")
    return parser


def _script(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return Path(text)
