"""Which of a job's checkpoints count, when several programs have owned its folder.

Each program that starts or resumes a job claims its folder with an epoch (see `headgate.ownership`), and notes what it
starts from before it changes anything. An older program that was paused may still complete a checkpoint then, from
rows that its successor has produced again: that one must never count. So the checkpoints that count are those of the
newest owner, then those up to what it started from, and so on back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_FOLDER: Final = re.compile(r"chk-([1-9][0-9]{0,15})(?:-([1-9][0-9]{0,15}))?")


class CheckpointName(NamedTuple):
    """A checkpoint among those of a job. The first owner's, and those from before there were owners, have owner 1."""

    owner: int
    id: int

    @property
    def folder(self) -> str:
        """Its folder within that of the job."""
        return f"chk-{self.id}" if self.owner == 1 else f"chk-{self.id}-{self.owner}"

    @staticmethod
    def of(folder: str) -> CheckpointName | None:
        """The inverse; None for any other folder's name."""
        found = _FOLDER.fullmatch(folder)
        return found and CheckpointName(int(found[2] or 1), int(found[1]))


#: Less than every checkpoint.
NONE: Final = CheckpointName(0, 0)


@dataclass(frozen=True, slots=True)
class Start:
    """What an owner started from: the newest checkpoint that counted for it, `NONE` if none did, or one that is not
    among those of the job, by path or URI."""

    after: CheckpointName = NONE
    uri: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"after": list(self.after), "uri": self.uri}

    @staticmethod
    def from_json(values: Any) -> Start:
        """Raises ValueError for what is not such a note."""
        match values:
            case {"after": [int(owner), int(id_)], "uri": str() | None as uri}:
                return Start(CheckpointName(owner, id_), uri)
        raise ValueError(f"not what a program notes at its start: {str(values)[:80]}")


def line(names: Collection[CheckpointName], starts: Mapping[int, Start]) -> Iterator[CheckpointName | str]:
    """Those that count, the newest first; the last may be a path or URI. `starts` are by owner. An owner without one
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
