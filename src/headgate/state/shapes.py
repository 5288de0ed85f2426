"""What JSON values have to look like: a shape is a function that raises ValueError, which names the place, for any
other value. Shapes are made of shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Shape: TypeAlias = Callable[[Any, str], None]
#: Bytes of JSON in one file of a checkpoint. `_metadata` of 10,000 subtasks with data in flight takes 5 MB; 100 files
#: that each of them finished take 70 MB more, a million files of a source 100 MB more.
MOST_JSON: Final = 256 << 20
#: So deep may be what sources and sinks keep.
_DEPTH: Final = 64
_LONGEST: Final = 40
#: What a filesystem takes.
_NAME_BYTES: Final = 255


def check_length(size: int) -> None:
    """Raises ValueError for more bytes of JSON than any job writes: read, they take many times as much memory."""
    if size > MOST_JSON:
        raise ValueError(f"it has {size} bytes of JSON, and none that Headgate wrote has more than {MOST_JSON}")


def _one(what: str, fits: Callable[[Any], bool]) -> Shape:
    """A value that is not made of others."""

    def check(value: Any, place: str) -> None:
        if not fits(value):
            said = repr(value)
            raise ValueError(f"{place} is {said[:_LONGEST]}{'...' * (len(said) > _LONGEST)}, not {what}")

    return check


def whole(least: int, most: int) -> Shape:
    """A whole number, both ends included."""
    return _one(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def number(most: float) -> Shape:
    """From 0 on."""
    return _one(f"a number from 0 to {most:g}", lambda value: type(value) in (int, float) and 0 <= value <= most)


def one_of(*values: str) -> Shape:
    return _one(" or ".join(map(repr, values)), lambda value: isinstance(value, str) and value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= each <= "\udfff" for each in value)


def _is_name(value: Any) -> bool:
    plain = _is_text(value) and value not in ("", ".", "..") and not set("/\0") & set(value)
    return plain and len(value.encode()) <= _NAME_BYTES


def _is_below(value: Any) -> bool:
    plain = _is_text(value) and "\0" not in value
    return plain and not {"", ".", ".."} & set(value.split("/"))


def _is_folder(value: Any) -> bool:
    return _is_text(value) and "\0" not in value and (value.startswith("/") or "://" in value)


#: A path that leads below the folder that it is relative to.
path_below: Final = _one("a path below a folder", _is_below)
#: In UTF-8.
text: Final = _one("a text", _is_text)
#: Of a file, without its folder.
file_name: Final = _one("the name of a file", _is_name)
#: What fits into 64 bits: an event time in microseconds, or what is counted by one.
time: Final = whole(-(1 << 63), (1 << 63) - 1)
count: Final = whole(0, (1 << 63) - 1)
truth: Final = _one("true or false", lambda value: isinstance(value, bool))
nothing: Final = _one("null", lambda value: value is None)
#: An absolute path or a URI, or none.
folder: Final = _one("an absolute path or a URI", lambda value: value is None or _is_folder(value))


def items(shape: Shape, least: int = 0) -> Shape:
    """A list of such, so many at least."""

    what = f"a list of {least} or more" if least else "a list"
    is_list = _one(what, lambda value: isinstance(value, list | tuple) and len(value) >= least)

    def check(value: Any, place: str) -> None:
        is_list(value, place)
        for index, each in enumerate(value):
            shape(each, f"{place}[{index}]")

    return check


def row(*each: Shape) -> Shape:
    """A list of as many values, each of its own shape."""
    is_list = _one(f"a list of {len(each)}", lambda value: isinstance(value, list | tuple) and len(value) == len(each))

    def check(value: Any, place: str) -> None:
        is_list(value, place)
        for index, (part, shape) in enumerate(zip(value, each, strict=True)):
            shape(part, f"{place}[{index}]")

    return check


def mapping(shape: Shape) -> Shape:
    """An object with such values."""

    def check(value: Any, place: str) -> None:
        _object(value, place)
        for key, each in value.items():
            text(key, f"a key of {place}")
            shape(each, f"{place}[{key!r}]")

    return check


def fields(needed: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Shape:
    """An object that has these, and no others."""
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
    """An object of the one kind if it has this key, else of the other."""
    return lambda value, place: (with_it if isinstance(value, dict) and key in value else without)(value, place)


def optional(shape: Shape) -> Shape:
    """That, or null."""
    return lambda value, place: None if value is None else shape(value, place)


def plain(value: Any, place: str) -> None:
    """Anything that JSON has, but not deeper than anybody needs."""
    if is_deeper(value, _DEPTH):
        raise ValueError(f"{place} is deeper than {_DEPTH} levels")


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects stand in each other on more levels than that; found without recursion."""
    level = [value]
    for _ in range(levels + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return False
        level = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
    return True


_object: Final = _one("an object", lambda value: isinstance(value, dict))
