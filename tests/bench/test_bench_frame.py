"""The command `headgate bench`, with cases that measure nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from headgate.bench import bench_command as main
from headgate.bench import exchange, idle_timer, raw_baseline
from headgate.bench.conversation import ChildFailed, ChildProcess
from headgate.bench.report import CaseResult, Figure, Skipped, ratios
from tests.runtime.jobs import eventually

RATE = Figure("rate", "rows/s", (3.0, 1.0, 2.0))

ECHO = "import sys, json\nfor line in sys.stdin: print(json.dumps({'got': json.loads(line)}), flush=True)"


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> dict[str, CaseResult]:
    """Cases that measure nothing, by their names on the command line."""
    outcomes = {
        "good": CaseResult(case="good", target="at least 1", met=True, figures=(RATE,)),
        "slow": CaseResult(case="slow", target="at least 5", met=False, figures=(RATE,)),
        "alone": CaseResult(
            case="alone", target="at least 1", met=True, figures=(RATE,), skipped=(Skipped("Flink", "no Java"),)
        ),
    }
    for name, outcome in outcomes.items():
        run = SimpleNamespace(run=lambda options, outcome=outcome: outcome)
        monkeypatch.setitem(sys.modules, f"case_{name}", run)
    monkeypatch.setattr(main, "CASES", {name: f"case_{name}" for name in outcomes})
    return outcomes


CASE_WITH_A_CHILD = """
import sys, time
from types import SimpleNamespace
from headgate import cli
from headgate.bench import bench_command
from headgate.bench.conversation import ChildProcess

