"""Find what a program can read after its job has ended: its variables, and attributes of the objects in them.

The search runs none of the user's code: no property, and no `__getattr__`.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, Final

#: Methods in which an object builds, in each process, what is not pickled with it.
_BUILDS: Final = ("open", "__setstate__")


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A variable of the program such as `seen`, or an attribute of an object in one such as `counter.rows`."""

    name: str
    value: Any
    #: Whether the program can read it after the job. It cannot read an object that only the job's function has.
    is_readable: bool = True

    @property
    def kind(self) -> str:
        """The name of the value's type."""
        return type(self.value).__name__

    @property
    def is_data(self) -> bool:
        """Whether the value is data of the program. None is not: a function that finds None often builds what its
        process needs."""
        return self.value is not None and not callable(self.value) and not isinstance(self.value, ModuleType)

    def attribute(self, name: str, module: str) -> Place | None:
        """Return an attribute that the program can read, or None.

        Names that begin with an underscore do not count, nor do attributes that the object builds in each process.
        `module` is the module of the function that uses the attribute.
        """
        if not self.is_readable or name.startswith("_") or not self._is_of(module) or name in _built(self.value):
            return None
        value = inspect.getattr_static(self.value, name, None)
        if isinstance(value, MemberDescriptorType):  # of __slots__; getattr() could call the user's __getattr__
            try:
                value = value.__get__(self.value)
            except AttributeError:  # not yet set
                return None
        return None if hasattr(type(value), "__get__") else Place(f"{self.name}.{name}", value)

    def method(self, name: str, module: str) -> FunctionType | None:
        """Return a method of the object as the function in its class, or None."""
        if isinstance(self.value, type) or not self._is_of(module):
            return None
        value = inspect.getattr_static(self.value, name, None)
        return value if isinstance(value, FunctionType) else None

    def _is_of(self, module: str) -> bool:
        """Tell whether the object is the program's and not a library's: a class of `module`, or an instance of one."""
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
    """Yield the frames of the program that wait for Headgate, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("headgate."):
            yield frame
        frame = frame.f_back


def place_of(thing: object) -> Place:
    """Return the place of an object, named after a variable that holds it. Without such a variable it is not
    readable."""
    module = sys.modules.get(type(thing).__module__)
    scopes = [scope for frame in frames_of_program() for scope in (frame.f_locals, frame.f_globals)]
    for scope in (*scopes, vars(module) if module else {}):
        for name, value in dict(scope).items():  # a copy: other threads may add names
            if value is thing and name.isidentifier():  # other names are not the user's: .0, @py_assert1
                return Place(name, thing)
    return Place(type(thing).__name__, thing, is_readable=False)


def place_of_cell(name: str, value: object) -> Place:
    """Return the place of a variable of an outer function.

    It is readable if the outer function runs, and so waits for the job, or if another variable holds the same object.
    """
    runs = any(name in frame.f_code.co_cellvars and frame.f_locals.get(name) is value for frame in frames_of_program())
    # Not for builtins: a 1 in another variable may be the same object by chance.
    is_held = type(value).__module__ != "builtins" and place_of(value).is_readable
    return Place(name, value, is_readable=runs or is_held)
