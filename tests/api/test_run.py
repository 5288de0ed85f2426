"""`headgate run`: its options, those of the script, errors and reports."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.api.job_builder import RESUME
from headgate.cli import main

#: A script that prints its arguments.
PRINTS_ARGUMENTS = f"import json, os, sys; print(json.dumps([sys.argv[1:], os.environ[{RESUME!r}]]))"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that writes a script. Undo what its run changes in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RESUME, "")
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text: str) -> str:
        Path("script.py").write_text(text)
        return "script.py"

    return write


@pytest.mark.parametrize(
    ("before", "behind", "start", "given"),
    [
        ([], [], "", []),
        (["--from", "latest"], ["a", "--from", "b"], "latest", ["a", "--from", "b"]),
        ([], ["--from", "latest", "a", "--from", "b"], "latest", ["a", "--from", "b"]),
        ([], ["--from=chk-1", "--", "--from", "b"], "chk-1", ["--from", "b"]),
        ([], ["--", "--from", "latest", "--"], "", ["--from", "latest", "--"]),
        (["--from=old"], ["--from", "new"], "new", []),
        ([], ["--help"], "", ["--help"]),
    ],
)
def test_options_before_the_script_and_right_behind_it_are_those_of_run(
    *, script: Callable[[str], str], capsys: pytest.CaptureFixture[str],
    before: list[str], behind: list[str], start: str, given: list[str],
) -> None:  # fmt: skip
    assert main(["run", *before, script(PRINTS_ARGUMENTS), *behind]) == 0
    assert json.loads(capsys.readouterr().out) == [given, start]


@pytest.mark.parametrize("words", [[], ["--from"], ["SCRIPT", "--from"], ["--form", "latest", "SCRIPT"], ["none.py"]])
def test_wrong_usage_is_refused(
    script: Callable[[str], str], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    name = script(PRINTS_ARGUMENTS)
    with pytest.raises(SystemExit) as ended:
        main(["run", *(name if word == "SCRIPT" else word for word in words)])
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("usage: headgate run [OPTIONS] SCRIPT [OPTIONS] [--] [ARGUMENTS]\n")


def test_an_unknown_option_names_the_closest_one(
    script: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--form", "latest", script(PRINTS_ARGUMENTS)])
    assert capsys.readouterr().err.endswith("error: there is no option --form; did you mean --from?\n")


def test_an_error_has_its_line_of_the_script(script: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    name = script(
        "import headgate as hg\n"
        "rows = hg.StreamEnvironment().from_source(hg.sources.iterable([[{'n': 1}]]))\n"
        "print(rows.schema.names)\n"
        "(rows.select('n')\n"
        "    .filter('m > 1'))\n"
    )
    assert main(["run", name]) == 1
    printed = capsys.readouterr()
    assert printed.out == "['n']\n"
    error, *shown = printed.err.splitlines()
    assert error.startswith("headgate run: script.py:5: PlanError: filter: SQL at position 1: no column 'm'; ")
    assert shown == ["  m > 1", "  ^"]


JOBS = """
import headgate as hg
env = hg.StreamEnvironment(parallelism=2)
rows = env.from_source(hg.sources.iterable([[{"n": 1}, {"n": 2}], [{"n": 3}]]))
print(rows.filter("n > 1").collect().num_rows)
rows.map(lambda row: {"n": 1 // (row["n"] - 1)}, schema=rows.schema).name("inverse").sink_to(hg.sinks.null())
env.execute("second")
"""


@pytest.mark.parametrize("to_file", [False, True])
def test_the_json_report_has_the_outcome_of_each_job(
    script: Callable[[str], str], capsys: pytest.CaptureFixture[str], to_file: bool
) -> None:
    assert main(["run", script(JOBS), "--json", "report.json" if to_file else "-"]) == 1
    printed = capsys.readouterr()
    assert "2" in (printed.out if to_file else printed.err).splitlines()
    first, second = json.loads(Path("report.json").read_text() if to_file else printed.out)["jobs"]
    assert first.pop("duration_s") > 0
    assert first == {"name": "collect", "state": "FINISHED", "error": None, "rows_in": 3, "rows_out": 2,
                     "late_rows": 0, "restarts": 0}  # fmt: skip
    assert (second["name"], second["state"]) == ("second", "FAILED")
    assert second["error"].startswith("UserFunctionError: inverse[")


def test_a_script_that_exits_without_jobs_has_an_empty_report(
    script: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--json=-", script("import sys; sys.exit(7)")])
    assert ended.value.code == 7
    assert json.loads(capsys.readouterr().out) == {"jobs": []}


def test_a_report_path_that_cannot_be_written_is_refused_first(
    script: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["run", script("print('ran')"), "--json", "no/such.json"])
    printed = capsys.readouterr()
    assert "there is no such folder" in printed.err
    assert printed.out == ""
