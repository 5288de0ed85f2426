from __future__ import annotations

from pathlib import Path

from tests.ending import TooLate

TRIED: list[Path] = []


def test_the_best_of_three_tries_counts(tmp_path: Path) -> None:
    TRIED.append(tmp_path)
    if len(TRIED) < 3:
        raise TooLate
    assert len(set(TRIED)) == 3, "each with fixtures of its own"
