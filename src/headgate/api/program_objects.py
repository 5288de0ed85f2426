"""Finds what a program can read after its job has ended: variables, and attributes of the objects in variables.

The search never runs the user's code, such as a property or `__getattr__`.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, Final

#: The methods in which an object builds, in each process, the attributes that are not pickled with it.
_BUILDS: Final = ("open", "__setstate__")


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A variable of the program such as `seen`, or an attribute of an object in a variable, such as `counter.rows`."""

    name: str
    value: Any
    #: Whether the program can read the value after the job. It cannot read an object that only the user's function has.
    is_readable: bool = True

    @property
    def kind(self) -> str:
        """The name of the value's type."""
        return type(self.value).__name__

    @property
    def is_data(self) -> bool:
        """Whether the value is data of the program.

        None is not data: a function that finds None often builds an object for its own process.
        """
        return self.value is not None and not callable(self.value) and not isinstance(self.value, ModuleType)

    def attribute(self, name: str, module: str) -> Place | None:
        """Return an attribute that the program can read, or None.

        Returns None for a name that begins with an underscore, and for an attribute that the object builds in each
        process. `module` is the module of the function that uses the attribute.
        """
        if not self.is_readable or name.startswith("_") or not self._is_of(module) or name in _built(self.value):
            return None
        value = inspect.getattr_static(self.value, name, None)
        # An attribute of __slots__: getattr() could call the user's __getattr__.
        if isinstance(value, MemberDescriptorType):
            try:
                value = value.__get__(self.value)
            except AttributeError:  # the attribute is not yet set
                return None
        return None if hasattr(type(value), "__get__") else Place(f"{self.name}.{name}", value)

    def method(self, name: str, module: str) -> FunctionType | None:
        """Return a method of the object as the function in its class, or None."""
        if isinstance(self.value, type) or not self._is_of(module):
            return None
        value = inspect.getattr_static(self.value, name, None)
        return value if isinstance(value, FunctionType) else None

    def _is_of(self, module: str) -> bool:
        """Return whether the value is a class of `module`, or an instance of such a class. Other objects belong to
        libraries."""
        if isinstance(self.value, SimpleNamespace):
            return True
        kind = self.value if isinstance(self.value, type) else type(self.value)
        return any(base.__module__ == module for base in kind.__mro__)


def _built(thing: object) -> set[str]:
    """Return the attributes that the object builds in each process."""
    methods = (inspect.getattr_static(thing, name, None) for name in _BUILDS)
    codes = (method.__code__ for method in methods if isinstance(method, FunctionType))
    return {step.argval for code in codes for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}


def frames_of_program() -> Iterator[FrameType]:
    """Yield the program's frames that wait for a call of Headgate, the innermost frame first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("headgate."):
            yield frame
        frame = frame.f_back


def place_of(thing: object) -> Place:
    """Return the place of an object, named after a variable that holds the object.

    Without such a variable, the place is not readable.
    """
    module = sys.modules.get(type(thing).__module__)
    scopes = [scope for frame in frames_of_program() for scope in (frame.f_locals, frame.f_globals)]
    for scope in (*scopes, vars(module) if module else {}):
        for name, value in dict(scope).items():  # a copy: other threads may add names
            if value is thing and name.isidentifier():  # names such as .0 and @py_assert1 are not the user's
                return Place(name, thing)
    return Place(type(thing).__name__, thing, is_readable=False)


def place_of_cell(name: str, value: object) -> Place:
    """Return the place of a variable of an outer function.

    The place is readable if the outer function is running, because it then waits for the job. It is also readable if
    another variable holds the same object.
    """
    runs = any(name in frame.f_code.co_cellvars and frame.f_locals.get(name) is value for frame in frames_of_program())
    # Builtins do not count: a 1 in another variable may be the same object by chance.
    is_held = type(value).__module__ != "builtins" and place_of(value).is_readable
    return Place(name, value, is_readable=runs or is_held)
