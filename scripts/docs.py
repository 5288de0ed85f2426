#!/usr/bin/env python3
"""Write the parts of docs/ that are generated: the table of options in configuration.md, reference.md, and the lists of
planted-bugs.md."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import headgate as hg
from headgate.config import Config
from headgate.operators.keyed.state_base import State
from headgate.options import option_of
from headgate.runtime.deployment import Deployment

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HEADER = "| name | type | unit | default | meaning |"

REFERENCE = """# Reference

All that `import headgate as hg` has: each name with its signature and what its docstring says. Options of `hg.Config`
are in [configuration.md](configuration.md), what SQL strings may say is in [expressions.md](expressions.md), and what
each error means in [failures.md](failures.md). This page is written by `scripts/docs.py`.
"""
#: Sections of the reference, and what is in each.
SECTIONS = {
    "Environment": ["StreamEnvironment"],
    "Streams": ["DataStream", "StreamSink"],
    "Keys": ["KeyedStream"],
    "Windows and event time": ["WindowedStream", "tumble", "hop", "Watermark"],
    "Aggregates": ["count", "sum", "mean", "min", "max", "first", "last", "count_distinct", "collect_list"],
    "Functions with state and timers": [
        "KeyedProcessFunction", "ProcessContext", "ValueState", "ListState", "MapState", "SideOutput",
    ],
    "Sources": ["sources"],
    "Sinks": ["sinks", "BatchInfo"],
    "Where jobs run": ["LocalDeployment", "SparkDeployment"],
    "Running jobs": ["JobHandle", "JobResult", "CheckpointRecord", "restart"],
    "Testing": ["testing"],
    "Errors": [
        "HeadgateError", "CheckpointError", "ConfigError", "DataError", "ExchangeError", "InsufficientBuffers",
        "JobCancelled", "NotEnoughSlots", "PlanError", "SessionLost", "SinkError", "SourceError", "SpillError",
        "StateMemoryExceeded", "Superseded", "TaskManagerLost", "UserFunctionError", "LostChangeWarning",
    ],
}  # fmt: skip
#: Classes that nobody makes but Headgate.
GIVEN = {
    "DataStream", "StreamSink", "KeyedStream", "WindowedStream", "ProcessContext", "JobHandle", "JobResult",
    "CheckpointRecord", "testing.PipelineResult", *SECTIONS["Errors"],
}  # fmt: skip
#: Members of public classes that only Headgate calls.
INTERNAL = {*vars(Deployment), *vars(State), "spec"}
#: What stands above a list of planted bugs, before the path of the tests.
BUGS = "<!-- BUGS of "
#: Characters of a signature that stands on one line.
LINE = 100
#: Names with a page of their own, or of one line.
ELSEWHERE = {"Config", "__version__"}


def configuration(page: str) -> str:
    """The page with its table written anew."""
    before, _, after = page.partition(HEADER)
    rest = "\n".join(line for line in after.splitlines() if not line.startswith("|"))
    return before + "\n".join([HEADER, "|---|---|---|---|---|", *map(_row, dataclasses.fields(Config))]) + rest + "\n"


def _row(field: dataclasses.Field[object]) -> str:
    option = option_of(field)
    cells = (f"`{field.name}`", option.kind.name, option.unit, option.kind.show(field.default), option.meaning)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def reference() -> str:
    """The page."""
    parts = [REFERENCE]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts.extend(_entries(f"hg.{name}", getattr(hg, name)))
    return "\n".join(parts)


def _entries(name: str, thing: object) -> Iterator[str]:
    if inspect.ismodule(thing):
        for each in thing.__all__:
            yield from _entries(f"{name}.{each}", getattr(thing, each))
        return
    yield f"### {name}\n\n{_described(name, thing)}"
    if inspect.isclass(thing) and not issubclass(thing, BaseException):
        for each, member in _members(thing):
            yield f"#### {name.rpartition('.')[2]}.{each}\n\n{_described(each, member)}"


def _members(kind: type) -> Iterator[tuple[str, object]]:
    """Public methods and properties, in the order of the source, those of its own bases first."""
    found: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("headgate."):
            found.update({name: each for name, each in vars(base).items() if _is_shown(name, each)})
    yield from found.items()


def _is_shown(name: str, member: object) -> bool:
    is_member = inspect.isfunction(member) or isinstance(member, property)
    return is_member and not name.startswith("_") and name not in INTERNAL


def _fenced(text: str) -> str:
    """With the examples of a docstring as code."""
    parts = text.split("\n\n")
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in parts)


def _described(name: str, thing: object) -> str:
    text = _fenced(inspect.getdoc(thing) or "")
    is_called = callable(thing) and name.removeprefix("hg.") not in GIVEN
    return f"```python\n{_call(name, thing)}\n```\n\n{text}\n" if is_called else f"{text}\n"


def _call(name: str, thing: object) -> str:
    """How it is called, one argument on each line where one line is too short."""
    signature = inspect.signature(thing)
    hidden = [each for each in signature.parameters.values() if each.name == "self" or each.annotation == "Never"]
    arguments = list(_arguments([each for each in signature.parameters.values() if each not in hidden]))
    gives = "" if inspect.isclass(thing) else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(arguments)}){gives}"
    return line if len(line) <= LINE else f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){gives}"


def _arguments(parameters: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred |= each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {each.annotation}"
        default = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"{stars}{each.name}{kind}{default}"


def planted_bugs(page: str) -> str:
    """The page with its lists written anew: each stands below a comment that names the tests."""
    lines: list[str] = []
    is_list = False
    for line in page.splitlines():
        is_list = is_list and line.startswith("- ")
        if not is_list:
            lines.append(line)
        if line.startswith(BUGS):
            is_list = True
            module = importlib.import_module(line.removeprefix(BUGS).split(".py")[0].replace("/", "."))
            lines += [f"- {bug.name} (`{bug.place}`)" for bug in module.BUGS]
            lines += [f"- {name} (a rule lacks a step)" for name, *_ in getattr(module, "LACKING", ())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for name, written in {"configuration.md": configuration, "planted-bugs.md": planted_bugs}.items():
        page = DOCS / name
        page.write_text(written(page.read_text()))
    (DOCS / "reference.md").write_text(reference())