def run(options):
    with ChildProcess("the child", [sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        print(child.pid, flush=True)
        time.sleep(600)

sys.modules["endless"] = SimpleNamespace(run=run)
bench_command.CASES = {"endless": "endless"}
sys.exit(cli.main(["bench", "endless"]))
"""


def test_a_case_that_is_terminated_ends_its_child_processes() -> None:
    with subprocess.Popen([sys.executable, "-c", CASE_WITH_A_CHILD], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        child = next(int(line) for line in program.stdout if line.strip().isdigit())
        program.terminate()
        assert program.wait(60) == 128 + signal.SIGTERM
    assert not psutil.pid_exists(child)


@pytest.mark.usefixtures("cases")
@pytest.mark.parametrize(("names", "code"), [(["good"], 0), (["slow"], 1), (["alone"], 1), (["good", "slow"], 1)])
def test_exit_code_is_the_verdict(names: list[str], code: int) -> None:
    assert main.main(names) == code


@pytest.mark.usefixtures("cases")
def test_json_holds_figures_spread_and_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "bench.json"
    main.main(["--json", str(target)])
    report = json.loads(target.read_text())
    good, _, alone = report["cases"]
    assert good["figures"]["rate"] == {"unit": "rows/s", "median": 2, "low": 1, "high": 3, "values": [3, 1, 2]}
    assert alone["met"] is True
    assert alone["skipped"] == {"Flink": "no Java"}
    assert report["run"]["command"].startswith("headgate bench --json")
    assert report["run"]["cores"] >= 1

    capsys.readouterr()
    main.main(["good", "--json", "-"])
    assert json.loads(capsys.readouterr().out)["cases"][0]["case"] == "good"


@pytest.mark.usefixtures("cases")
@pytest.mark.usefixtures("cases")
@pytest.mark.parametrize(
    ("error", "reason", "traced"),
    [
        (ChildFailed("no answer"), "ChildFailed: no answer", False),
        (ZeroDivisionError("of [bench] none"), "ZeroDivisionError: of [bench] none", True),
    ],
)
def test_a_case_that_fails_does_not_lose_the_results_of_others(
    *,
    error: Exception,
    reason: str,
    traced: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "bench.json"
    kept = []

    def fail(_options: object) -> None:
        kept.append([case["case"] for case in json.loads(target.read_text())["cases"]])
        raise error

    monkeypatch.setattr(sys.modules["case_slow"], "run", fail)
    assert main.main(["good", "slow", "alone", "--json", str(target)]) == 1
    assert kept == [["good"]]
    good, failed, alone = json.loads(target.read_text())["cases"]
    assert good["met"] is True
    assert alone["met"] is True
    assert failed["case"] == "slow"
    assert failed["met"] is False
    assert failed["figures"] == {}
    assert failed["skipped"] == {"slow": reason}
    told = capsys.readouterr()
    assert reason in told.out
    assert ("Traceback" in told.err) == traced


@pytest.mark.usefixtures("cases")
def test_without_its_extra_a_case_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(main.CASES, "latency", "headgate.bench.latency")
    monkeypatch.delitem(sys.modules, "headgate.bench.latency", raising=False)
    monkeypatch.setitem(sys.modules, "hdrh.histogram", None)
    assert main.main(["latency", "good", "--json", "-"]) == 1
    message = capsys.readouterr()
    latency, good = json.loads(message.out)["cases"]
    assert latency["skipped"]["latency"].endswith("; it comes with pip install 'headgate[bench]'")
    assert good["met"] is True
    assert "headgate[bench]" in "".join(message.err.split())


def test_unknown_case_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["warp-speed"])
    assert ended.value.code == 2
    assert "unknown case 'warp-speed'; cases: checkpoint, exchange" in capsys.readouterr().err


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2, 9], [1, 3]) == (2, 3)


def test_peer_answers_line_by_line() -> None:
    with ChildProcess("echo", [sys.executable, "-c", ECHO]) as peer:
        assert peer.ask({"rows": 1}, 20) == {"got": {"rows": 1}}
        assert peer.ask({"rows": 2}, 20) == {"got": {"rows": 2}}


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit('no memory left')", "the end of its log: no memory left"),
        ('input(); print(\'{"error": "bad query"}\')', "echo: bad query"),
    ],
)
def test_peer_that_fails_says_why(script: str, words: str) -> None:
    with ChildProcess("echo", [sys.executable, "-c", script]) as peer, pytest.raises(ChildFailed, match=words):
        peer.ask({}, 20)


def test_peer_that_hangs_is_ended_with_its_children() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)"
    with ChildProcess("hung", [sys.executable, "-c", script]) as peer, pytest.raises(ChildFailed, match="within 0.2 s"):
        peer.ask({}, 0.2)


@pytest.mark.alone
def test_raw_baseline_carries_bytes() -> None:
    assert raw_baseline.payload_rate(64 << 20) > 10e6


def test_the_idle_timer_is_never_early() -> None:
    histogram = idle_timer.lateness(0.05)
    assert histogram.get_total_count() == 50
    assert histogram.get_min_value() >= 0


def may_have_real_time_priority() -> bool:
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        return False
    os.sched_setscheduler(0, before, os.sched_param(0))
    return True


@pytest.mark.alone
@pytest.mark.skipif(sys.platform != "linux", reason="needs the real-time priority of Linux")
def test_a_timer_beside_a_load_has_real_time_priority_on_every_core() -> None:
    allowed = may_have_real_time_priority()
    with idle_timer.lateness_beside() as histogram:
        timers = [child for child in psutil.Process().children() if "headgate.bench.idle_timer" in child.cmdline()]
        if allowed:
            assert [os.sched_getscheduler(timer.pid) for timer in timers] == [os.SCHED_FIFO] * len(timers)
            assert {tuple(timer.cpu_affinity()) for timer in timers} == {(core,) for core in os.sched_getaffinity(0)}
            first = time.monotonic()
            eventually(lambda: time.monotonic() > first + 50 * idle_timer.PERIOD_BESIDE)
    assert (histogram.get_total_count() >= 50) == allowed


def test_exchange_runs_and_counts_every_byte() -> None:
    batches = 40
    shapes = (
        (exchange.MANY_BUFFERS, 1, False, {}),
        (exchange.DEFAULT_BUFFERS, 1, True, {}),
        (exchange.MANY_BUFFERS, 30, False, {}),
        (exchange.MANY_BUFFERS, 30, False, exchange.identity()),
    )
    with exchange.end("producer", 0) as producer, exchange.end("consumer", 1) as consumer:
        for config, channels, row_function, identity in shapes:
            shared = {"config": config, "channels": channels, **identity}
            port = producer.ask({"do": "listen", "batches": batches, **shared}, 60)["port"]
            took = consumer.ask({"do": "consume", "port": port, "row_function": row_function, **shared}, 60)
            producer.ask({"do": "result"}, 60)
            assert took["bytes"] < batches * exchange.prebuilt_batch().nbytes <= took["buffers"] * (32 << 10)  # type: ignore[attr-defined]
            assert took["seconds"] > 0


def test_help_says_what_each_case_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--help"])
    told = capsys.readouterr().out
    assert main.ABOUT.keys() == main.CASES.keys()
    assert all(text in told for text in main.ABOUT.values())
