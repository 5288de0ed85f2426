"""The situations, live: how often the diagnosis names the place and the cause. `run_matrix.py` runs all of them.

SEED=1234 in the environment draws other situations and other sizes, and COUNT=5 so many of each kind.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from tests.observe.run_matrix import SETS, run
from tests.observe.situations import DEPLOYMENTS, SPARK, WITHOUT, Situation

#: How many situations with a fault run in each deployment, and how many healthy ones. A run takes 13 s.
COUNT = 16
#: The least share of right findings, as docs/evidence/diagnosis.md has it.
LEAST = 0.9
#: The page that has a table of all causes.
CAUSES = Path(__file__).parents[2] / "docs/how-to/find-the-slow-operator.md"


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_most_findings_are_right_and_nobody_healthy_is_blamed(capsys: pytest.CaptureFixture[str]) -> None:
    seed, count = int(os.environ.get("SEED", "3000")), int(os.environ.get("COUNT", COUNT))
    draw = random.Random(seed)
    faults: list[str] = []
    wrong: list[str] = []
    blamed: list[str] = []
    with capsys.disabled():
        try:
            for on in DEPLOYMENTS:
                for situation in _chosen(draw, on, count):
                    is_right = run(situation, seed, on)
                    named = f"{situation.name} [{seed}, {on}]"
                    faults += [] if is_right is None or situation.is_healthy else [named]
                    if is_right is False:
                        (blamed if situation.is_healthy else wrong).append(named)
        finally:
            SPARK.stop()
    assert not blamed
    assert len(wrong) <= (1 - LEAST) * len(faults), f"{len(wrong)} of {len(faults)} are wrong: {wrong}"


def _chosen(draw: random.Random, on: str, count: int) -> list[Situation]:
    """Draw situations. Those that have a deployment of their own, and the long ones, run with processes only."""
    kinds = ("faults", "others", "causes") if on == DEPLOYMENTS[0] else ("faults",)
    possible = [each for kind in kinds for each in SETS[kind] if not each.is_healthy]
    healthy = [each for each in SETS["healthy"] if on == DEPLOYMENTS[0] or not each.setting.deployment]
    return [*draw.sample(possible, min(count, len(possible))), *draw.sample(healthy, max(1, count // 5))]


def test_each_cause_has_a_situation() -> None:
    """Or a reason why it has none."""
    table = CAUSES.read_text().partition("## Causes that the diagnosis knows")[2].partition("\n## ")[0]
    causes = {name for row in table.splitlines() if row.startswith("| `") for name in _names(row)}
    run = {name for each in SETS["all"] for trouble in each.troubles for name in trouble.causes}
    assert run | set(WITHOUT) == causes
    assert not run & set(WITHOUT)


def _names(row: str) -> list[str]:
    return re.findall(r"`(\w+)`", row.split("|")[1])
