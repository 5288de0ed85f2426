"""Declare an option in one place: its default, how values are read, their bounds, its unit and its meaning.

`DeclaredOptions` is the base class of `Config`, which has all options of a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from headgate.errors import ConfigError, printable
from headgate.redaction import redacted

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

    `needs` names another option, without which this one has no effect. The value of a `secret` option is never shown.
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
    """Return an option as a field of a dataclass.

    `bounds` are the attributes `least`, `above`, `most`, `needs` and `secret` of `Option`.

    `parallelism: int = option(1, WHOLE, "Subtasks of an operator.", unit="subtasks", least=1)`
    """
    described = Option(kind, meaning, kind.unit if unit is None else unit, **bounds)
    return field(default=default, metadata={_KEY: described}, repr=not described.secret)


def option_of(declared: Field[Any]) -> Option:
    """Return the `Option` of a field that `option` made."""
    described: Option = declared.metadata[_KEY]
    return described


class DeclaredOptions:
    """The base class of a frozen dataclass whose fields are options. Each option is a keyword argument.

    Raises ConfigError for an unknown option, for an impossible value, and for an option that would have no effect.
    """

    __slots__ = ()

    def __init__(self, **options: Any) -> None:
        declared = self._declared()
        for name in options:
            if name not in declared:
                near = get_close_matches(name, declared, 1) or [each for each in declared if each.endswith(f"_{name}")]
                hint = f"did you mean {' or '.join(near)}?" if near else f"known options: {', '.join(declared)}"
                raise ConfigError(f"unknown option {name!r}; {hint}")
        for name, each in declared.items():
            value = option_of(each).parse(name, options[name]) if name in options else each.default
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        """Check combinations of options, and refuse an option that would have no effect."""
        self._check_needs()

    def _check_needs(self) -> None:
        for name in self._changed():
            needed = option_of(self._declared()[name]).needs
            if needed is not None and not getattr(self, needed):
                remedy = f"{needed}=True" if getattr(self, needed) is False else needed
                raise ConfigError(f"{name} has no effect without {remedy}: set {remedy}, or leave {name} out")

    @classmethod
    def _declared(cls) -> dict[str, Field[Any]]:
        """Return the options by name."""
        declared: Any = cls
        return {each.name: each for each in fields(declared)}

    def _changed(self) -> list[str]:
        """Return the names of options that differ from their defaults."""
        return [name for name, each in self._declared().items() if getattr(self, name) != each.default]

    def shown(self) -> dict[str, str]:
        """Return the options that differ from their defaults, as text without credentials.

        Surrogates, which a folder's name may contain, are escaped: no JSON could have them.
        """
        declared = self._declared()
        return {
            name: "***" if option_of(declared[name]).secret else printable(redacted(str(getattr(self, name))))
            for name in self._changed()
        }
