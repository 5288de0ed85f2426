#!/usr/bin/env python3
"""Measure this checkout against another commit, in pairs: each pair runs one of them, then the other.

  .venv/bin/python scripts/against.py COMMIT [CASE ...] [--pairs N] [--compiled]

The cases are keyed-sum, one-process, exchange, latency and small-batches; without CASE all five run. For each figure it
prints both medians, and the mean ratio of this checkout to the other commit, with half the width of the 95 % interval
of this ratio. The other commit and its compiled package are kept in .venv/against.

The cases alternating and alternating-exchange repeat keyed-sum and exchange in short runs: the processes of each commit
stay, and they run in turn. Use them where the speed of the machine changes within minutes, with 40 pairs of 4 s.

Two more cases count the processor's instructions: instructions for a row of keyed-sum, and exchange-instructions for a
byte of exchange. They need valgrind (Debian: valgrind). Other programs on the machine do not change these counts. Two
pairs, of some minutes each, are enough.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
STORE = ROOT / ".venv" / "against"
TIMEOUT = 900.0
CACHEGRIND = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--fair-sched=yes"]
WARM_UP, ROWS = 5_000_000, 80_000_000
#: The rows of the first job. It lives longer than a second: other commits load the libraries of the page then.
FIRST = 50_000_000
#: The rows of the two jobs whose instructions are counted.
COUNTED = 1_000_000, 5_000_000
PAYLOAD = 512 << 20
#: The bytes whose instructions are counted. As many as the first are sent before them, and do not count.
COUNTED_BYTES = 8 << 20, 96 << 20
#: Rows/s of the paced runs: about 10 % and 50 % of the full rate of two cores.
PACES, PACED_SECONDS = {"10 %": 2_500_000, "50 %": 12_500_000}, 8.0
#: Small batches: blocks/s of the paced source and the rows of its blocks; then blocks at full speed, and their rows.
BLOCKS_PER_SECOND, PACED_ROWS = 1000, (1, 64, 500)
FLUSHED, FLUSHED_ROWS = 30_000, 1024
#: The cases of short runs in turn. The first has two jobs of so many rows: their difference has no fixed cost. The
#: second sends so many bytes each time.
ALTERNATING, ALTERNATING_EXCHANGE = "alternating", "alternating-exchange"
ALTERNATED, SENT = (2_000_000, 22_000_000), 256 << 20

#: The figures of the pairs by name: those of this checkout, and those of the other commit.
Sides = tuple[list[dict[str, float]], list[dict[str, float]]]


def main() -> None:
    options = _options()
    other = _checkout(options.commit)
    here, there = (_package(folder, options.compiled) for folder in (ROOT, other))
    for case in options.cases or TIMED:
        print(f"{case}: this checkout against {options.commit}, {'compiled' if options.compiled else 'sources'}")
        if case in IN_TURN:
            ours, theirs = IN_TURN[case](here, there, options.pairs)
        else:
            ours, theirs = _pairs(case, here, there, options.pairs)
        for name in ours[0]:
            print(_line(name, [figures[name] for figures in ours], [figures[name] for figures in theirs]), flush=True)


def _pairs(case: str, here: Path, there: Path, pairs: int) -> Sides:
    """Run both packages in turn, each time in a new process. Return the figures of each pair."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for number in range(pairs):
        for package, seen in ((here, ours), (there, theirs))[:: 1 if number % 2 else -1]:
            seen.append(_run(case, package))
    return ours, theirs


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--compiled", action="store_true", help="measure the compiled packages, not the sources")
    options = parser.parse_args()
    if unknown := [case for case in options.cases if case not in (*CASES, *IN_TURN)]:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join((*CASES, *IN_TURN))}")
    if options.pairs < 2:
        parser.error("--pairs must be at least 2")
    return options


def _checkout(commit: str) -> Path:
    """Return a folder with the commit's files, and extract them into it if it is new."""
    name = _output("git", "-C", str(ROOT), "rev-parse", "--verify", f"{commit}^{{commit}}")
    folder = STORE / name
    if not folder.is_dir():
        unfinished = STORE / f"{name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        archive = subprocess.run(["git", "-C", ROOT, "archive", name], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", unfinished], input=archive, check=True)
        unfinished.rename(folder)
    return folder


def _package(folder: Path, compiled: bool) -> Path:
    """Return the entry of PYTHONPATH for the package in `folder`, and compile it if necessary."""
    if not compiled:
        return folder / "src"
    if folder == ROOT:
        subprocess.run([ROOT / "scripts" / "compiled", "true"], check=True)
        return ROOT / ".venv" / "compiled"
    target = folder / ".compiled"
    if not target.is_dir():
        print(f"compiling {folder.name}", flush=True)
        unfinished = folder / ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(unfinished)]
        subprocess.run(
            [sys.executable, "-m", *install, str(folder)], check=True, env={**os.environ, "HEADGATE_COMPILE": "1"}
        )
        unfinished.rename(target)
    return target


