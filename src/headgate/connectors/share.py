"""Partitioning of a source's numbered pieces (splits, blocks or batches) among its readers, also after a restart."""

from __future__ import annotations

from typing import Any, Final

from headgate.connectors.connector import ReaderContext
from headgate.errors import UnusableState
from headgate.state import shapes

#: How many pieces a reader skips at most to find its next one. That takes it seconds.
_MOST_SKIPPED: Final = 1 << 22


def share_shape(place: shapes.Shape) -> shapes.Shape:
    """Return the shape of `Share.position`, for places of the given shape."""
    return shapes.fields(share_fields(place))


def share_fields(place: shapes.Shape) -> dict[str, shapes.Shape]:
    """Return the shapes of its fields, for a position that has more fields."""
    piece = shapes.row(shapes.count, shapes.optional(place))
    return {"at": piece, "before": shapes.items(shapes.items(piece, least=1))}


#: For each earlier reader, by subtask: the piece that it had come to, and its place in that piece.
_Reached = list[tuple[int, Any]]


class Share:
    """The pieces of one reader, in order: every `parallelism`-th, beginning with the subtask's own number.

    With an unchanged parallelism a reader resumes from its own position. With another one it resumes from the positions
    of all earlier readers: it skips the pieces of its share that one of them has read. The share keeps what earlier
    readers had reached in its own position, until it is past all of that.
    """

    #: The current piece. The source may have no piece of that number any more.
    number: int
    #: How far that piece is read: the source's own JSON values, None if reading has not started.
    place: Any

    def __init__(self, context: ReaderContext) -> None:
        self._step = context.parallelism
        #: What was reached at each earlier change of the parallelism, the latest last.
        self._before: list[_Reached] = []
        self.number, self.place = context.subtask, None
        positions = context.positions
        if positions is not None and len(positions) == context.parallelism:
            self.number, self.place = positions[context.subtask]["at"]
            self._before = positions[context.subtask]["before"]
        elif positions is not None:
            before: list[_Reached] = max((position["before"] for position in positions), key=len)
            self._before = [*before, [position["at"] for position in positions]]
        self._last = max((number for reached in self._before for number, _ in reached), default=-1)
        if self.number % context.parallelism != context.subtask:
            raise UnusableState(f"piece {self.number} is not of subtask {context.subtask} of {context.parallelism}")
        if positions is not None and len(positions) != context.parallelism:
            least = min(number for number, _ in self._before[-1])  # all pieces before it are read
            self.number += max(0, -(-(least - self.number) // self._step)) * self._step
            self._skip_read()

    def advance(self) -> None:
        """Move from the current piece, which is read, to the next one that is not."""
        self.number += self._step
        self.place = None
        self._skip_read()

    def position(self) -> dict[str, Any]:
        """Return the value for `SourceReader.position`."""
        return {"at": [self.number, self.place], "before": self._before if self.number <= self._last else []}

    def _skip_read(self) -> None:
        """Skip the pieces that earlier readers have read."""
        for _ in range(_MOST_SKIPPED // max(1, len(self._before))):
            if self.number > self._last:
                return
            reached, place = self._latest()
            if self.number >= reached:
                self.place = place
                return
            self.number += self._step
        parallelism = len(self._before[-1])
        raise UnusableState(
            f"piece {self.number} is too far behind piece {self._last}, which another reader had come to; "
            f"resume with a parallelism of {parallelism}"
        )

    def _latest(self) -> tuple[int, Any]:
        """Return the piece that the last reader of the current piece had come to, and its place in that piece."""
        for reached in reversed(self._before):
            number, place = reached[self.number % len(reached)]
            if self.number <= number:
                return number, place
        return self.number, None
