"""`headgate run`: runs a user's script. The script's jobs may resume from a checkpoint."""

from __future__ import annotations

import argparse
import difflib
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path

from headgate.api.job_builder import ALLOW_DUPLICATES, RESUME
from headgate.api.live_view import LiveView
from headgate.api.watching import Watching
from headgate.errors import HeadgateError
from headgate.json_option import add_json_option, write_json
from headgate.runtime.master.job import JobHandle, listeners, report
from headgate.terminal import PlainConsole

_DESCRIPTION = (
    "Run a script as `python SCRIPT ARGUMENTS` does. While a job runs for longer than a second, standard error shows "
    "its state, its bottleneck, why, what to do, and the address of its page. If standard error is not a terminal, it "
    "shows the bottleneck only of a job that falls behind or is stuck. This may name hot keys, which are values of "
    "your data. When the script ends, the report of --json has the name, state, error, counters and restarts of each "
    "job; with --json - the output of the script goes to stderr."
)

#: The options of this command with a value, and without a value. Users write them before SCRIPT or directly after it.
_OPTIONS = ("--from", "--json")
_FLAGS = ("--allow-duplicates",)


def main(argv: Sequence[str]) -> int:
    """Run the script as Python would, and return the exit code.

    If the script raises a HeadgateError, the command prints the error with the line of the script, and returns 1. Any
    other error of the script is raised again.
    """
    own, parser = _own_words(argv), _parser()
    if unknown := _unknown(argv[:own]):
        meant = difflib.get_close_matches(unknown, (*_OPTIONS, *_FLAGS, "--help"), 1)
        parser.error(f"there is no option {unknown}" + (f"; did you mean {meant[0]}?" if meant else ""))
    arguments = parser.parse_args(argv[:own])
    if arguments.start is not None:
        os.environ[RESUME] = arguments.start
    if arguments.allow_duplicates:
        os.environ[ALLOW_DUPLICATES] = "1"
    given = argv[own + 1 :] if argv[own : own + 1] == ["--"] else argv[own:]
    sys.argv = [str(arguments.script), *given]
    sys.path.insert(0, str(arguments.script.resolve().parent))
    with _reporting(arguments.json):
        return _run(str(arguments.script))


@contextmanager
def _reporting(target: str | None) -> Iterator[None]:
    """Write the report of the script's jobs when the script ends or fails.

    If the report goes to standard output, the script's own output goes to standard error.
    """
    if target is None:
        yield
        return
    jobs: list[JobHandle] = []
    listeners.append(jobs.append)
    try:
        with redirect_stdout(sys.stderr) if target == "-" else nullcontext():
            yield
    finally:
        listeners.remove(jobs.append)
        write_json(target, {"jobs": [report(job) for job in jobs]})


def _run(script: str) -> int:
    try:
        with _watching():
            runpy.run_path(script, run_name="__main__")
    except HeadgateError as error:
        print(f"headgate run: {_place(error, script)}{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _watching() -> Iterator[None]:
    """Show on standard error the jobs that the script starts."""
    with Watching(LiveView(PlainConsole(stderr=True))) as watching:
        listeners.append(watching.add)
        try:
            yield
        finally:
            listeners.remove(watching.add)


def _place(error: HeadgateError, script: str) -> str:
    """Return the line of the script that led to the error, such as `flights.py:12: `."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == script]
    return f"{script}:{lines[-1]}: " if lines else ""


def _own_words(argv: Sequence[str]) -> int:
    """Return how many arguments belong to this command: those before SCRIPT, SCRIPT, and the options directly after it.

    The rest are arguments of the script.
    """
    at, has_script = 0, False
    while at < len(argv):
        name, has_value, _ = argv[at].partition("=")
        if name in _OPTIONS:
            at += 1 if has_value else 2
        elif name in _FLAGS:
            at += 1
        elif has_script:
            break
        else:
            has_script = not name.startswith("-")
            at += 1
    return at


def _unknown(own: Sequence[str]) -> str | None:
    """Return the first unknown option, or None. Without this check, argparse would take the next argument for
    SCRIPT."""
    is_value = False
    for word in own:
        name, has_value, _ = word.partition("=")
        if not is_value and name.startswith("-") and name not in (*_OPTIONS, *_FLAGS, "-h", "--help"):
            return name
        is_value = not is_value and name in _OPTIONS and not has_value
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headgate run",
        usage="headgate run [OPTIONS] SCRIPT [OPTIONS] [--] [ARGUMENTS]",
        description=_DESCRIPTION,
        epilog="Options may come before SCRIPT or directly after it. The script gets all later arguments, and all "
        "arguments after --.",
        allow_abbrev=False,
    )
    checkpoint = (
        'checkpoint to resume from: its path or URI, "latest" for the newest one in the job\'s checkpoint_dir, or '
        '"latest-if-any", which starts without a checkpoint if there is none'
    )
    parser.add_argument("--from", dest="start", metavar="CHECKPOINT", help=checkpoint)
    duplicates = "resume even if sinks have made rows from after the checkpoint visible; these rows then appear twice"
    parser.add_argument("--allow-duplicates", action="store_true", help=duplicates)
    add_json_option(parser)
    parser.add_argument("script", type=_script, metavar="SCRIPT", help="the Python script")
    return parser


def _script(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return Path(text)
