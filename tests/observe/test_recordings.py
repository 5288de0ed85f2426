"""Recordings of real situations, at least one of most of them: the diagnosis is still what it was when they ran.

`tests/observe/run_matrix.py --save tests/observe/recordings` makes them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.observe.diagnosis import LATEST, diagnose
from headgate.observe.recording import read_recording
from headgate.observe.topology import Topology
from tests.observe.run_matrix import SETS, matches
from tests.observe.situations import drawn

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.gz"))
SITUATIONS = {situation.file: situation for situation in SETS["all"]}
#: Texts that reports have beside names: kinds of operators, and the host.
_KNOWN = {"source", "operator", "sink", "127.0.0.1"}
#: The slow subtask in recordings that were made before the seed drew it: then the process that came first was slow.
OLDER = {
    "line-first-waits-in-one-subtask-0": 1,
    "line-second-computes-in-one-subtask-0": 1,
    "line-second-computes-in-one-subtask-902": 0,
}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recorded_situation_is_found(path: Path) -> None:
    name, _, seed = path.stem.rpartition("-")
    situation, recording = SITUATIONS[name], read_recording(path)
    subtask = OLDER.get(path.stem, drawn(situation, int(seed)).subtask)
    assert matches(situation, diagnose(recording.topology, recording.snapshots[-LATEST:]), subtask)


@pytest.mark.parametrize("kind", SETS)
def test_most_situations_of_a_set_are_recorded(kind: str) -> None:
    recorded = {path.stem.rpartition("-")[0] for path in RECORDINGS}
    missing = {situation.file for situation in SETS[kind]} - recorded
    assert len(missing) <= len(SETS[kind]) / 5, missing


def test_recordings_hold_no_texts_but_the_names_of_operators() -> None:
    """No names of splits, no keys, no rows, no paths."""
    for path in RECORDINGS:
        topology = read_recording(path).topology
        texts = {
            text for line in gzip.decompress(path.read_bytes()).splitlines()[1:] for text in _texts(json.loads(line))
        }
        assert texts <= _names(topology) | _KNOWN, path.name


def _names(topology: Topology) -> set[str]:
    vertices = {f"{each.name}[{subtask}]" for each in topology.vertices for subtask in range(each.parallelism)}
    operators = {each.name for vertex in topology.vertices for each in vertex.operators}
    return vertices | operators | {edge.name for edge in topology.edges}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
