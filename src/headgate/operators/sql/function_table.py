"""`Function`: an entry of the table of SQL functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from headgate.operators.sql.function_arguments import Arguments
from headgate.operators.sql.sql_eval import SqlNode


@dataclass(frozen=True, slots=True)
class Function:
    """A function of SQL strings: how a call looks, what it means, and how a call is compiled.

    `usage` shows one call, as in `substring(s, start[, length])`. The other names mean the same.
    """

    usage: str
    meaning: str
    compile: Callable[[Arguments], SqlNode]
    least: int
    #: The most arguments, or None for any number.
    most: int | None
    _: KW_ONLY
    other_names: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.usage.partition("(")[0], *self.other_names)

    def call(self, arguments: Arguments) -> SqlNode:
        """Compile a call. Raises PlanError for a wrong number of arguments, and for arguments of a wrong type."""
        count = len(arguments)
        if count < self.least or (self.most is not None and count > self.most):
            arguments.refuse(None, f"got {count} arguments; write {self.usage}")
        return self.compile(arguments)
