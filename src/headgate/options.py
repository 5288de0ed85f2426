"""Declare an option in one place: its default, how values are read, their bounds, its unit and its meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, Field, dataclass, field
from typing import Any

from headgate.errors import ConfigError

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of options: its name in the documentation, how a value is read, and how a value is shown.

    `parse` returns the value in its final form, and raises ConfigError for a value that is not of this kind.
    """

    name: str
    parse: Callable[[Any], Any]
    unit: str = ""
    show: Callable[[Any], str] = str


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a job. Bounds are in `unit`.

    The option has no effect unless the option `needs` is set. The value of a `secret` option is never shown.
    """

    kind: Kind
    meaning: str
    unit: str
    _: KW_ONLY
    least: float | None = None
    above: float | None = None
    most: float | None = None
    needs: str | None = None
    secret: bool = False

    def parse(self, name: str, value: object) -> Any:
        """Read a value and check its bounds. Raises ConfigError with the option's name."""
        try:
            parsed = self.kind.parse(value)
        except ConfigError as error:
            raise ConfigError(f"option {name}: {error.message}") from None
        if isinstance(parsed, (int, float)):
            self._check(name, parsed)
        return parsed

    def _check(self, name: str, value: float) -> None:
        too_low = (self.least is not None and value < self.least) or (self.above is not None and value <= self.above)
        if too_low or (self.most is not None and value > self.most):
            raise ConfigError(f"{name}={value} is impossible: it must be {self._bounds()}")

    def _bounds(self) -> str:
        bounds = ("at least", self.least), ("above", self.above), ("at most", self.most)
        return " and ".join(f"{word} {self.kind.show(bound)}" for word, bound in bounds if bound is not None)


def option(default: Any, kind: Kind, meaning: str, *, unit: str | None = None, **bounds: Any) -> Any:
    """Return a field of a dataclass that is an option.

    `bounds` are the attributes `least`, `above`, `most`, `needs` and `secret` of `Option`.

    `parallelism: int = option(1, WHOLE, "Subtasks of an operator.", unit="subtasks", least=1)`
    """
    described = Option(kind, meaning, kind.unit if unit is None else unit, **bounds)
    return field(default=default, metadata={_KEY: described}, repr=not described.secret)


def option_of(declared: Field[Any]) -> Option:
    """Return the `Option` of a field that `option` made."""
    described: Option = declared.metadata[_KEY]
    return described
