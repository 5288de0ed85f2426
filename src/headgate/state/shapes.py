"""Shapes of JSON values: functions that validate the JSON that a program reads from checkpoint files.

A shape is a function of a value and its place in the file. If the value does not have the shape, the function raises
ValueError, which names the place. Functions such as `items` build a shape from other shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Shape: TypeAlias = Callable[[Any, str], None]
#: The most bytes of JSON in one file of a checkpoint. `_metadata` of 10,000 subtasks with in-flight data takes 5 MB.
#: 100 finished files for each subtask take 70 MB more; a million files of a source take 100 MB more.
MOST_JSON: Final = 256 << 20
#: The most levels of lists and objects in the values that sources and sinks keep.
_DEPTH: Final = 64
#: The most characters of a wrong value that an error shows.
_LONGEST: Final = 40
#: The longest file name that common filesystems take.
_NAME_BYTES: Final = 255


def check_length(size: int) -> None:
    """Check that `size` bytes of JSON are not more than a job writes. Raises ValueError.

    In memory, decoded JSON takes many times its size.
    """
    if size > MOST_JSON:
        raise ValueError(f"it has {size} bytes of JSON, and Headgate writes at most {MOST_JSON}")


def _simple(what: str, fits: Callable[[Any], bool]) -> Shape:
    """Return the shape of values for which `fits` is true. Errors call them `what`."""

    def check(value: Any, place: str) -> None:
        if not fits(value):
            shown = repr(value)
            raise ValueError(f"{place} is {shown[:_LONGEST]}{'...' * (len(shown) > _LONGEST)}, not {what}")

    return check


def whole(least: int, most: int) -> Shape:
    """Return the shape of a whole number from `least` to `most`, both included."""
    return _simple(
        f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most
    )


def number(most: float) -> Shape:
    """Return the shape of a number from 0 to `most`, both included."""
    return _simple(f"a number from 0 to {most:g}", lambda value: type(value) in (int, float) and 0 <= value <= most)


def one_of(*values: str) -> Shape:
    """Return the shape of a string that is one of these."""
    return _simple(" or ".join(map(repr, values)), lambda value: isinstance(value, str) and value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_name(value: Any) -> bool:
    plain = _is_text(value) and value not in ("", ".", "..") and not set("/\0") & set(value)
    return plain and len(value.encode()) <= _NAME_BYTES


def _is_below(value: Any) -> bool:
    plain = _is_text(value) and "\0" not in value
    return plain and not {"", ".", ".."} & set(value.split("/"))


def _is_folder(value: Any) -> bool:
    return _is_text(value) and "\0" not in value and (value.startswith("/") or "://" in value)


#: A relative path that stays below its folder.
path_below: Final = _simple("a path below a folder", _is_below)
#: A string without lone surrogates: UTF-8 can encode it.
text: Final = _simple("a text", _is_text)
#: The name of a file, without its folder.
file_name: Final = _simple("the name of a file", _is_name)
#: Numbers of 64 bits: an event time in microseconds, and a count.
time: Final = whole(-(1 << 63), (1 << 63) - 1)
count: Final = whole(0, (1 << 63) - 1)
truth: Final = _simple("true or false", lambda value: isinstance(value, bool))
nothing: Final = _simple("null", lambda value: value is None)
#: An absolute path or a URI, or null.
folder: Final = _simple("an absolute path or a URI", lambda value: value is None or _is_folder(value))


def items(shape: Shape, least: int = 0) -> Shape:
    """Return the shape of a list of at least `least` values, which all have the shape `shape`."""

    what = f"a list of {least} or more" if least else "a list"
    is_list = _simple(what, lambda value: isinstance(value, list | tuple) and len(value) >= least)

    def check(value: Any, place: str) -> None:
        is_list(value, place)
        for index, each in enumerate(value):
            shape(each, f"{place}[{index}]")

    return check


def row(*shapes: Shape) -> Shape:
    """Return the shape of a list that has one value for each of `shapes`."""
    length = len(shapes)
    is_list = _simple(f"a list of {length}", lambda value: isinstance(value, list | tuple) and len(value) == length)

    def check(value: Any, place: str) -> None:
        is_list(value, place)
        for index, (part, shape) in enumerate(zip(value, shapes, strict=True)):
            shape(part, f"{place}[{index}]")

    return check


def mapping(shape: Shape) -> Shape:
    """Return the shape of an object with any keys. All its values have the shape `shape`."""

    def check(value: Any, place: str) -> None:
        _object(value, place)
        for key, each in value.items():
            text(key, f"a key of {place}")
            shape(each, f"{place}[{key!r}]")

    return check


def fields(needed: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object with all the `needed` fields, any of the `optional` fields, and no other field."""
    every = {**needed, **(optional or {})}

    def check(value: Any, place: str) -> None:
        _object(value, place)
        if lacking := needed.keys() - value.keys():
            raise ValueError(f"{place} lacks {min(lacking)!r}")
        for key, each in value.items():
            if key not in every:
                raise ValueError(f"{place} has {key!r}, which is unknown")
            every[key](each, f"{place}.{key}")

    return check


def either(key: str, with_it: Shape, without: Shape) -> Shape:
    """Return the shape `with_it` for objects that have the key, and `without` for all other values."""
    return lambda value, place: (with_it if isinstance(value, dict) and key in value else without)(value, place)


def optional(shape: Shape) -> Shape:
    """Return the shape of null, and of all values that have the shape `shape`."""
    return lambda value, place: None if value is None else shape(value, place)


def plain(value: Any, place: str) -> None:
    """Accept any JSON value with at most 64 levels of lists and objects. This function is a shape itself."""
    if is_deeper(value, _DEPTH):
        raise ValueError(f"{place} is deeper than {_DEPTH} levels")


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether lists and objects are nested in more than `levels` levels.

    The function does not recurse, so a very deep value cannot exhaust the stack.
    """
    level = [value]
    for _ in range(levels + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return False
        level = [inner for part in level for inner in (part.values() if isinstance(part, dict) else part)]
    return True


_object: Final = _simple("an object", lambda value: isinstance(value, dict))
