"""Finds the variables and attributes of the program that a function changes, and the methods that the function calls.

`Walk` reads the function's bytecode, but never runs it. It follows values over an abstract stack. An entry of this
stack is the place that a value came from, or None. `Walk` finds `seen.append(x)`, `seen[key] = x`, `del seen[key]`,
`seen[key].append(x)`, `seen += [x]`, `total += 1`, `self.rows.append(x)`, `heapq.heappush(seen, x)` and similar
changes. It also finds them in inner functions and lambdas, under a local name that the function assigns only once
(`other = seen`), and in a call of a bound method in a variable (`add = seen.append`). The page "Choose processes or
threads" lists changes that it does not find.
"""

from __future__ import annotations

import bisect
import dis
import heapq
import operator
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any, Final

import numpy as np

from headgate.api.program_objects import Place, place_of

_CONTAINERS: Final = (list, dict, set, deque, bytearray, np.ndarray)
_CHANGING: Final = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert"),
    *("intersection_update", "move_to_end", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault"),
    *("sort", "subtract", "symmetric_difference_update", "update"),
}
_BUILTINS: Final = {kind.__name__: kind for kind in (list, dict, set, bytearray)}
#: Functions that change their first argument.
_FUNCTIONS: Final = (
    *(heapq.heappush, heapq.heappop, heapq.heapify, heapq.heappushpop, heapq.heapreplace),
    *(bisect.insort, bisect.insort_left, operator.setitem, operator.delitem),
    *(getattr(kind, name) for kind in (list, dict, set, deque, bytearray) for name in _CHANGING if hasattr(kind, name)),
)
#: The owners of these functions: modules and types.
_OWNERS: Final = (heapq, bisect, operator, list, dict, set, deque, bytearray)
#: The instruction of a call that has all arguments on the stack. On 3.11, `CALL` finds fewer entries there.
_CALLS: Final = ("PRECALL",) if "PRECALL" in dis.opmap else ("CALL", "CALL_KW")
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

    def __init__(
        self,
        function: FunctionType,
        cells: Mapping[str, Place],
        owner: Place | None,
        given: Mapping[str, Place] | None = None,
    ) -> None:
        """Walk over the function. `cells` are the variables that it uses from outer functions. `owner` is the object if
        the function is a method. `given` are the parameters that have the same value of the program in each call, such
        as defaults."""
        self._module = function.__module__
        self._globals = function.__globals__
        self.changed: list[Place] = []
        #: Each called method, with its object.
        self.called: list[tuple[FunctionType, Place]] = []
        first = function.__code__.co_varnames[:1] if function.__code__.co_argcount else ()
        stored = _stored(function.__code__)
        own = {name: place for name, place in (given or {}).items() if not stored[name]}
        own |= {} if owner is None else dict.fromkeys(first, owner)
        self._follow(function.__code__, {**cells, **own}, own)

    def _follow(self, code: CodeType, cells: Mapping[str, Place], own: Mapping[str, Place]) -> None:
        self._cells, self._own = cells, dict(own)
        self._once = {name for name, count in _stored(code).items() if count == 1}.difference(_parameters(code))
        self._stack: list[Place | None] = []
        self._items: set[Place] = set()
        self._at_targets: dict[int, list[Place | None]] = {}
        for instruction in dis.get_instructions(code):
            if instruction.is_jump_target:
                self._stack = self._at_targets.pop(instruction.offset, self._stack)
            changed = self._changed_by(instruction)
            if changed is not None:
                self.changed.append(changed)
            self._name_locals(instruction)
            self._step(instruction)
        inner = {name: place for name, place in cells.items() if name not in code.co_cellvars or name in own}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._follow(constant, inner, {})

    def _changed_by(self, instruction: dis.Instruction) -> Place | None:
        name, argument = instruction.opname, instruction.argval
        if name in _CALLS:
            return self._changed_by_call(instruction)
        if name in _LOADS or "LOAD_FAST" in name:
            return next(filter(None, map(_of_bound_method, self._loaded(instruction))), None)
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

    def _changed_by_call(self, instruction: dis.Instruction) -> Place | None:
        """If the call changes its first argument, return the place of this argument."""
        count = instruction.arg or 0
        depth = count + (instruction.opname == "CALL_KW")  # the keywords' names lie above the arguments
        callees = (self._top(depth + 1), self._top(depth + 2))
        changes = count and any(callee is not None and is_changing_function(callee.value) for callee in callees)
        return _container(self._top(depth)) if changes else None

    def _name_locals(self, instruction: dis.Instruction) -> None:
        """Remember a container under the local name that it gets, if the function assigns the name only here.

        Ignore items: the place of an item is its container, but the item may be a number.
        """
        if instruction.opname.startswith("STORE_FAST"):
            for depth, name in enumerate(_names_stored(instruction), 1):
                place = _container(self._top(depth))
                if place is not None and place not in self._items and name in self._once:
                    self._own[name] = place

    def _loaded(self, instruction: dis.Instruction) -> list[Place | None]:
        """Return the variables that the instruction loads."""
        name = instruction.opname
        if name in _LOADS:
            return [self._variable(instruction.argval, _LOADS[name])]
        names = instruction.argval if isinstance(instruction.argval, tuple) else [instruction.argval]
        return [self._own.get(local) for local in names[-name.count("LOAD_FAST") :]]

    def _step(self, instruction: dis.Instruction) -> None:
        """Change the abstract stack as this bytecode instruction changes the interpreter's stack."""
        name, stack = instruction.opname, self._stack
        argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            effect = dis.stack_effect(instruction.opcode, argument, jump=True)
            self._at_targets.setdefault(instruction.argval, stack[:effect] if effect < 0 else stack + [None] * effect)
        effect = dis.stack_effect(instruction.opcode, argument, jump=False)
        if name in _LOADS:
            stack += [None] * (effect - 1) + self._loaded(instruction)
        elif loads := name.count("LOAD_FAST"):  # on 3.13 it may load two variables, or store one and load one
            del stack[len(stack) + effect - loads :]
            stack += self._loaded(instruction)
        elif name == "COPY":
            stack.append(self._top(instruction.arg or 1))
        elif name == "SWAP" and len(stack) >= (depth := instruction.arg or 1):
            stack[-1], stack[-depth] = stack[-depth], stack[-1]
        else:
            result = self._result(instruction)
            del stack[len(stack) + min(effect, 0) :]
            replaces = effect <= 0 or name.startswith("UNPACK_") or name in _ATTRIBUTES
            if replaces and stack and not name.startswith(_NEUTRAL):
                stack[-1] = result
            stack += [None] * effect
        if name in _ENDS:
            self._stack = []

    def _result(self, instruction: dis.Instruction) -> Place | None:
        """Return the place of the value that the instruction pushes. The place of an item is its container."""
        if instruction.opname in _ATTRIBUTES:
            return self._attribute(instruction.argval)
        is_item = instruction.opname == "BINARY_SUBSCR" or instruction.argrepr == "[]"
        container = _container(self._top(2)) if is_item else None
        if container is None:
            return None
        item = Place(container.name, container.value)
        self._items.add(item)
        return item

    def _attribute(self, name: str) -> Place | None:
        """Return an attribute of the value on top of the stack. If the attribute is a method, add it to `called`."""
        owner = self._top(1)
        if owner is None:
            return None
        if any(owner.value is each for each in _OWNERS):
            return Place(f"{owner.name}.{name}", getattr(owner.value, name, None))
        method = owner.method(name, self._module)
        if method is not None:
            self.called.append((method, owner))
        return owner.attribute(name, self._module)

    def _top(self, depth: int) -> Place | None:
        return self._stack[-depth] if len(self._stack) >= depth else None

    def _variable(self, name: str, is_cell: bool) -> Place | None:
        if is_cell:
            return self._cells.get(name)
        if name in self._globals:
            return Place(name, self._globals[name])
        return Place(name, _BUILTINS[name]) if name in _BUILTINS else None