def _run(case: str, package: Path) -> dict[str, float]:
    """Run one side of a pair in a new process, with the package first in its path. Return its figures."""
    if not (package / "headgate").is_dir():  # Python would take the installed checkout instead
        sys.exit(f"there is no package in {package}")
    command = [sys.executable, __file__, "--probe", case]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, cwd="/")
    if done.returncode:
        sys.exit(f"{case} failed with {package}:\n{done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _alternate(here: Path, there: Path, pairs: int) -> Sides:
    """Run short jobs of both packages in turn, each in a process that stays. Return the cost of rows for each pair."""
    with _worker(here, "--worker") as ours, _worker(there, "--worker") as theirs:
        for worker in (ours, theirs):
            _job(worker, FIRST)
        seen: Sides = [], []
        for number in range(pairs):
            order = (0, 1) if number % 2 else (1, 0)
            few, many = ({side: _job((ours, theirs)[side], rows) for side in order} for rows in ALTERNATED)
            for side in order:
                took, used = (after - before for before, after in zip(few[side], many[side], strict=True))
                seen[side].append(_cost(ALTERNATED[1] - ALTERNATED[0], took, used))
        return seen


def _alternate_exchange(here: Path, there: Path, pairs: int) -> Sides:
    """Let the processes of both packages send in turn. Return the figures of each pair, but for the first."""
    with _worker(here, "--sender") as ours, _worker(there, "--sender") as theirs:
        seen: Sides = [], []
        for number in range(pairs + 1):
            for side in (0, 1) if number % 2 else (1, 0):
                seen[side].append(_figures((ours, theirs)[side]))
        return seen[0][1:], seen[1][1:]


def _figures(worker: subprocess.Popen[str]) -> dict[str, float]:
    figures: dict[str, float] = _answer(worker, "go on")
    return figures


def _worker(package: Path, option: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, option]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd="/", text=True, bufsize=1, stdin=pipe, stdout=pipe)


def _job(worker: subprocess.Popen[str], rows: int) -> tuple[float, float]:
    """Let the worker run a job of so many rows. Return its seconds and its processor seconds."""
    took, used = _answer(worker, str(rows))
    return took, used


def _answer(worker: subprocess.Popen[str], request: str) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{request}\n")
    answer = worker.stdout.readline()
    if not answer:
        sys.exit("a process that measures has ended; its error is above")
    return json.loads(answer)


def _line(name: str, ours: list[float], theirs: list[float]) -> str:
    ratios = [our_value / their_value for our_value, their_value in zip(ours, theirs, strict=True)]
    width = 1.96 * stdev(ratios) / len(ratios) ** 0.5
    return f"  {name:34} {median(ours):10.4g} {median(theirs):10.4g}   ratio {mean(ratios):.3f} ± {width:.3f}"


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


# --- the program that runs for one side of a pair; it uses modules that both commits have


def keyed_sum() -> dict[str, float]:
    """Measure the cost of rows without the fixed cost of a job. The first job costs more, and does not count."""
    from headgate.bench.keyed_job import keyed_sum_seconds

    _first_job(keyed_sum_seconds)
    return _cost_of_rows(keyed_sum_seconds, ROWS)


