"""What sources and sinks are given, checked where it comes in."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from typing import Final

import pyarrow as pa

from headgate.errors import ConfigError

#: Kinds of arguments, and what they are called.
WHOLE: Final = (Integral,), "a whole number"
WHOLE_OR_NONE: Final = (Integral, type(None)), "a whole number, or None"
NUMBER_OR_NONE: Final = (Real, type(None)), "a number, or None"
FLAG: Final = (bool,), "True or False"
TEXT: Final = (str,), "a string"
TEXT_OR_NONE: Final = (str, type(None)), "a string, or None"
SCHEMA_OR_NONE: Final = (pa.Schema, type(None)), "a pyarrow.Schema, or None"


def check(kind: tuple[tuple[type, ...], str], **arguments: object) -> None:
    """Raises ConfigError that names the argument which is not of the kind. True and False are no numbers."""
    types, called = kind
    for name, value in arguments.items():
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfigError(f"{name}={value!r} must be {called}")


def check_texts(**arguments: object) -> None:
    """Raises ConfigError that names the argument which is no list of strings."""
    for name, value in arguments.items():
        one = isinstance(value, str)
        if one or not isinstance(value, Collection) or not all(isinstance(each, str) for each in value):
            example = f", for example [{value!r}]" if one else ""
            raise ConfigError(f"{name}={value!r} must be a list of texts{example}")
