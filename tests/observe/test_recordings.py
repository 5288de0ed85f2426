"""Recordings of real faults, five seconds after their onset: the diagnosis is still what it was when they ran.

`tests/observe/run_matrix.py --save tests/observe/recordings` makes them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.observe.diagnosis import LATEST, diagnose
from headgate.observe.recording import read_recording
from tests.observe.run_matrix import matches
from tests.observe.situations import HEALTHY, TUNING

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.gz"))
SITUATIONS = {situation.file: situation for situation in (*TUNING, *HEALTHY)}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recorded_fault_is_found(path: Path) -> None:
    situation = SITUATIONS[path.stem.rpartition("-")[0]]
    recording = read_recording(path)
    assert matches(situation, diagnose(recording.topology, recording.snapshots[-LATEST:]))


def test_most_situations_are_recorded() -> None:
    recorded = {path.stem.rpartition("-")[0] for path in RECORDINGS}
    assert len(recorded) > len(SITUATIONS) / 2
