"""The names of the columns that a join or a lookup adds to a stream."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.errors import PlanError


def suffixed_names(call: str, added: Sequence[str], suffix: str | None, taken: Sequence[str], advice: str) -> list[str]:
    """Return the names of added columns in the result, with `suffix` where the stream has the same name.

    Raises PlanError if names clash without a suffix (`advice` is the message), or still clash with it.

    >>> suffixed_names("join", ["id", "price"], "_paid", ["id"], "")
    ['id_paid', 'price']
    """
    clashing = [name for name in added if name in taken]
    if clashing and not suffix:
        raise PlanError(f"{call}: {advice.format(names=', '.join(map(repr, clashing)))}")
    names = [f"{name}{suffix}" if name in clashing else name for name in added]
    for index, name in enumerate(names):
        if name in taken or name in names[:index]:
            raise PlanError(f"{call}: with suffix={suffix!r} there are two columns {name!r}; give another suffix=")
    return names