def one_process() -> dict[str, float]:
    """Measure the job of keyed-sum in one TaskManager process, whose tasks share one interpreter lock."""
    import headgate as hg
    from headgate.bench import keyed_job

    figures = {}
    for parallelism in (1, 2):
        environment = partial(
            hg.StreamEnvironment, parallelism=parallelism, config=hg.Config(buffer_timeout=0),
            deployment=hg.LocalDeployment(taskmanagers=1, processes=True),
        )  # fmt: skip

        def seconds(rows: int, environment: Callable[[], hg.StreamEnvironment] = environment) -> float:
            made = environment()
            keyed_job._sums(made, rows, None)
            began = time.perf_counter()
            made.execute("one-process")
            return time.perf_counter() - began

        seconds(WARM_UP)
        for name, value in _cost_of_rows(seconds, ROWS // 2).items():
            figures[f"parallelism {parallelism}, {name}"] = value
    return figures


def _cost_of_rows(seconds: Callable[[int], float], rows: int) -> dict[str, float]:
    """Return the cost of rows, without the fixed cost of a job. `seconds` runs a job and returns how long it took."""
    at, took = [processor_seconds()], []
    for number in (WARM_UP, WARM_UP + rows):
        took.append(seconds(number))
        at.append(processor_seconds())
    used = (at[2] - at[1]) - (at[1] - at[0])
    return _cost(rows, took[1] - took[0], used)


def _cost(rows: int, seconds: float, used: float) -> dict[str, float]:
    return {"million rows/s": rows / 1e6 / seconds, "processor s per million rows": used * 1e6 / rows}


def exchange() -> dict[str, float]:
    from headgate.bench import exchange as case

    with case.end("producer", 0) as producer, case.end("consumer", 1) as consumer:
        return _sent(case, producer, consumer, PAYLOAD)


def _sent(case: Any, producer: Any, consumer: Any, size: int) -> dict[str, float]:
    figures = {}
    ways = {"64 buffers": (case.MANY_BUFFERS, 1), "2 + 8 buffers": (case.DEFAULT_BUFFERS, 1),
            "100 channels": (case.MANY_BUFFERS, 100)}  # fmt: skip
    for name, (config, channels) in ways.items():
        before = processor_seconds()
        figures[f"{name}, GB/s"] = case.rate(producer, consumer, size, config, channels=channels) / 1e9
        figures[f"{name}, processor s per GB"] = (processor_seconds() - before) * 1e9 / size
    return figures


def latency() -> dict[str, float]:
    from headgate.bench.due_times import read_histogram
    from headgate.bench.host import cores_awake
    from headgate.bench.keyed_job import keyed_sum_seconds, run_paced

    figures = {}
    _first_job(keyed_sum_seconds)
    for name, pace in PACES.items():
        with tempfile.TemporaryDirectory() as folder, cores_awake():
            run_paced(round(pace * PACED_SECONDS), pace, Path(folder))
            seen = read_histogram(Path(folder))
        for percentile in (50.0, 99.0):
            figures[f"p{percentile:g} at {name}, ms"] = seen.get_value_at_percentile(percentile) / 1000
    return figures


def small_batches() -> dict[str, float]:
    """Measure the processor time of paced blocks, and the rows/s of blocks that are flushed one by one."""
    figures = {}
    _small_blocks(2000, 1, BLOCKS_PER_SECOND)
    for rows in PACED_ROWS:
        used = []
        for seconds in (1, 9):
            before = processor_seconds()
            _small_blocks(seconds * BLOCKS_PER_SECOND, rows, BLOCKS_PER_SECOND)
            used.append(processor_seconds() - before)
        figures[f"paced blocks of {rows} rows, us per block"] = (used[1] - used[0]) * 1e6 / (8 * BLOCKS_PER_SECOND)
    took = [_small_blocks(blocks, FLUSHED_ROWS, None) for blocks in (FLUSHED // 10, FLUSHED + FLUSHED // 10)]
    figures[f"blocks of {FLUSHED_ROWS} rows, flushed, million rows/s"] = (
        FLUSHED * FLUSHED_ROWS / 1e6 / (took[1] - took[0])
    )
    return figures


def _small_blocks(blocks: int, rows: int, pace: int | None) -> float:
    """Return the seconds of sums per key and second over so many blocks. `pace` is in blocks/s."""
    import numpy as np
    import pyarrow as pa

    import headgate as hg

    random, many = np.random.default_rng(1), 1 << 17
    made = pa.record_batch({"key": pa.array(random.integers(1000, size=many)), "value": pa.array(random.random(many))})

    def slices(start: int, n: int) -> pa.RecordBatch:
        return made.slice(start % (many - n), n)

    environment = hg.StreamEnvironment(
        parallelism=2,
        config=hg.Config(buffer_timeout=0 if pace is None else "adaptive"),
        deployment=hg.LocalDeployment(taskmanagers=2, processes=True),
    )
    rate = None if pace is None else pace * rows
    source = hg.sources.generate(
        slices, rows=blocks * rows, rate=rate, schema=made.schema, time="ts", batch_rows=rows, batch_time="1 h"
    )
    keyed = environment.from_source(source, watermark=hg.Watermark("ts")).key_by("key")
    sums = keyed.window(hg.tumble("1 s")).aggregate(total=hg.sum("value"), rows=hg.count())
    sums.sink_to(hg.sinks.null())
    began = time.perf_counter()
    environment.execute("small-batches")
    return time.perf_counter() - began


def instructions() -> dict[str, float]:
    """Count instructions in threads of one process, with few and with many rows. The difference of the two counts
    excludes the fixed cost of a job."""
    runs = {rows: _count(rows) for rows in COUNTED}
    few, many = (_counted(run) for run in runs.values())
    return {"instructions per row": (many - few) / (COUNTED[1] - COUNTED[0])}


def _count(rows: int) -> subprocess.Popen[str]:
    command = [*CACHEGRIND, sys.executable, __file__, "--threads", str(rows)]
    # Only a job that runs for a second loads the page's libraries.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "HEADGATE_WEB": "off"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def _counted(run: subprocess.Popen[str]) -> int:
    report = run.communicate()[1]
    if run.returncode:
        sys.exit(f"valgrind ended with exit code {run.returncode}: {report[-2000:]}")
    return _total(report)


def _total(report: str) -> int:
    total = re.search(r"I +refs: +([\d,]+)", report)
    if total is None:
        sys.exit(f"valgrind has counted nothing: {report[-2000:]}")
    return int(total[1].replace(",", ""))


def exchange_instructions() -> dict[str, float]:
    """Count instructions of the producer's and the consumer's process. The program that waits for both is not
    counted."""
    few, many = (_count_sent(sizes) for sizes in (COUNTED_BYTES[:1], COUNTED_BYTES))
    return {f"{end}, instructions per KB": (many[end] - few[end]) * 1e3 / COUNTED_BYTES[1] for end in many}


def _count_sent(sizes: tuple[int, ...]) -> dict[str, int]:
    with tempfile.TemporaryDirectory() as folder:
        tool = [*CACHEGRIND, "--trace-children=yes", f"--log-file={folder}/%p"]
        command = [*tool, sys.executable, __file__, "--send", *map(str, sizes)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            sys.exit(f"valgrind ended with exit code {done.returncode}: {done.stderr[-2000:]}")
        return {end: _total(Path(folder, pid).read_text()) for end, pid in json.loads(done.stdout).items()}


def send(sizes: list[int]) -> None:
    """Send so many bytes, and print the process number of each end."""
    from headgate.bench import exchange as case

    with case.end("producer", 0) as producer, case.end("consumer", 1) as consumer:
        for size in sizes:
            case.rate(producer, consumer, size, case.MANY_BUFFERS)
        pids = [process.pid for process in psutil.Process().children()]
    print(json.dumps(dict(zip(("producer", "consumer"), map(str, sorted(pids)), strict=True))))


def in_threads(rows: int) -> None:
    """Run the job whose instructions are counted. TaskManagers send no reports, since their number depends on time."""
    import headgate as hg
    from headgate.bench import keyed_job

    for module in ("headgate.runtime.taskmanager", "headgate.runtime.taskmanager.taskmanager"):
        with suppress(ImportError):  # a commit has this module at one of two places
            vars(importlib.import_module(module))["_METRICS_INTERVAL"] = 1e6
    deployment = hg.LocalDeployment(taskmanagers=2, processes=False)
    environment = hg.StreamEnvironment(parallelism=2, config=hg.Config(buffer_timeout=0), deployment=deployment)
    keyed_job.keyed_environment = lambda *_, **__: environment
    keyed_job.keyed_sum_seconds(rows)


def run_jobs() -> None:
    """Run a job of keyed-sum for each number of rows that comes in, and print its seconds and processor seconds."""
    from headgate.bench.keyed_job import keyed_sum_seconds

    for line in sys.stdin:
        before = processor_seconds()
        took = keyed_sum_seconds(int(line))
        print(json.dumps((took, processor_seconds() - before)), flush=True)


def send_in_turn() -> None:
    """Send once for each line that comes in, and print the figures."""
    from headgate.bench import exchange as case

    with case.end("producer", 0) as producer, case.end("consumer", 1) as consumer:
        for _ in sys.stdin:
            print(json.dumps(_sent(case, producer, consumer, SENT)), flush=True)


def _first_job(run: Callable[[int], float]) -> None:
    """Run a job that does not count. After it, the driver and the process that forks have imported everything."""
    run(FIRST)
    time.sleep(1.0)


def processor_seconds() -> float:
    """Return the processor seconds of this process and of all its descendants, including ended ones."""
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return float(sum(used.user + used.system + used.children_user + used.children_system for used in times))


CASES: dict[str, Callable[[], dict[str, float]]] = {
    "keyed-sum": keyed_sum,
    "one-process": one_process,
    "exchange": exchange,
    "latency": latency,
    "small-batches": small_batches,
    "instructions": instructions,
    "exchange-instructions": exchange_instructions,
}
IN_TURN = {ALTERNATING: _alternate, ALTERNATING_EXCHANGE: _alternate_exchange}
TIMED = ["keyed-sum", "one-process", "exchange", "latency", "small-batches"]

if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        print(json.dumps(CASES[sys.argv[2]]()))
    elif sys.argv[1:2] == ["--worker"]:
        run_jobs()
    elif sys.argv[1:2] == ["--sender"]:
        send_in_turn()
    elif sys.argv[1:2] == ["--send"]:
        send([int(size) for size in sys.argv[2:]])
    elif sys.argv[1:2] == ["--threads"]:
        in_threads(int(sys.argv[2]))
    else:
        main()
