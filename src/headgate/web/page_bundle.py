"""The modules of the page as one script: a page that is opened as a file may not load modules from other files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_NAMED: Final = re.compile(r'^import \{([^}]*)\} from "\./([\w.]+)";$', re.MULTILINE)
_WHOLE: Final = re.compile(r'^import \* as (\w+) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?function|const|let) (\w+)", re.MULTILINE)
_LEFT_OVER: Final = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def bundled(entry: str, modules: Mapping[str, str]) -> str:
    """Return a script that does what the module `entry` does. `modules` has the text of each module by file name.

    Each module becomes a function that returns what it exports. The function runs once, before the modules that import
    it. Raises ValueError for imports and exports of a form that the page does not use, and for modules that import each
    other in a circle.
    """
    order: list[str] = []
    _visit(entry, modules, order, ())
    return '"use strict";\n' + "\n".join(_function(name, modules[name]) for name in order)


def _visit(name: str, modules: Mapping[str, str], order: list[str], above: tuple[str, ...]) -> None:
    """Add a module to `order`, behind all that it imports."""
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' -> '.join((*above, name))}")
    if name in order:
        return
    found = [*_NAMED.findall(modules[name]), *_WHOLE.findall(modules[name])]
    for _, imported in found:
        _visit(imported, modules, order, (*above, name))
    order.append(name)


def _function(name: str, source: str) -> str:
    exported = ", ".join(each for _, each in _EXPORT.findall(source))
    body = _NAMED.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = {_variable(found[2])};", source)
    body = _WHOLE.sub(lambda found: f"const {found[1]} = {_variable(found[2])};", body)
    body = _EXPORT.sub(r"\1 \2", body)
    if left_over := _LEFT_OVER.search(body):
        raise ValueError(f"{name}: this cannot be bundled: {left_over[0]}")
    return f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"


def _variable(name: str) -> str:
    return f"module_{name.partition('.')[0]}"
