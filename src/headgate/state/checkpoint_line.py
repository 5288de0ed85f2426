"""Decides which of a job's checkpoints are valid when several programs have owned the job's folder.

Each program that starts or resumes a job claims the folder with an epoch, and becomes its owner (see
`headgate.ownership`). Before the owner changes anything, it notes which checkpoint it starts from. An older owner that
was paused may complete a checkpoint later. The newer owner has produced the rows of that checkpoint again, so the
checkpoint must never count.

All checkpoints of the newest owner count. Those of the owner before it count only up to the checkpoint that the newest
owner started from. The same rule applies to each older owner.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_FOLDER: Final = re.compile(r"chk-([1-9][0-9]{0,15})(?:-([1-9][0-9]{0,15}))?")


class CheckpointName(NamedTuple):
    """The name of a checkpoint within a job: its owner's epoch and its number.

    The first owner has epoch 1. Older versions of Headgate had no owners: their checkpoints have epoch 1 too.
    """

    owner: int
    id: int

    @property
    def folder(self) -> str:
        """The name of the checkpoint's folder within the job's folder."""
        return f"chk-{self.id}" if self.owner == 1 else f"chk-{self.id}-{self.owner}"

    @staticmethod
    def of(folder: str) -> CheckpointName | None:
        """Return the name of the checkpoint in this folder, or None if it is not the folder of a checkpoint."""
        match = _FOLDER.fullmatch(folder)
        return match and CheckpointName(int(match[2] or 1), int(match[1]))


#: The name that means no checkpoint. It sorts before every other name.
NONE: Final = CheckpointName(0, 0)


@dataclass(frozen=True, slots=True)
class Start:
    """The record of the checkpoint that an owner started from. The owner writes this record before it changes anything.

    `after` is the newest checkpoint of older owners that still counts, or `NONE` if none does. `uri` is the path or URI
    of a savepoint, or of a checkpoint in another folder, if the owner started from one.
    """

    after: CheckpointName = NONE
    uri: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"after": list(self.after), "uri": self.uri}

    @staticmethod
    def from_json(values: Any) -> Start:
        """Return the start that `to_json` noted. Raises ValueError for other values."""
        match values:
            case {"after": [int(owner), int(id_)], "uri": str() | None as uri}:
                return Start(CheckpointName(owner, id_), uri)
        raise ValueError(f"a note of an owner's start has the wrong form: {str(values)[:80]}")


def line(names: Collection[CheckpointName], starts: Mapping[int, Start]) -> Iterator[CheckpointName | str]:
    """Yield the checkpoints that count, the newest first. The last one may be a path or URI: see `Start.uri`.

    `names` are all complete checkpoints. `starts` maps owners to their starts. An owner without a start does not limit
    older owners: it has changed nothing, or no owner is older.

    >>> names = [CheckpointName(1, 4), CheckpointName(1, 5), CheckpointName(1, 6), CheckpointName(2, 6)]
    >>> [name.folder for name in line(names, {2: Start(after=CheckpointName(1, 5))})]
    ['chk-6-2', 'chk-5', 'chk-4']
    """
    limit: tuple[float, float] = (math.inf, math.inf)
    for owner in sorted({name.owner for name in names} | starts.keys(), reverse=True):
        if owner > limit[0]:
            continue
        yield from sorted((name for name in names if name.owner == owner and name <= limit), reverse=True)
        if (start := starts.get(owner)) is None:
            continue
        if start.uri is not None:
            yield start.uri
            return
        limit = min(limit, start.after)