def is_changing_function(value: Any) -> bool:
    """Return whether a value is a function that changes its first argument, such as `heapq.heappush` or
    `list.append`."""
    return any(value is function for function in _FUNCTIONS)


def of_bound_method(value: Any) -> Place | None:
    """Return the container that a bound method such as `seen.append` changes, if the program can read it."""
    if not isinstance(value, (BuiltinMethodType, MethodType)) or getattr(value, "__name__", "") not in _CHANGING:
        return None
    place = place_of(value.__self__) if isinstance(value.__self__, _CONTAINERS) else None
    return place if place is not None and place.is_readable else None


def of_argument(value: Any) -> Place | None:
    """Return the place of a value that a function always gets as an argument: a container that the program can read, or
    a bound method of one. Otherwise return None."""
    if isinstance(value, (*_CONTAINERS, BuiltinMethodType)):
        place = place_of(value)
        return place if place.is_readable or of_bound_method(value) else None
    return None


def _of_bound_method(place: Place | None) -> Place | None:
    return None if place is None else of_bound_method(place.value)


def _parameters(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _stored(code: CodeType) -> Counter[str]:
    """Return how many instructions assign or delete each local variable."""
    return Counter(name for instruction in dis.get_instructions(code) for name in _names_stored(instruction))


def _names_stored(instruction: dis.Instruction) -> Iterator[str]:
    name, argument = instruction.opname, instruction.argval
    if name in ("STORE_DEREF", "DELETE_FAST") or name.count("STORE_FAST") == 1:
        yield argument[0] if isinstance(argument, tuple) else argument
    elif name.startswith("STORE_FAST"):
        yield from argument


def _container(place: Place | None) -> Place | None:
    return place if place is not None and isinstance(place.value, _CONTAINERS) else None


def _data(place: Place | None) -> Place | None:
    return place if place is not None and place.is_readable and place.is_data else None
