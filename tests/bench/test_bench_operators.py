"""The case `operators`: its rows, its jobs in small, and its verdict. Speed is not tested."""

from __future__ import annotations

import numpy as np
import pytest

from headgate.bench import stateful_operators as operators
from headgate.bench.case_options import Options
from headgate.bench.stateful_operators import GROUPS, JOBS, KEYS, MANY_KEYS, StatefulJob, timed_rows
from headgate.errors import HeadgateError


def test_a_row_depends_on_its_number_alone_and_all_keys_occur() -> None:
    whole, many = timed_rows(0, 1_000_000, salt=7), timed_rows(0, 1_000_000, salt=7, keys=MANY_KEYS)
    assert len(many["key"].unique()) > MANY_KEYS * 0.6, "a share of 1 - 1/e"
    assert whole.slice(5_000, 300).equals(timed_rows(5_000, 300, salt=7))
    assert not whole.slice(0, 300).equals(timed_rows(0, 300, salt=8))
    for name, most in (("key", KEYS), ("group", GROUPS)):
        counts = np.bincount(whole[name].to_numpy(), minlength=most)
        assert len(counts) == most
        assert counts.max() < 3 * counts.mean() + 20


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_job_reads_all_rows_and_emits_some(job: StatefulJob) -> None:
    elapsed, used = job.run(120_000)
    assert elapsed > 0
    assert used > 0


@pytest.mark.parametrize(("seconds", "met"), [(0.9e-6, True), (1.1e-6, False)])
def test_every_join_must_reach_the_rate(seconds: float, met: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: StatefulJob, rows: int) -> tuple[float, float]:
        used = seconds if job.name == "as-of join" else 0.5e-6 if job.is_join else 2e-6
        return 3 + rows * 2 * used, 1 + rows * used

    monkeypatch.setattr(StatefulJob, "run", run)
    result = operators.run(Options(quick=False, say=lambda text: None))
    figures = {figure.name: figure for figure in result.figures}
    assert result.passed is met
    assert figures["as-of join: processor time"].values == pytest.approx([seconds * 1e6] * operators.ROUNDS)
    assert figures["as-of join"].median == pytest.approx(0.5 / seconds)
    assert figures["session: processor time"].median == pytest.approx(2)


def test_a_job_that_cannot_run_is_skipped_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: StatefulJob, rows: int) -> tuple[float, float]:
        if job.name == "quantile":
            raise HeadgateError("no sketches")
        return (1.0, 1.0) if job.name == "top" else (rows * 1e-7, rows * 1e-7)

    monkeypatch.setattr(StatefulJob, "run", run)
    result = operators.run(Options(quick=True, say=lambda text: None))
    reasons = {skipped.what: skipped.reason for skipped in result.skipped}
    assert reasons["quantile"].startswith("no sketches")
    assert "the machine is busy" in reasons["top"]
    assert len(result.figures) == 2 * (len(JOBS) - 2)
    assert result.met
    assert not result.passed
