"""The command `headgate lab`, with experiments that measure nothing."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.bench.case_options import Options
from headgate.bench.report import Figure, Skipped
from headgate.errors import HeadgateError
from headgate.lab import lab_command as main
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.places import warm_up
from headgate.lab.questions import QUESTIONS, Question
from headgate.runtime.master import job
from headgate.runtime.master.job import JobHandle
from headgate.web.job_pages import SWITCH, pages

RATE = Figure("rate", "rows/s", (3.0, 1.0, 2.0))
CURVES = Plot(
    title="rate", x="time, s", y="rows/s", series=(Series("B.3", (0.0, 1.0), (5.0, 6.0)),), marks=((0.5, "stall"),)
)


#: The names of the real experiments.
REAL = tuple(main.EXPERIMENTS)


@pytest.fixture(autouse=True)
def experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments that measure nothing, by their names on the command line."""
    outcomes = {
        "shown": Experiment(case="shown", target="at least 1", met=True, figures=(RATE,), plots=(CURVES,)),
        "missed": Experiment(case="missed", target="at least <5>", met=False, figures=(RATE,)),
        "alone": Experiment(
            case="alone", target="at least 1", met=True, figures=(RATE,), skipped=(Skipped("Spark", "no Java"),)
        ),
    }
    for name, outcome in outcomes.items():
        run = SimpleNamespace(run=lambda options, outcome=outcome: outcome)
        monkeypatch.setitem(sys.modules, f"experiment_{name}", run)
        monkeypatch.setitem(QUESTIONS, name, Question(f"Is {name} <fast>?", "It runs.", "It proves little."))
    monkeypatch.setattr(main, "EXPERIMENTS", {name: f"experiment_{name}" for name in outcomes})


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options of each run of the experiment `shown`. It can be simulated."""
    options = list[Options]()
    shown = sys.modules["experiment_shown"]
    run = shown.run
    monkeypatch.setattr(shown, "run", lambda given: options.append(given) or run(given))
    monkeypatch.setattr(main, "SIMULATED", main.EXPERIMENTS)
    return options


@pytest.mark.parametrize(("names", "code"), [(["shown"], 0), (["missed"], 1), (["alone"], 1), (["shown", "missed"], 1)])
def test_exit_code_is_the_verdict(names: list[str], code: int, tmp_path: Path) -> None:
    assert main.main([*names, "--out", str(tmp_path)]) == code


def test_every_experiment_leaves_json_plot_and_its_part_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "results"
    main.main(["--out", str(folder), "--json", str(tmp_path / "all.json")])
    report = json.loads((folder / "shown.json").read_text())
    assert report["experiment"] == "shown"
    assert report["met"] is True
    assert report["run"]["cores"] >= 1
    assert report["figures"]["rate"] == {"unit": "rows/s", "median": 2, "low": 1, "high": 3, "values": [3, 1, 2]}
    assert report["plots"][0]["series"][0]["y"] == [5, 6]
    assert json.loads((folder / "missed.json").read_text())["met"] is False
    everything = json.loads((tmp_path / "all.json").read_text())
    assert [each["experiment"] for each in everything["experiments"]] == ["shown", "missed", "alone"]

    page = (folder / "index.html").read_text()
    assert "Is shown &lt;fast&gt;?" in page
    assert page.count("It proves little.") == 3
    assert "at least &lt;5&gt;" in page
    assert "Spark: no Java" in page
    assert page.count('class="missed">missed') == 2
    assert page.count('class="met">met') == 1


def test_while_the_lab_runs_the_pages_of_its_jobs_have_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = list[str]()

    def look(_options: Options) -> Experiment:
        address = re.sub(r"\s", "", capsys.readouterr().out).partition("reportisat")[2].partition("too")[0]
        with urllib.request.urlopen(address, timeout=30) as reply:
            seen.append(reply.read().decode())
        return Experiment(case="alone", target="at least 1", met=True, figures=(RATE,))

    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(sys.modules["experiment_alone"], "run", look)
    try:
        assert main.main(["shown", "alone", "--out", str(tmp_path)]) == 0
    finally:
        pages.close()
    assert "Is shown &lt;fast&gt;?" in seen[0]
    assert "To come: alone" in seen[0]
    assert "To come" not in (tmp_path / "index.html").read_text()


def test_every_experiment_asks_a_question() -> None:
    assert [name for name in QUESTIONS if name not in main.EXPERIMENTS] == list(REAL)


def test_plots_are_drawn_where_matplotlib_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    main.main(["shown", "--out", str(tmp_path)])
    picture = (tmp_path / "shown.svg").read_text()
    assert "<svg" in picture
    assert len(picture) > 1000
    assert picture[picture.index("<svg") :] in (tmp_path / "index.html").read_text()


def test_the_seed_is_in_the_report_of_a_simulation_and_nowhere_else(
    tmp_path: Path, given: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["shown", "--simulate", "--seed", "7", "--out", str(tmp_path)])
    assert json.loads((tmp_path / "shown.json").read_text())["run"]["seed"] == 7
    main.main(["shown", "--out", str(tmp_path)])
    assert "seed" not in json.loads((tmp_path / "shown.json").read_text())["run"]
    assert [each.seed for each in given] == [7, 0]
    with pytest.raises(SystemExit, match="2"):
        main.main(["shown", "--seed", "7", "--out", str(tmp_path)])
    assert "--seed needs --simulate" in capsys.readouterr().err


def test_only_a_quick_run_of_processes_makes_several_runs_at_the_same_time(
    tmp_path: Path, given: list[Options], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--quick"], ["--quick", "--simulate"], []):
        main.main(["shown", *arguments, "--out", str(tmp_path)])
    assert [each.at_once for each in given] == [4, 1, 1]
    with pytest.raises(SystemExit, match="0"):
        main.main(["--help"])
    assert "With --quick, 4 runs of sibling, burst" in " ".join(capsys.readouterr().out.split())


def test_a_job_warms_up_before_the_first_run_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = list[str]()
    outcome = Experiment(case="burst", target="all", met=True, figures=())
    run = SimpleNamespace(run=lambda _options: events.append("run") or outcome)
    monkeypatch.setitem(sys.modules, "experiment_burst", run)
    monkeypatch.setattr(main, "EXPERIMENTS", {"burst": "experiment_burst"})
    monkeypatch.setattr(main, "warm_up", lambda: events.append("warm up"))
    monkeypatch.setattr(main, "SIMULATED", main.EXPERIMENTS)
    for arguments in (["--quick"], [], ["--simulate"]):
        main.main(["burst", *arguments, "--out", str(tmp_path)])
    assert events == ["warm up", "run"] * 2 + ["run"]


def test_the_job_that_warms_up_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = list[JobHandle]()
    monkeypatch.setattr(job, "listeners", [jobs.append])
    warm_up()
    assert [each.status() for each in jobs] == ["FINISHED"]


def test_without_matplotlib_the_command_says_so_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main.main(["shown", "--out", str(tmp_path)]) == 0
    message = "".join(capsys.readouterr().out.split())
    assert "matplotlibisnotinstalled;itcomeswithpipinstall'headgate[lab]'" in message
    assert "<svg" not in (tmp_path / "index.html").read_text()


def test_json_on_standard_output_is_alone_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["shown", "--out", str(tmp_path), "--json", "-"])
    assert json.loads(capsys.readouterr().out)["experiments"][0]["experiment"] == "shown"


def test_an_experiment_that_fails_does_not_lose_the_results_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_options: object) -> None:
        raise HeadgateError("nothing crossed a socket")

    monkeypatch.setattr(sys.modules["experiment_missed"], "run", fail)
    assert main.main(["shown", "missed", "alone", "--out", str(tmp_path)]) == 1
    report = json.loads((tmp_path / "missed.json").read_text())
    assert report["experiment"] == "missed"
    assert report["met"] is False
    assert report["skipped"] == {"missed": "HeadgateError: nothing crossed a socket"}
    assert json.loads((tmp_path / "alone.json").read_text())["met"] is True
    assert "nothing crossed a socket" in (tmp_path / "index.html").read_text()


def test_a_folder_that_cannot_be_made_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/results"):
        with pytest.raises(SystemExit) as ended:
            main.main(["shown", "--out", str(tmp_path / folder)])
        assert ended.value.code == 2
        assert "argument --out: [Errno" in capsys.readouterr().err


def test_unknown_experiment_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["alchemy"])
    assert ended.value.code == 2
    assert "unknown experiment 'alchemy'; experiments: shown" in capsys.readouterr().err
