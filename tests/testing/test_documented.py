"""The examples on the page and in the docstrings of the test kit run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate import testing

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-a-pipeline.md"
#: Names that the example of another name covers.
WITHIN_OTHERS = {"AdvanceClock", "PipelineResult"}


def shown_on_the_page() -> list[Any]:
    shown: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), "exec"), shown)
    return [pytest.param(each, id=name) for name, each in shown.items() if name.startswith("test_")]


@pytest.mark.parametrize("test", shown_on_the_page())
def test_the_examples_of_the_page(test: Any) -> None:
    test()


def test_the_page_has_examples() -> None:
    assert len(shown_on_the_page()) == 4


@pytest.mark.parametrize("name", sorted({*testing.__all__} - WITHIN_OTHERS))
def test_the_example_of_a_docstring(name: str) -> None:
    found = doctest.DocTestFinder(recurse=False).find(getattr(testing, name), name, globs={"hg": hg, "pa": pa})
    examples = [each for each in found if each.examples]
    assert len(examples) == 1
    assert doctest.DocTestRunner().run(examples[0]).failed == 0
