"""The examples in the docstrings of `hg.sources` and `hg.sinks` run and print what their comments say."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors import built_in_sinks, built_in_sources

FUNCTIONS = [getattr(module, name) for module in (built_in_sources, built_in_sinks) for name in module.__all__]
if find_spec("deltalake"):
    FUNCTIONS.append(hg.sources.delta)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: f"{function.__module__}.{function.__name__}")
def test_the_example_prints_what_its_comments_say(
    function: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment after a call, or on a line of its own, is a line of output."""
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"^```python\n(.*?)^```$", inspect.getdoc(function) or "", re.DOTALL | re.MULTILINE)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(example, function.__name__, "exec"), {"hg": hg, "pa": pa, "__name__": "example"})
    assert output.getvalue().splitlines() == re.findall(r"(?:^|  )# (.+)$", example, re.MULTILINE)
