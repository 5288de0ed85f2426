"""`docs/evidence/claims.md`: every statement has a proof and a verdict; what the documents name as a proof exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from headgate.bench.bench_command import CASES
from headgate.lab.lab_command import EXPERIMENTS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "evidence" / "claims.md").read_text()
DOCUMENTS = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| said by")
]
PROOFS = sorted(set(re.findall(r"`(tests/[^`]+::[^`]+|lab [^`]+|bench [^`]+)`", DOCUMENTS)) - {"lab X", "bench X"})


@cache
def _tests(path: str) -> frozenset[str]:
    file = ROOT / path
    nodes = ast.walk(ast.parse(file.read_text())) if file.is_file() else ()
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_every_claim_has_a_source_a_proof_and_a_verdict() -> None:
    assert len(ROWS) > 100
    for row in ROWS:
        assert len(row) == 4, row
        said_by, statement, seen_in, verdict = row
        assert set(said_by.split(", ")) <= set("abcde"), row
        assert statement, row
        assert verdict, row
        assert seen_in, row
        assert not re.sub(r"`[^`]+`|\s", "", seen_in), row


@pytest.mark.parametrize("proof", PROOFS)
def test_every_named_proof_exists(proof: str) -> None:
    kind, _, name = proof.partition(" ")
    if kind == "lab":
        assert name in EXPERIMENTS
    elif kind == "bench":
        assert name in CASES
    else:
        path, _, test = proof.partition("::")
        assert test in _tests(path)
