"""Acker: finds out when all messages that came from one message of a source are processed, as Storm's acker.

Each message of a *tree* has an id: a random number of 64 bits. The acker keeps one number for each tree: the exclusive
or (XOR) of all ids that it is told. It is told each id twice: when the message is sent, and when it is processed.
So the number is 0 when all are processed (and before that with a chance of 1 to 2**64 only). Facts: Storm 0.9.7,
`acker.clj`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from headgate.throttle.mechanism import Scope, Task, ThrottleSignal
from headgate.throttle.rotating_map import RotatingMap

#: The ids of a message: for each tree that it is part of, by the tree's root.
Anchors: TypeAlias = Mapping[int, int]


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
class MessageFailed(ThrottleSignal):
    """A message cannot be processed, so its tree has failed."""

    scope: ClassVar[Scope] = Scope.ACKER
    root: int


@dataclass(frozen=True, slots=True)
class TreeEnded(ThrottleSignal):
    """All messages of a tree are processed, or the tree has failed."""

    scope: ClassVar[Scope] = Scope.TASKS
    tasks: tuple[Task, ...]
    root: int
    failed: bool


class AnchoredMessage:
    """A message that a subtask works on. It makes the ids of the messages that come from it.

    `random_id` returns a random number of 64 bits.
    """

    def __init__(self, anchors: Anchors, random_id: Callable[[], int]) -> None:
        self._anchors = anchors
        self._random_id = random_id
        self._sent = dict.fromkeys(anchors, 0)
        #: The number of messages that came from this one.
        self.sent = 0

    def send(self) -> Anchors:
        """Return the ids of one message that comes from this one and goes to one destination."""
        self.sent += 1
        made = {root: self._random_id() for root in self._anchors}
        for root, number in made.items():
            self._sent[root] ^= number
        return made

    def done(self) -> list[MessageDone]:
        """Return what the acker must know when this message is processed."""
        return [MessageDone(root, number ^ self._sent[root]) for root, number in self._anchors.items()]

    def failed(self) -> list[MessageFailed]:
        return [MessageFailed(root) for root in self._anchors]


def send_from(messages: Iterable[AnchoredMessage]) -> Anchors:
    """Return the ids of one message that comes from several messages, such as the result of a join."""
    anchors: dict[int, int] = {}
    for message in messages:
        for root, number in message.send().items():
            anchors[root] = anchors.get(root, 0) ^ number
    return anchors


@dataclass(slots=True)
class _Tree:
    ids: int = 0
    source: Task | None = None
    failed: bool = False


class Acker:
    """Keeps one number for each tree that is not processed yet, and tells its source when it is.

    Signals of one tree may arrive in any order. The caller calls `rotate` every T seconds, where T is the timeout: the
    acker then forgets old trees, and says nothing about them.
    """

    def __init__(self) -> None:
        self._trees: RotatingMap[int, _Tree] = RotatingMap()

    def __len__(self) -> int:
        return len(self._trees)

    def on_signal(self, signal: TreeStarted | MessageDone | MessageFailed) -> TreeEnded | None:
        """Note a signal. Return TreeEnded if it ends its tree, otherwise None."""
        tree = self._trees.get(signal.root) or _Tree()
        if isinstance(signal, MessageFailed):
            tree.failed = True
        else:
            tree.ids ^= signal.ids
        if isinstance(signal, TreeStarted):
            tree.source = signal.source
        self._trees.put(signal.root, tree)
        if tree.source is None or (tree.ids and not tree.failed):
            return None
        self._trees.pop(signal.root)
        return TreeEnded((tree.source,), signal.root, failed=tree.ids != 0)

    def rotate(self) -> None:
        """Forget the trees of which nothing was heard for T seconds or more."""
        self._trees.rotate()
