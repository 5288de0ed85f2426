"""Explains why a function cannot be pickled: finds the object of Spark that the function holds."""

from __future__ import annotations

import contextlib
import io

import cloudpickle

#: Packages whose objects belong to the driver and its JVM. Rows, schemas and types are exceptions: they can be pickled.
_SPARK = ("pyspark.", "py4j.")


def why_unpicklable(value: object, error: Exception) -> str:
    """Return why `value` cannot be pickled, and what to do. `error` is what its pickling raised."""
    held = _held_of_spark(value)
    if held is None:
        return (
            f"it cannot be sent to another process: {error}; let its function create such an object at its first call, "
            "instead of using an object from outside"
        )
    kind = type(held).__name__
    if kind == "DataFrame":
        remedy = "join it with lookup(), read it with hg.sources.dataframe(), or collect what the function needs"
    else:
        remedy = "use it in the program, and have the function hold only the result"
    return f"its function uses a {kind} of Spark's, which exists only in the driver's process; {remedy}"


def _held_of_spark(value: object) -> object | None:
    """Return the outermost Spark object in `value` that cannot be pickled, or None if there is none."""
    finder = _Finder()
    with contextlib.suppress(Exception):
        finder.dump(value)
    return next((found for found in finder.found if not _is_picklable(found)), None)


def _is_picklable(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


class _Finder(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that collects the Spark objects inside a value, in the order in which it reaches them."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.found: list[object] = []

    def persistent_id(self, value: object) -> None:
        """Record the object, which is about to be written. Returns None, so it is written as usual."""
        if not isinstance(value, type) and type(value).__module__.startswith(_SPARK):
            self.found.append(value)
