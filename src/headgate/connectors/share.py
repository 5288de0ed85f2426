"""Which of a source's numbered pieces (splits, blocks, batches) fall to a reader, and how far it has come with them."""

from __future__ import annotations

from typing import Any, Final

from headgate.connectors.connector import ReaderContext
from headgate.errors import UnusableState
from headgate.state import shapes

#: Pieces that a reader passes over to find its next one, at most; it looks for seconds then.
_MOST_PASSED: Final = 1 << 22


def share_shape(place: shapes.Shape) -> shapes.Shape:
    """What `Share.position` looks like where places have that shape."""
    return shapes.fields(share_fields(place))


def share_fields(place: shapes.Shape) -> dict[str, shapes.Shape]:
    """The same for a position that has others, too."""
    piece = shapes.row(shapes.count, shapes.optional(place))
    return {"at": piece, "before": shapes.items(shapes.items(piece, least=1))}


#: For each reader there was, the piece it had come to, and how far it had read that.
_Reached = list[tuple[int, Any]]


class Share:
    """Every `parallelism`-th piece from the subtask's own number on, in order.

    A reader goes on from its own position, or, when the parallelism is another, from those of all: it passes over the
    pieces of its share that somebody has read. What was reached before is part of its positions until it has come past
    all that.
    """

    #: The piece at hand; there may be none of that number any more.
    number: int
    #: How far it is read, in the source's own terms, as JSON has it; None: not yet begun.
    place: Any

    def __init__(self, context: ReaderContext) -> None:
        self._step = context.parallelism
        #: With each parallelism there was, the latest last.
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
            least = min(number for number, _ in self._before[-1])  # nobody has anything to read before that
            self.number += max(0, -(-(least - self.number) // self._step)) * self._step
            self._skip_read()

    def advance(self) -> None:
        """The piece at hand is read: on to the next one that nobody has read."""
        self.number += self._step
        self.place = None
        self._skip_read()

    def position(self) -> dict[str, Any]:
        """For `SourceReader.position`."""
        return {"at": [self.number, self.place], "before": self._before if self.number <= self._last else []}

    def _skip_read(self) -> None:
        for _ in range(_MOST_PASSED // max(1, len(self._before))):
            if self.number > self._last:
                return
            reached, place = self._latest()
            if self.number >= reached:
                self.place = place
                return
            self.number += self._step
        were = len(self._before[-1])
        raise UnusableState(
            f"the readers were too far apart, one at piece {self._last}; go on with a parallelism of {were}"
        )

    def _latest(self) -> tuple[int, Any]:
        """What the last reader that came to the piece at hand had reached, and its place there."""
        for reached in reversed(self._before):
            number, place = reached[self.number % len(reached)]
            if self.number <= number:
                return number, place
        return self.number, None
