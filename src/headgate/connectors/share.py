"""Divides a source's numbered pieces (splits, blocks or batches) among the source's readers, also after a restart."""

from __future__ import annotations

from typing import Any, Final

from headgate.connectors.connector import ReaderContext
from headgate.errors import UnusableState
from headgate.state import shapes

#: The most pieces that a reader skips to find its next piece. Skipping so many pieces takes seconds.
_MOST_SKIPPED: Final = 1 << 22


def share_shape(place: shapes.Shape) -> shapes.Shape:
    """Return the shape of `Share.position`. `place` is the shape of a place within a piece."""
    return shapes.fields(share_fields(place))


def share_fields(place: shapes.Shape) -> dict[str, shapes.Shape]:
    """Return the shapes of the fields of `Share.position`, for a source whose position has more fields."""
    piece = shapes.row(shapes.count, shapes.optional(place))
    return {"at": piece, "before": shapes.items(shapes.items(piece, least=1))}


#: For each earlier reader, by subtask: the piece that this reader had reached, and its place in this piece.
_Reached = list[tuple[int, Any]]


class Share:
    """The pieces of one reader, in order: the piece whose number is the subtask, then every `parallelism`-th piece
    after it.

    If the parallelism is unchanged, a reader resumes from its own position. If the parallelism has changed, the reader
    resumes from the positions of all earlier readers. It skips the pieces of its share that an earlier reader has read.
    The share's own position includes the positions of the earlier readers until the reader has passed them all.
    """

    #: The number of the current piece. At the end, the source has no piece of this number.
    number: int
    #: The place up to which the current piece is read, as JSON values of the source. None if reading has not started.
    place: Any

    def __init__(self, context: ReaderContext) -> None:
        self._step = context.parallelism
        #: The positions of the earlier readers at each change of the parallelism. The latest change comes last.
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
            least = min(number for number, _ in self._before[-1])  # all pieces before this one are read
            self.number += max(0, -(-(least - self.number) // self._step)) * self._step
            self._skip_read()

    def advance(self) -> None:
        """Move to the next piece that is not read. The current piece has been read."""
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
            f"piece {self.number} is too far behind piece {self._last}, which another reader had reached; "
            f"resume with a parallelism of {parallelism}"
        )

    def _latest(self) -> tuple[int, Any]:
        """Return how far the last reader of the current piece came: a piece, and a place in it.

        If no earlier reader has reached the current piece, return the current piece and None.
        """
        for reached in reversed(self._before):
            number, place = reached[self.number % len(reached)]
            if self.number <= number:
                return number, place
        return self.number, None
