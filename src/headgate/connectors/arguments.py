"""Checks of the arguments that users give to sources and sinks."""

from __future__ import annotations

from collections.abc import Collection
from numbers import Integral, Real
from typing import Final

import pyarrow as pa

from headgate.errors import ConfigError

#: A kind of argument: the types that are allowed, and the words that an error uses for them.
WHOLE: Final = (Integral,), "a whole number"
WHOLE_OR_NONE: Final = (Integral, type(None)), "a whole number, or None"
NUMBER_OR_NONE: Final = (Real, type(None)), "a number, or None"
FLAG: Final = (bool,), "True or False"
TEXT: Final = (str,), "a string"
TEXT_OR_NONE: Final = (str, type(None)), "a string, or None"
SCHEMA_OR_NONE: Final = (pa.Schema, type(None)), "a pyarrow.Schema, for example pa.schema({'x': pa.int64()}), or None"


def check(kind: tuple[tuple[type, ...], str], **arguments: object) -> None:
    """Check that each argument is of the given kind.

    Raises ConfigError, which names a wrong argument and its value. True and False do not count as numbers.
    """
    types, description = kind
    for name, value in arguments.items():
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfigError(f"{name}={value!r} must be {description}")


def check_texts(**arguments: object) -> None:
    """Check that each argument is a list of strings. Raises ConfigError, which names a wrong argument and its value."""
    for name, value in arguments.items():
        is_text = isinstance(value, str)
        if is_text or not isinstance(value, Collection) or not all(isinstance(text, str) for text in value):
            example = f", for example [{value!r}]" if is_text else ""
            raise ConfigError(f"{name}={value!r} must be a list of strings{example}")
