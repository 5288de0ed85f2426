"""Decides which of a job's checkpoints count when several programs have owned its folder.

Each program that starts or resumes a job claims the job's folder with an epoch (see `headgate.ownership`). Before it
changes anything, it notes what it starts from. An older program that was paused may still complete a checkpoint later,
from rows that its successor has produced again. That checkpoint must never count. So the checkpoints of the newest
owner count. Of the owner before, those up to the newest owner's start count; and so on back to the first owner.
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

    The first owner is 1. Checkpoints of versions that knew no owners have owner 1, too.
    """

    owner: int
    id: int

    @property
    def folder(self) -> str:
        """The name of its folder within the job's folder."""
        return f"chk-{self.id}" if self.owner == 1 else f"chk-{self.id}-{self.owner}"

    @staticmethod
    def of(folder: str) -> CheckpointName | None:
        """Return the checkpoint whose folder has this name; None for a folder of another kind."""
        match = _FOLDER.fullmatch(folder)
        return match and CheckpointName(int(match[2] or 1), int(match[1]))


#: No checkpoint; it sorts before every other name.
NONE: Final = CheckpointName(0, 0)


@dataclass(frozen=True, slots=True)
class Start:
    """What an owner started from.

    `after` is the newest checkpoint that counted for it; `NONE` if none did. `uri` is the path or URI of a checkpoint
    that is not one of this job's.
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
    """Yield the checkpoints that count, the newest first; the last may be a path or URI.

    `names` are all complete checkpoints. `starts` says by owner what it started from; an owner without an entry
    claimed the folder and changed nothing.

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
