"""Finds the variables and attributes of the program that a function changes, and the methods that the function calls.

`Walk` reads the function's bytecode, but never runs it. It follows values over an abstract stack. An entry of this
stack is the place that a value came from, or None. `Walk` finds `seen.append(x)`, `seen[key] = x`, `del seen[key]`,
`seen[key].append(x)`, `seen += [x]`, `total += 1`, `self.rows.append(x)` and similar changes. It also finds them in
inner functions and lambdas. `Walk` does not find a change if the function has given the value a second name.
"""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Final

import numpy as np

from headgate.api.program_objects import Place

_CONTAINERS: Final = (list, dict, set, deque, bytearray, np.ndarray)
_CHANGING: Final = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert"),
    *("intersection_update", "move_to_end", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault"),
    *("sort", "subtract", "symmetric_difference_update", "update"),
}
#: Instructions that change a container, and the depth of the container in the abstract stack, counted from 1.
_STORES: Final = {"STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_SLICE": 3}
#: Instructions that load or rebind a variable. True means a variable of an outer function, False a variable of the
#: module.
_LOADS: Final = {"LOAD_GLOBAL": False, "LOAD_DEREF": True}
_REBINDS: Final = {"STORE_GLOBAL": False, "STORE_DEREF": True}
_ATTRIBUTES: Final = ("LOAD_ATTR", "LOAD_METHOD")
#: Instructions that push no entry on the interpreter's stack. Some of them remove entries.
_NEUTRAL: Final = ("POP_", "STORE_", "DELETE_", "NOP", "RESUME", "EXTENDED_ARG", "KW_NAMES", "JUMP", "NOT_TAKEN")
#: Instructions after which the next instruction does not run.
_ENDS: Final = {
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"),
}


class Walk:
    """A walk over the instructions of a function from first to last, and then over its inner functions.

    `changed` are the places that the functions change. `called` are the methods of the program's objects that they
    call.
    """

    def __init__(self, function: FunctionType, cells: Mapping[str, Place], owner: Place | None) -> None:
        """Walk over the function. `cells` are the variables of outer functions that it uses; `owner` is the object of a
        method."""
        self._module = function.__module__
        self._globals = function.__globals__
        self.changed: list[Place] = []
        #: Each called method, with its object.
        self.called: list[tuple[FunctionType, Place]] = []
        first = function.__code__.co_varnames[:1] if function.__code__.co_argcount else ()
        own = {} if owner is None else dict.fromkeys(first, owner)
        self._follow(function.__code__, {**cells, **own}, own)

    def _follow(self, code: CodeType, cells: Mapping[str, Place], own: Mapping[str, Place]) -> None:
        self._cells, self._own = cells, own
        self._stack: list[Place | None] = []
        self._at_targets: dict[int, list[Place | None]] = {}
        for instruction in dis.get_instructions(code):
            if instruction.is_jump_target:
                self._stack = self._at_targets.pop(instruction.offset, self._stack)
            changed = self._changed_by(instruction)
            if changed is not None:
                self.changed.append(changed)
            self._step(instruction)
        inner = {name: place for name, place in cells.items() if name not in code.co_cellvars or name in own}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._follow(constant, inner, {})

    def _changed_by(self, instruction: dis.Instruction) -> Place | None:
        name, argument = instruction.opname, instruction.argval
        if name in _ATTRIBUTES and argument in _CHANGING:
            return _container(self._top(1))
        if name in _STORES:
            return _container(self._top(_STORES[name]))
        if name == "BINARY_OP" and instruction.argrepr.endswith("="):
            return _container(self._top(2))
        if name == "STORE_ATTR":
            return _data(self._attribute(argument))
        return (
            _container(place := self._variable(argument, _REBINDS[name])) or _data(place) if name in _REBINDS else None
        )

    def _step(self, instruction: dis.Instruction) -> None:
        """Change the abstract stack as this bytecode instruction changes the interpreter's stack."""
        name, stack = instruction.opname, self._stack
        argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            effect = dis.stack_effect(instruction.opcode, argument, jump=True)
            self._at_targets.setdefault(instruction.argval, stack[:effect] if effect < 0 else stack + [None] * effect)
        effect = dis.stack_effect(instruction.opcode, argument, jump=False)
        if name in _LOADS:
            stack += [None] * (effect - 1) + [self._variable(instruction.argval, _LOADS[name])]
        elif loads := name.count("LOAD_FAST"):  # on 3.13 it may load two variables, or store one and load one
            del stack[len(stack) + effect - loads :]
            names = instruction.argval if isinstance(instruction.argval, tuple) else [instruction.argval]
            stack += [self._own.get(local) for local in names[-loads:]]
        elif name == "COPY":
            stack.append(self._top(instruction.arg or 1))
        elif name == "SWAP" and len(stack) >= (depth := instruction.arg or 1):
            stack[-1], stack[-depth] = stack[-depth], stack[-1]
        else:
            result = self._result(instruction)
            del stack[len(stack) + min(effect, 0) :]
            if effect <= 0 and stack and not name.startswith(_NEUTRAL):
                stack[-1] = result
            stack += [None] * effect
        if name in _ENDS:
            self._stack = []

    def _result(self, instruction: dis.Instruction) -> Place | None:
        """Return the place of the value that the instruction pushes. The place of an item is its container."""
        if instruction.opname in _ATTRIBUTES:
            return self._attribute(instruction.argval)
        is_item = instruction.opname == "BINARY_SUBSCR" or instruction.argrepr == "[]"
        return _container(self._top(2)) if is_item else None

    def _attribute(self, name: str) -> Place | None:
        """Return an attribute of the value on top of the stack. If the attribute is a method, add it to `called`."""
        owner = self._top(1)
        if owner is None:
            return None
        method = owner.method(name, self._module)
        if method is not None:
            self.called.append((method, owner))
        return owner.attribute(name, self._module)

    def _top(self, depth: int) -> Place | None:
        return self._stack[-depth] if len(self._stack) >= depth else None

    def _variable(self, name: str, is_cell: bool) -> Place | None:
        if is_cell:
            return self._cells.get(name)
        return Place(name, self._globals[name]) if name in self._globals else None


def _container(place: Place | None) -> Place | None:
    return place if place is not None and isinstance(place.value, _CONTAINERS) else None


def _data(place: Place | None) -> Place | None:
    return place if place is not None and place.is_readable and place.is_data else None
