"""Checks that a value of a user's connector survives a checkpoint, which stores it as JSON."""

from __future__ import annotations

import json
from typing import Any

from headgate.state import shapes


def as_json(value: Any, what: str) -> str:
    """Return `value` as JSON. Raises ValueError if that is impossible. `what` names the value in the message."""
    shapes.plain(value, what)
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be stored in a checkpoint: {error}") from None


def stored(value: Any, what: str) -> Any:
    """Return `value` as it comes back from a checkpoint. Later changes of `value` do not change the result.

    Raises ValueError if `value` cannot be stored as JSON. `what` names the value in the message.
    """
    return json.loads(as_json(value, what))


def checked(value: Any, what: str) -> Any:
    """Return a copy of `value`. Raises ValueError if `value` cannot be stored as JSON, or comes back as another value.

    `what` names the value in the message.

    >>> checked({"offset": 7, "parts": [1, 2]}, "the position")
    {'offset': 7, 'parts': [1, 2]}
    >>> checked({7: 1}, "the position")
    Traceback (most recent call last):
        ...
    ValueError: the position would come back from a checkpoint as {'7': 1}; use lists, and texts as keys
    """
    back = stored(value, what)
    if back != value:
        raise ValueError(f"{what} would come back from a checkpoint as {back!r:.200}; use lists, and texts as keys")
    return back
