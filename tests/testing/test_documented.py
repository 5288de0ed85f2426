"""The examples on the page of the test kit run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-a-pipeline.md"


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
