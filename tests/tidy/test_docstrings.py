"""Every example in a docstring runs, and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headgate as hg
from tests.docstring_examples import GIVEN, has_example, run, run_example

SOURCES = Path(__file__).parents[2] / "src"
#: The class whose example the examples of another class continue.
CONTINUED = {"WindowedStream": "KeyedStream"}
#: Their examples need a Spark session: tests/api/test_on_spark.py runs them.
ON_SPARK = ("DataStream.to_dataframe", "sources.dataframe", "sinks.foreach_dataframe")


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class, and of its base classes.

    Members of a base class that `headgate` exports are left out: they are members of that class.
    """
    exported = tuple(base for base in kind.__mro__[1:] if base.__name__ in hg.__all__)
    for base in kind.__mro__:
        if base is kind or not any(issubclass(each, base) for each in exported):
            yield from ((name, member) for name, member in vars(base).items() if not name.startswith("_"))


def public() -> dict[str, Any]:
    """Return the functions and classes that `headgate` and its modules export, by name."""
    things = {name: getattr(hg, name) for name in hg.__all__}
    for name, module in list(things.items()):
        if isinstance(module, ModuleType):
            things |= {f"{name}.{member}": getattr(module, member) for member in getattr(module, "__all__", ())}
    return {name: thing for name, thing in things.items() if inspect.isroutine(thing) or inspect.isclass(thing)}


PUBLIC = public()


def variables(name: str) -> dict[str, Any]:
    """Return the variables that examples of a class's members may use: those of the class's own example."""
    given = variables(CONTINUED[name]) if name in CONTINUED else GIVEN
    return run_example(PUBLIC[name], name, dict(given))


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - set(ON_SPARK)))
def test_examples_of_a_public_name_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = variables(name)
    for member_name, member in members(PUBLIC[name]) if inspect.isclass(PUBLIC[name]) else ():
        if f"{name}.{member_name}" not in ON_SPARK:
            run_example(member, f"{name}.{member_name}", dict(given))


def internal() -> Iterator[doctest.DocTest]:
    """Yield the examples of functions and methods that users do not see."""
    shown = {name.rpartition(".")[2] for name in PUBLIC}
    shown |= {base.__name__ for thing in PUBLIC.values() if inspect.isclass(thing) for base in thing.__mro__}
    for path in sorted(SOURCES.rglob("*.py")):
        if ">>> " in path.read_text():
            module = importlib.import_module(".".join(path.relative_to(SOURCES).with_suffix("").parts))
            for example in doctest.DocTestFinder().find(module, module.__name__, extraglobs=GIVEN):
                name = example.name.removeprefix(f"{module.__name__}.")
                if example.examples and name.partition(".")[0] not in shown:
                    yield example


@pytest.mark.parametrize("example", list(internal()), ids=lambda example: example.name)
def test_examples_of_an_internal_name_run(example: doctest.DocTest) -> None:
    run(example)


def test_an_example_that_is_wrong_fails() -> None:
    def wrong() -> None:
        """
        >>> 1 + 1
        3
        """

    with pytest.raises(AssertionError):
        run_example(wrong, "wrong", {})


@pytest.mark.parametrize("name", ["StreamEnvironment", "DataStream", "KeyedStream", "WindowedStream", "StreamSink"])
def test_every_call_on_environments_and_streams_has_an_example(name: str) -> None:
    calls = {call: member for call, member in members(PUBLIC[name]) if inspect.isroutine(member)}
    without = {call for call, member in calls.items() if not has_example(member)}
    only_raise = {"window", "aggregate", "process"} if name == "DataStream" else set()
    assert without == only_raise
    assert has_example(PUBLIC[name])


def test_every_name_of_the_test_kit_has_an_example() -> None:
    names = {name for name in PUBLIC if name.startswith("testing.")}
    covered_by_others = {"testing.PipelineResult"}
    assert {name for name in names if not has_example(PUBLIC[name])} == covered_by_others
