"""What remedies gain, and what the diagnosis predicted: `tests/observe/run_remedies.py`, on an idle machine."""

from __future__ import annotations

import pytest

from tests.observe.run_remedies import CASES, Case, run

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_remedy_gains_what_was_predicted(case: Case) -> None:
    outcome = run(case)
    assert outcome.before.finding is not None, "no finding named the cause"
    assert outcome.is_right, outcome.row
