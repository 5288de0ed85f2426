"""The verdict in one line."""

from __future__ import annotations

from dataclasses import replace

from headgate.observe.finding import Cause, Finding, Remedy, Severity
from headgate.observe.verdict import verdict_of

FINDING = Finding(
    place="'sums[1]'", vertex=1, operator="sums", subtasks=(1,), waits=("numbers",),
    cause=Cause(name="slow_function", text="its function takes 0.3 s a batch", evidence={}),
    remedy=Remedy(text="4 subtasks would carry 2.0 times as many rows", gain=2.0),
)  # fmt: skip


def test_it_has_operator_cause_and_remedy() -> None:
    assert verdict_of([FINDING]).line == (
        "at its limit: 'numbers' waits for 'sums[1]': its function takes 0.3 s a batch; "
        "4 subtasks would carry 2.0 times as many rows"
    )
    assert verdict_of([replace(FINDING, severity=Severity.STUCK), FINDING]).line.startswith("stuck: 'numbers' waits")
    assert verdict_of([FINDING, FINDING, FINDING]).line.endswith(" (2 more)")
    assert verdict_of([]).line == "no bottleneck"


def test_its_key_changes_with_the_place_and_the_cause_and_not_with_numbers() -> None:
    slower = replace(FINDING.cause, text="its function takes 0.4 s a batch")
    assert verdict_of([FINDING]).key == verdict_of([replace(FINDING, cause=slower)]).key
    others = [replace(FINDING, place="'sums'"), replace(FINDING, cause=replace(slower, name="data_skew"))]
    keys = {verdict_of(findings).key for findings in ([FINDING], [], *([other] for other in others))}
    assert len(keys) == 4
