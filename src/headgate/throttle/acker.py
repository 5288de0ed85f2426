"""Acker: finds out when all messages that came from one message of a source are processed, as Storm's acker.

Each message of a *tree* has an id: a random number of 64 bits. The acker keeps one number for each tree: the exclusive
or (XOR) of all ids that it is told. It is told each id twice: when the message is sent, and when it is processed.
So the number is 0 when all are processed (and before that with a chance of 1 to 2**64 only). Facts: Storm 0.9.7,
`acker.clj`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from headgate.throttle.mechanism import Scope, Task, ThrottleSignal
from headgate.throttle.rotating_map import RotatingMap


@dataclass(frozen=True, slots=True)
class TreeStarted(ThrottleSignal):
    """A subtask of a source has sent the first messages of a tree. `ids` is the XOR of their ids."""

    scope: ClassVar[Scope] = Scope.ACKER
    root: int
    ids: int
    source: Task


@dataclass(frozen=True, slots=True)
class MessageDone(ThrottleSignal):
    """A message is processed. `ids` is the XOR of its id and of the ids of the messages that came from it."""

    scope: ClassVar[Scope] = Scope.ACKER
    root: int
    ids: int


@dataclass(frozen=True, slots=True)
class TreeEnded(ThrottleSignal):
    """All messages of a tree are processed."""

    scope: ClassVar[Scope] = Scope.TASKS
    tasks: tuple[Task, ...]
    root: int


class AnchoredMessage:
    """A message that a subtask works on. It makes the ids of the messages that come from it.

    `root` is the id of the message's tree, and `number` that of the message. `random_id` returns a random number of 64
    bits.
    """

    def __init__(self, root: int, number: int, random_id: Callable[[], int]) -> None:
        self.root = root
        self._ids = number
        self._random_id = random_id
        #: The number of messages that came from this one.
        self.sent = 0

    def send(self) -> int:
        """Return the id of one message that comes from this one and goes to one destination."""
        self.sent += 1
        number = self._random_id()
        self._ids ^= number
        return number

    def done(self) -> MessageDone:
        """Return what the acker must know when this message is processed."""
        return MessageDone(self.root, self._ids)


@dataclass(slots=True)
class _Tree:
    ids: int = 0
    source: Task | None = None


class Acker:
    """Keeps one number for each tree that is not processed yet, and tells its source when it is.

    Signals of one tree may arrive in any order. The caller calls `rotate` every T seconds, where T is the timeout: the
    acker then forgets old trees, and says nothing about them.
    """

    def __init__(self) -> None:
        self._trees: RotatingMap[int, _Tree] = RotatingMap()

    def __len__(self) -> int:
        return len(self._trees)

    def on_signal(self, signal: TreeStarted | MessageDone) -> TreeEnded | None:
        """Note a signal. Return TreeEnded if it ends its tree, otherwise None."""
        tree = self._trees.get(signal.root) or _Tree()
        tree.ids ^= signal.ids
        if isinstance(signal, TreeStarted):
            tree.source = signal.source
        self._trees.put(signal.root, tree)
        if tree.source is None or tree.ids:
            return None
        self._trees.pop(signal.root)
        return TreeEnded((tree.source,), signal.root)

    def rotate(self) -> None:
        """Forget the trees of which nothing was heard for T seconds or more."""
        self._trees.rotate()
