"""Bugs planted one at a time into the real code, to show that a test would notice them.

A bug is one edit (edits.py) of one place (places.py) in one method:

    PlantedBug("an event spends credit", Sender._frame, always(condition(2, of=3)))
    PlantedBug("a cancelled channel sends no message", Receiver.cancel, dropped(call("append", 1, of=2)))

The name is a sentence that says what the bug does.

It outlives the renaming of variables and attributes, and any new layout. If a change of the code takes its place away,
or brings another place of that kind, then test_planting.py fails, and the error says what to choose from; it never
moves to another place, where it would prove nothing.

The hunt for all of them takes minutes: `make test` hunts one part, another one at each commit (`--planted slice`), and
`make soak` all. A test that plants a bug has a name that ends with `_is_caught`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import struct
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from headgate.errors import HeadgateError
from tests.memory.edits import Edit

#: The same examples in every run, and no shrinking: a planted bug only has to be found.
HUNT = settings(
    max_examples=1000,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,  # one bug may break several laws; the first is enough
)

#: The number of seeds from which examples that are made out of each other start again. Hypothesis also draws numbers
#: from the source of all modules that are loaded, so what one seed finds depends on the tests that ran before.
_SEEDS: Final = 8
#: From the tenth example on Hypothesis makes out of each one the next five, with little changed in them.
_UNLIKE: Final = 9


def run_machine(machine: type[RuleBasedStateMachine], hunt: settings = HUNT, *, alike: bool = False) -> None:
    """Run `hunt.max_examples` examples or a few more. None is made out of another, so that as many show more; but with
    `alike` most are, which finds what takes several steps in a row that have to fit."""
    if alike:
        most = -(-hunt.max_examples // _SEEDS)
        for number in range(_SEEDS):
            run_state_machine_as_test(seed(number)(machine), settings=settings(hunt, max_examples=most))
        return
    for number in range(-(-hunt.max_examples // _UNLIKE)):
        run_state_machine_as_test(seed(number)(machine), settings=settings(hunt, max_examples=_UNLIKE))


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """In that function, or the function of that property, of a class, stands what the edit makes of it."""

    name: str
    function: Callable[..., Any] | property
    edit: Edit

    def check(self) -> None:
        """Raises AssertionError unless its place is there, and the edit makes something else of it."""
        try:
            unknown = self._unknown(self.tree())
        except AssertionError as error:
            raise AssertionError(f"adapt the planted bug {self.name!r} in {self.place}: {error}") from None
        assert not unknown, f"adapt the planted bug {self.name!r}: {self.place} does not know {', '.join(unknown)}"

    @property
    def place(self) -> str:
        """`Class.method`."""
        return str(_plain(self.function).__qualname__)

    def tree(self) -> ast.Module:
        """The function with the bug."""
        tree = ast.parse(textwrap.dedent(inspect.getsource(_plain(self.function))))
        before = ast.dump(tree)
        self.edit(tree)
        assert ast.dump(tree) != before, "the edit changes nothing"
        return ast.fix_missing_locations(tree)

    def _unknown(self, tree: ast.Module) -> list[str]:
        """Names of the function with the bug that its module does not have, and attributes that nothing here has."""
        function = _plain(self.function)
        words = set(re.findall(r"\w+", inspect.getsource(sys.modules[function.__module__])))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
        return sorted(names - words - {*dir(builtins), "_"} | own - words)

    @contextmanager
    def planted(self) -> Iterator[None]:
        plain = _plain(self.function)
        made: dict[str, Any] = {}
        owner = plain.__globals__[self.place.partition(".")[0]]
        tree = _NamedSuper(owner.__name__).visit(self.tree())
        exec(compile(ast.fix_missing_locations(tree), f"<{self.name}>", "exec"), plain.__globals__, made)
        with _replaced(owner, plain.__name__, plain, made[plain.__name__]):
            yield


class _NamedSuper(ast.NodeTransformer):
    """`super()` outside of its class has to say of which."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = [ast.Name(self._owner, ast.Load()), ast.Name("self", ast.Load())]
        return node


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _plain(member: Any) -> Any:
    """The function of a property or of a class method."""
    return getattr(member, "fget", None) or getattr(member, "__func__", member)


@contextmanager
def _replaced(owner: type[Any], method: str, right: Any, wrong: Any) -> Iterator[None]:
    """The function itself becomes the wrong one, since tables of rules hold it too; or the method, where `super()` ties
    the function to its class."""
    if right.__code__.co_freevars:
        before = vars(owner)[method]
        setattr(owner, method, wrong)
        try:
            yield
        finally:
            setattr(owner, method, before)
        return
    code, right.__code__ = right.__code__, _plain(wrong).__code__
    try:
        yield
    finally:
        right.__code__ = code


def assert_caught(
    bug: PlantedBug, machine: type[RuleBasedStateMachine], hunt: settings = HUNT, *, alike: bool = False
) -> None:
    """Fails unless the machine fails with the bug in place: on a law of its own or of the code's, or for want of what
    the bug has lost."""
    # Flaky: it failed once, and not when Hypothesis tried the same again. Threads and files are in some machines.
    with bug.planted(), pytest.raises((AssertionError, HeadgateError, LookupError, ValueError, struct.error, Flaky)):
        run_machine(machine, hunt, alike=alike)
