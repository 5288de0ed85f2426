"""`headgate run`: a script of the user's, whose jobs may resume from a checkpoint."""

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
from headgate.api.progress import SHOWN
from headgate.errors import HeadgateError
from headgate.json_option import add_json_option, write_json
from headgate.runtime.master.job import JobHandle, listeners, report

_WHAT = (
    "Run a script as `python SCRIPT ARGUMENTS` does. On a terminal, jobs that it waits for by execute() say how they "
    "are: their checkpoints, and how often they have started again. The report of --json "
    "has the name, state, error, counters and restarts of each job when the script ends; with - what it prints goes to "
    "stderr."
)

#: Ours, before SCRIPT and right behind it: those with a value, and those without.
_OPTIONS = ("--from", "--json")
_FLAGS = ("--allow-duplicates",)


def main(argv: Sequence[str]) -> int:
    """Run the script as Python would. Returns 0, or 1 for an error of ours, which is told with its place in the script;
    raises what else the script raises."""
    own, parser = _own_words(argv), _parser()
    if unknown := _unknown(argv[:own]):
        meant = difflib.get_close_matches(unknown, (*_OPTIONS, *_FLAGS, "--help"), 1)
        parser.error(f"there is no option {unknown}" + (f"; did you mean {meant[0]}?" if meant else ""))
    arguments = parser.parse_args(argv[:own])
    if arguments.start is not None:
        os.environ[RESUME] = arguments.start
    if arguments.allow_duplicates:
        os.environ[ALLOW_DUPLICATES] = "1"
    os.environ[SHOWN] = "1"
    given = argv[own + 1 :] if argv[own : own + 1] == ["--"] else argv[own:]
    sys.argv = [str(arguments.script), *given]
    sys.path.insert(0, str(arguments.script.resolve().parent))
    with _reporting(arguments.json):
        return _run(str(arguments.script))


@contextmanager
def _reporting(target: str | None) -> Iterator[None]:
    """Write what became of the script's jobs when it ends, in whichever way. Standard output has nothing else then, if
    that is where it goes."""
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
        runpy.run_path(script, run_name="__main__")
    except HeadgateError as error:
        print(f"headgate run: {_place(error, script)}{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _place(error: HeadgateError, script: str) -> str:
    """`flights.py:12: `, where the line of the script is that led to the error."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == script]
    return f"{script}:{lines[-1]}: " if lines else ""


def _own_words(argv: Sequence[str]) -> int:
    """How many of the words are ours: up to SCRIPT, and the options of ours that follow it."""
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
    """The first of our words that looks like an option and is none; what follows it would be taken for SCRIPT."""
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
        description=_WHAT,
        epilog="Options may stand before SCRIPT or right behind it. All that follows, or stands behind --, is what the "
        "script is given.",
        allow_abbrev=False,
    )
    where = (
        'checkpoint to resume from: its path or URI, "latest" of those in the job\'s checkpoint_dir, or '
        '"latest-if-any", a fresh start where there is none yet'
    )
    parser.add_argument("--from", dest="start", metavar="CHECKPOINT", help=where)
    twice = "resume from a checkpoint older than what sinks have shown: the rows between are then there twice"
    parser.add_argument("--allow-duplicates", action="store_true", help=twice)
    add_json_option(parser)
    parser.add_argument("script", type=_script, metavar="SCRIPT", help="the Python script")
    return parser


def _script(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return Path(text)
