"""Pages of docs/ that are written from the code are as the code has them now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import headgate as hg

SCRIPT = Path(__file__).parents[2] / "scripts" / "docs.py"


@pytest.fixture
def docs() -> ModuleType:
    """The script that writes pages."""
    script = importlib.util.module_from_spec(spec := importlib.util.spec_from_file_location("docs", SCRIPT))
    spec.loader.exec_module(script)
    return script


def test_the_page_is_the_one_that_the_options_make(docs: ModuleType) -> None:
    page = (docs.DOCS / "configuration.md").read_text()
    assert docs.configuration(page) == page, "run scripts/docs.py"


def test_the_reference_is_the_one_that_the_docstrings_make(docs: ModuleType) -> None:
    assert (docs.DOCS / "reference.md").read_text() == docs.reference(), "run scripts/docs.py"


def test_the_planted_bugs_are_those_that_are_planted(docs: ModuleType) -> None:
    page = (docs.DOCS / "planted-bugs.md").read_text()
    assert docs.planted_bugs(page) == page, "run scripts/docs.py"


def test_all_planted_bugs_are_on_the_page(docs: ModuleType) -> None:
    root = docs.ROOT
    modules = [path for path in root.glob("tests/**/test_*.py") if "\nBUGS = [" in path.read_text()]
    planting = {str(path.relative_to(root)) for path in modules}
    page = (docs.DOCS / "planted-bugs.md").read_text()
    assert sorted(planting) == sorted(
        line.removeprefix(docs.BUGS).removesuffix(" -->") for line in page.splitlines() if line.startswith(docs.BUGS)
    )


def test_the_reference_shows_nothing_that_headgate_alone_calls(docs: ModuleType) -> None:
    page = docs.reference()
    members = {line.rpartition(".")[2] for line in page.splitlines() if line.startswith("#### ")}
    assert {"bound", "launch", "spec"} <= docs.INTERNAL
    assert members & docs.INTERNAL == set()
    assert {"value", "put_all", "register_event_time_timer"} <= members


def test_every_name_is_in_the_reference(docs: ModuleType) -> None:
    shown = [name for names in docs.SECTIONS.values() for name in names]
    assert sorted([*shown, *docs.ELSEWHERE]) == sorted(hg.__all__)
