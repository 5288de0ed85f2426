"""The part of an experiment in which a source has more messages than its sink takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """The part of an experiment in which a source has more messages than its sink takes, in messages per second.

    `begin` and `end` are in seconds. After `end`, the sink takes `spare` messages per second more than come. All sizes
    and times of mechanisms are divided by `factor`. So many `streams` of `come` messages share the job; one of them has
    a slow sink.
    """

    begin: float
    end: float
    come: float
    taken: float
    spare: float
    factor: float
    streams: int = 1

    @property
    def excess(self) -> float:
        return self.come - self.taken

    @property
    def backlog(self) -> float:
        """The messages that are due at the end and that the sink has not taken, wherever they are."""
        return self.excess * (self.end - self.begin)
