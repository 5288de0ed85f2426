"""What the program that runs a job can read when the job has ended: variables, and attributes of objects in them.

Looking at an attribute runs none of the user's code: no property, no `__getattr__`.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any, Final

#: Methods in which an object builds in its own process what it does not bring along.
_BUILDS: Final = ("open", "__setstate__")


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """A variable of the program or an attribute of an object in one, as `seen` and `counter.rows`, and its value."""

    name: str
    value: Any
    #: Whether the program can read it when the job has ended; not so an object that only the job's function has.
    is_readable: bool = True

    @property
    def kind(self) -> str:
        """The type of its value."""
        return type(self.value).__name__

    @property
    def is_data(self) -> bool:
        """A value that the program gave it. None is not: a function that finds None makes what its process needs."""
        return self.value is not None and not callable(self.value) and not isinstance(self.value, ModuleType)

    def attribute(self, name: str, module: str) -> Place | None:
        """An attribute with a value that the program can read: none that begins with an underscore, and none that the
        object builds in each process. `module` is the module of the function that uses it."""
        if not self.is_readable or name.startswith("_") or not self._is_of(module) or name in _built(self.value):
            return None
        value = inspect.getattr_static(self.value, name, None)
        if isinstance(value, MemberDescriptorType):  # of __slots__; getattr() would go on to __getattr__
            try:
                value = value.__get__(self.value)
            except AttributeError:  # not yet set
                return None
        return None if hasattr(type(value), "__get__") else Place(f"{self.name}.{name}", value)

    def method(self, name: str, module: str) -> FunctionType | None:
        """A method of the object, as the function that its class has."""
        if isinstance(self.value, type) or not self._is_of(module):
            return None
        value = inspect.getattr_static(self.value, name, None)
        return value if isinstance(value, FunctionType) else None

    def _is_of(self, module: str) -> bool:
        """Whether it is an object of the program's, and not one of a library: a class of `module`, or an instance."""
        if isinstance(self.value, SimpleNamespace):
            return True
        kind = self.value if isinstance(self.value, type) else type(self.value)
        return any(base.__module__ == module for base in kind.__mro__)


def _built(thing: object) -> set[str]:
    methods = (inspect.getattr_static(thing, name, None) for name in _BUILDS)
    found = (method.__code__ for method in methods if isinstance(method, FunctionType))
    return {step.argval for code in found for step in dis.get_instructions(code) if step.opname == "STORE_ATTR"}


def frames_of_program() -> Iterator[FrameType]:
    """The frames that wait for Headgate, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith("headgate."):
            yield frame
        frame = frame.f_back


def place_of(thing: object) -> Place:
    """An object under the name of a variable that holds it; not readable if no frame of the program has one."""
    module = sys.modules.get(type(thing).__module__)
    scopes = [scope for frame in frames_of_program() for scope in (frame.f_locals, frame.f_globals)]
    for scope in (*scopes, vars(module) if module else {}):
        for name, value in dict(scope).items():  # a copy: other threads may add names
            if value is thing and name.isidentifier():  # other names are not the user's: .0, @py_assert1
                return Place(name, thing)
    return Place(type(thing).__name__, thing, is_readable=False)


def place_of_cell(name: str, value: object) -> Place:
    """A variable of the function around a function: readable while that one runs, and so waits for the job, or if
    another variable of the program holds the same object."""
    runs = any(name in frame.f_code.co_cellvars and frame.f_locals.get(name) is value for frame in frames_of_program())
    is_held = type(value).__module__ != "builtins" and place_of(value).is_readable  # one 1 is every 1
    return Place(name, value, is_readable=runs or is_held)
