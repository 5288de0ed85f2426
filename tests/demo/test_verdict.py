"""The demo's verdict: each kind of failure, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.demo import demo_command as main
from headgate.demo.check import Comparison, Totals

SAME = Comparison(100, 100, 0, "")
WRONG = Comparison(100, 100, 2, "{one: two}")
SHORT = Comparison(99, 100, 0, "")


def report(
    *, early: int = 50, late: int = 0, restarts: int = 0, wanted: int = 0, days: Comparison = SAME
) -> dict[str, Any]:
    metrics = {"taskmanagers": 2, "rows_out_before_end": early, "remote_bytes": 5}
    result = hg.JobResult(
        name="demo", rows_in=1_000, rows_out=100, late_rows=late, duration_s=2.0, restarts=restarts, metrics=metrics
    )
    return main._report(result, {"hours": SAME, "days": days}, Totals(7, 8, 9), restarts=wanted)


def test_a_good_run_has_no_failures() -> None:
    assert report() == {
        "master": "local-cluster[2,1,1024]", "taskmanagers": 2, "rows_in": 1_000, "rows_out": 100,
        "rows_out_before_end": 50, "late_rows": 0, "remote_bytes": 5, "restarts": 0, "duration_s": 2.0,
        "rows_per_s": 500, "kept": 7, "unknown_planes": 8, "seats": 9, "hours": 100, "days": 100, "matches": True,
        "failures": [],
    }  # fmt: skip
    assert report(restarts=2, wanted=2)["failures"] == []


@pytest.mark.parametrize(
    ("differs", "matches", "message"),
    [
        ({"early": 49}, True, "only 49 of 100 windows were emitted before the source ended: fewer than half"),
        ({"late": 3}, True, "3 rows were late"),
        ({"restarts": 1}, True, "the job restarted 1 times, not 0"),
        ({"restarts": 1, "wanted": 2}, True, "the job restarted 1 times, not 2"),
        ({"days": WRONG}, False, "days: 2 windows differ from Spark SQL's, 100 rows instead of 100; the first: {one"),
        ({"days": SHORT}, False, "days: 0 windows differ from Spark SQL's, 99 rows instead of 100"),
    ],
)
def test_each_kind_of_failure_is_reported(differs: dict[str, Any], matches: bool, message: str) -> None:
    result = report(**differs)
    assert result["matches"] is matches
    (failure,) = result["failures"]
    assert failure.startswith(message)


@pytest.mark.parametrize(("differs", "code"), [({}, 0), ({"late": 3}, 1), ({"days": WRONG}, 1)])
def test_the_exit_code_is_the_verdict(
    differs: dict[str, Any],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(main, "run", lambda *arguments: report(**differs))
    target = tmp_path / "report.json"
    assert main.main(["--json", str(target)]) == code
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads(target.read_text()) == report(**differs)
    assert main.main(["--json", "-"]) == code
    assert json.loads(capsys.readouterr().out) == shown
