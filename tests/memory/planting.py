"""Bugs planted one at a time into the real code, to show that a test would notice them.

A bug is a one-line edit of one method. The edit must fit the source exactly once, so with a bug that no longer applies
after a change of the code its module is not collected, instead of proving nothing.

The hunt for all of them takes minutes: `make test` hunts one part, another one at each commit (`--planted slice`), and
`make soak` all. A test that plants a bug has a name that ends with `_is_caught`.
"""

from __future__ import annotations

import inspect
import struct
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from headgate.errors import HeadgateError

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

#: Examples that are made out of each other begin anew so often. Hypothesis also draws numbers from the source of all
#: modules that are loaded, so what one seed finds depends on the tests that ran before.
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
    """In `owner.method`, `wrong` stands where `right` should."""

    name: str
    owner: type[Any]
    method: str
    right: str
    wrong: str

    def __post_init__(self) -> None:
        place = f"{self.owner.__name__}.{self.method}"
        assert self._source().count(self.right) == 1, f"{self.name}: not once in {place}: {self.right!r}; adapt the bug"

    def _function(self) -> Any:
        return _plain(vars(self.owner)[self.method])

    def _source(self) -> str:
        return textwrap.dedent(inspect.getsource(self._function()))

    @contextmanager
    def planted(self) -> Iterator[None]:
        plain, source = self._function(), self._source()
        made: dict[str, Any] = {}
        edited = source.replace(self.right, self.wrong).replace("super()", f"super({self.owner.__name__}, self)")
        code = compile(edited, f"<{self.name}>", "exec")
        exec(code, plain.__globals__, made)
        with _replaced(self.owner, self.method, plain, made[self.method]):
            yield


def _plain(member: Any) -> Any:
    """The function of a property, a class method or a static method."""
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
