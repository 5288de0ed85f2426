"""Where planted bugs find their place, and what happens when it is gone."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.protocol.credit import SenderCredit
from tests.memory.edits import Edit, always, calling, compared, constant, dropped, never, only, plus, replaced
from tests.memory.places import Place, assignment, call, choice, comparison, condition, increment, operation, returned
from tests.memory.planting import PlantedBug

ROOT = Path(__file__).parents[2]


def all_bugs() -> Iterator[PlantedBug]:
    """The planted bugs of all modules, except for those of this one."""
    for path in ROOT.glob("tests/*/test_*.py"):
        if path != Path(__file__) and "PlantedBug(" in path.read_text():
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            yield from [bug for bug in vars(module).values() if isinstance(bug, PlantedBug)]
            yield from getattr(module, "BUGS", [])


class Till:
    def __init__(self) -> None:
        self.coins = 0
        self.log: list[int] = []

    def pay(self, count: int, limit: int = 10) -> int:
        if 0 < count <= limit and not self.is_full:
            self.coins += count
            self.log.append(self.coins)
        elif count < 0:
            self.log.append(max(count, -limit))
        return self.coins - 1 if self.log[-1:] else 0

    @property
    def is_full(self) -> bool:
        return self.coins > 100


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (dropped(increment()), "pass"),
        (dropped(call("append", 2, of=2)), "pass"),
        (dropped(condition(1, of=2).operand(2)), "if 0 < count <= limit:"),
        (dropped(call("max").argument(2)), "self.log.append(max(count))"),
        (always(condition(2, of=2)), "elif True:"),
        (never(condition(1, of=2).operand(2)), "if 0 < count <= limit and False:"),
        (constant(increment().value, 1), "self.coins += 1"),
        (only(call("max").argument(1)), "self.log.append(count)"),
        (only(operation().operand(1), of=returned()), "return self.coins"),
        (plus(choice().otherwise, -1), "return self.coins - 1 if self.log[-1:] else 0 - 1"),
        (compared(comparison(1, of=2), "<", at=2), "if 0 < count < limit and (not self.is_full):"),
        (calling(call("max"), "min"), "self.log.append(min(count, -limit))"),
        (replaced(condition(2, of=2), "THIS or self.is_full"), "elif count < 0 or self.is_full:"),
        (replaced(increment(), "THIS; self.log = []"), "self.log = []"),
    ],
)
def test_an_edit_changes_its_place(edit: Edit, line: str) -> None:
    right = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(Till.pay)))).splitlines()
    wrong = ast.unparse(PlantedBug("a bug", Till.pay, edit).tree()).splitlines()
    assert [each.strip() for each in wrong if each not in right] == [line]


def test_all_planted_bugs_have_their_places() -> None:
    """Also those that this run does not hunt. This is not checked when they are made: each process makes them all."""
    bugs = list(all_bugs())
    assert len(bugs) > 300
    for bug in bugs:
        bug.check()


def test_a_bug_is_there_while_it_is_planted() -> None:
    with PlantedBug("a coin is lost", Till.pay, dropped(increment())).planted():
        assert Till().pay(5) == -1
    assert Till().pay(5) == 4


def test_a_bug_in_a_property() -> None:
    till = Till()
    with PlantedBug("it is always full", Till.is_full, always(returned())).planted():
        assert till.is_full
    assert not till.is_full


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (call("spend"), "adapt the planted bug 'a bug' in Till.pay: calls of 'spend': 0 in the function, not 1"),
        (call("append"), "'append': 2 in the function, not 1; which is it?\n  1. self.log.append(self.coins)\n  2. "),
        (assignment(), "'=': 0 in the function, not 1"),
        (call("max").argument(3), "'max(count, -limit)' has no argument 3"),
        (condition(2, of=2), "'count < 0' cannot be dropped from"),
    ],
)
def test_a_bug_without_its_place_is_an_error(place: Place, error: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(error)):
        PlantedBug("a bug", Till.pay, dropped(place)).check()


@pytest.mark.parametrize(("python", "unknown"), [("self.purse", "purse"), ("tally", "tally")])
def test_a_bug_with_a_name_that_is_gone_is_an_error(python: str, unknown: str) -> None:
    """Of another module, since this one has those names in it."""
    error = f"adapt the planted bug 'a bug': SenderCredit.add does not know {unknown}"
    with pytest.raises(AssertionError, match=error):
        PlantedBug("a bug", SenderCredit.add, replaced(increment(1, of=2), python)).check()


def test_a_bug_that_changes_nothing_is_an_error() -> None:
    with pytest.raises(AssertionError, match="the edit changes nothing"):
        PlantedBug("a bug", Till.pay, replaced(increment(), "THIS")).check()
