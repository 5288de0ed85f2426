"""The events of Nexmark by number: which events are of a kind, when they happened, and which ids were in use then.

Of 50 events, the first is a person, three are auctions and 46 are bids. Everything about an event follows from its
number, so every subtask can make every event. The constants are those of the generator of nexmark-flink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, UInt64s, from_raw_values
from headgate.records.hashing import mix

#: How many events there are from one person to the next.
CYCLE: Final = 50
FIRST_ID: Final = 1000
TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
#: 2015-07-15T00:00Z, in milliseconds since 1970: the time of event 0.
FIRST_MS: Final = 1_436_918_400_000
_MS = 1_000
#: One of this many persons or auctions is hot at a time.
_HOT = 100
#: How many persons act and auctions are open at a time, and how many further ids, not yet in use, may occur.
_ACTIVE_PERSONS, _OPEN_AUCTIONS, _AHEAD = 1000, 100, 10
#: The step from one row to the next in a group that is out of order. It is a prime number.
STRIDE: Final = 953


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event: `share` events of each cycle, beginning with number `first` of the cycle."""

    first: int
    share: int

    def rows(self, events: int) -> int:
        """Return how many of the first `events` events are of this kind.

        >>> [kind.rows(101) for kind in (PERSONS, AUCTIONS, BIDS)]
        [3, 6, 92]
        """
        cycles, rest = divmod(events, CYCLE)
        return cycles * self.share + min(max(rest - self.first, 0), self.share)


PERSONS, AUCTIONS, BIDS = EventKind(0, 1), EventKind(1, 3), EventKind(4, 46)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The order and the times of the rows of one kind: `rate` events per second, and groups that are out of order.

    `rows` is the number of rows, or None if there is no end. With `disorder` above 1, each group of so many rows is
    permuted, except for a last group that is not full. `seed` chooses all random numbers.
    """

    kind: EventKind
    rows: int | None
    rate: int
    disorder: int
    seed: int

    def events(self, start: int, n: int) -> tuple[Int64s, Int64s]:
        """Return the cycle and the number of the events in rows `start` to `start + n - 1`."""
        rows = np.arange(start, start + n, dtype=np.int64)
        if self.disorder > 1:
            rows = self._permuted(rows)
        cycles = rows // self.kind.share
        return cycles, cycles * (CYCLE - self.kind.share) + rows + self.kind.first

    def _permuted(self, rows: Int64s) -> Int64s:
        group = rows // self.disorder * self.disorder
        moved = group + (rows - group) * STRIDE % self.disorder
        return moved if self.rows is None else np.where(group + self.disorder <= self.rows, moved, rows)

    def milliseconds(self, events: Int64s) -> Int64s:
        """Return the times of events, in milliseconds since 1970."""
        return events * _MS // self.rate + FIRST_MS

    def words(self, events: Int64s) -> UInt64s:
        """Return 64 random bits for each event."""
        salt = mix(np.array([self.seed * CYCLE + self.kind.first], np.int64).view(np.uint64))
        return mix(events.view(np.uint64) + salt)


def times(milliseconds: Int64s) -> pa.Array:
    """Return times in milliseconds since 1970 as timestamps."""
    return from_raw_values(milliseconds * _MS, None, TIME_TYPE)


def bits(words: UInt64s, first: int, count: int) -> Int64s:
    """Return `count` bits of each word, from bit `first` on, as a number."""
    return (words >> np.uint64(first) & np.uint64((1 << count) - 1)).view(np.int64)


def below(words: UInt64s, first: int, count: int, limit: int | Int64s) -> Int64s:
    """Return a number from 0 to `limit - 1` for each word, by `count` of its bits. All are equally likely."""
    return bits(words, first, count) * limit >> count


def hot(last: Int64s) -> Int64s:
    """Return the number of the hot person or auction, if `last` is the number of the last one."""
    return last // _HOT * _HOT


def any_person(last: Int64s, words: UInt64s, first: int, count: int) -> Int64s:
    """Return the number of a random person for each word, among the last 1,000 persons and the next 10."""
    active = np.minimum(last + 1, _ACTIVE_PERSONS)
    return last + 1 - active + below(words, first, count, active + _AHEAD)


def any_auction(last: Int64s, words: UInt64s, first: int, count: int) -> Int64s:
    """Return the number of a random auction for each word, among the last 101 auctions and the next 10."""
    least = np.maximum(last - _OPEN_AUCTIONS, 0)
    return least + below(words, first, count, last - least + 1 + _AHEAD)


def opening_ms(timeline: Timeline, events: Int64s) -> Int64s:
    """Return how many milliseconds pass until as many auctions have begun as are open at a time."""
    later = events + _OPEN_AUCTIONS * CYCLE // AUCTIONS.share
    return timeline.milliseconds(later) - timeline.milliseconds(events)
