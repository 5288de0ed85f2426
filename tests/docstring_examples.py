"""Run the `>>>` examples of docstrings."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headgate as hg

#: What examples use without an import. The module name is that of a program, whose functions travel by value.
GIVEN = {"hg": hg, "pa": pa, "pc": pc, "__name__": "__main__"}


def has_example(thing: Any) -> bool:
    return ">>> " in (inspect.getdoc(thing) or "")


def run_example(thing: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Run the example of a thing, if it has one. Return `given` and the variables of the example."""
    if not has_example(thing):
        return dict(given)
    return run(doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", given, name, None, None))


def run(example: doctest.DocTest) -> dict[str, Any]:
    """Run an example, which must print what it says. Return its variables."""
    assert doctest.DocTestRunner().run(example, clear_globs=False).failed == 0
    return dict(example.globs)
