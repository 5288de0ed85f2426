"""The rows of each kind of event: persons, auctions, bids. Each class makes any range of rows with NumPy and Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.nexmark import random_columns
from headgate.connectors.nexmark.numbered_events import (
    AUCTIONS,
    BIDS,
    CYCLE,
    FIRST_ID,
    PERSONS,
    TIME_TYPE,
    EventKind,
    Timeline,
    any_auction,
    any_person,
    below,
    bits,
    hot,
    opening_ms,
    times,
)
from headgate.connectors.nexmark.random_columns import PRICE_BITS, prices, taken, texts
from headgate.records.canonical import Int64s, UInt64s, as_arrow
from headgate.records.hashing import mix

_CATEGORIES, _FIRST_CATEGORY = 5, 10


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema([*types.items(), ("date_time", TIME_TYPE), ("extra", pa.string())])


class NexmarkRows(ABC):
    """The rows of one kind. A call returns rows `start` to `start + n - 1` as a record batch of the class's schema."""

    kind: ClassVar[EventKind]
    schema: ClassVar[pa.Schema]

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    def __call__(self, start: int, n: int) -> pa.RecordBatch:
        cycles, events = self.timeline.events(start, n)
        columns = self._columns(cycles, events, self.timeline.words(events))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @abstractmethod
    def _columns(self, cycles: Int64s, events: Int64s, words: UInt64s) -> list[pa.Array]:
        """Return the columns of these events. Each word is 64 random bits for an event."""


class Persons(NexmarkRows):
    """New persons, who sell and bid."""

    kind = PERSONS
    schema = _schema(id=pa.int64(), name=pa.string(), email_address=pa.string(), credit_card=pa.string(),
                     city=pa.string(), state=pa.string())  # fmt: skip

    def _columns(self, cycles: Int64s, events: Int64s, words: UInt64s) -> list[pa.Array]:
        card, names, digits = mix(words.copy()), random_columns.names(), random_columns.four_digits()
        cities, states = pa.array(random_columns.CITIES), pa.array(random_columns.STATES)
        groups = [taken(digits, below(card, 16 * part, 16, len(digits))) for part in range(4)]
        return [
            as_arrow(cycles + FIRST_ID),
            taken(names, below(words, 0, 16, len(names))),
            taken(random_columns.emails(), bits(words, 16, 12)),
            pc.binary_join_element_wise(*groups, " "),
            taken(cities, below(words, 28, 12, len(cities))),
            taken(states, below(words, 40, 12, len(states))),
            times(self.timeline.milliseconds(events)),
            taken(texts(70, 4096, range(111, 167)), bits(words, 52, 12)),
        ]


class Auctions(NexmarkRows):
    """New auctions."""

    kind = AUCTIONS
    schema = _schema(id=pa.int64(), item_name=pa.string(), description=pa.string(), initial_bid=pa.int64(),
                     reserve=pa.int64(), expires=TIME_TYPE, seller=pa.int64(), category=pa.int64())  # fmt: skip

    def _columns(self, cycles: Int64s, events: Int64s, words: UInt64s) -> list[pa.Array]:
        begun = self.timeline.milliseconds(events)
        priced = mix(words.copy())
        reserved = mix(priced.copy())
        seller = np.where(bits(words, 0, 2), hot(cycles), any_person(cycles, words, 2, 21))
        initial = prices(priced)
        lasting = 1 + below(priced, PRICE_BITS, 28, np.maximum(2 * opening_ms(self.timeline, events), 1))
        number = cycles * AUCTIONS.share + events - cycles * CYCLE - AUCTIONS.first
        return [
            as_arrow(number + FIRST_ID),
            taken(_trimmed(80, range(3, 20)), bits(words, 23, 12)),
            taken(_trimmed(90, range(3, 100)), bits(words, 35, 12)),
            as_arrow(initial),
            as_arrow(initial + prices(reserved)),
            times(begun + lasting),
            as_arrow(seller + FIRST_ID),
            as_arrow(_FIRST_CATEGORY + below(words, 47, 17, _CATEGORIES)),
            times(begun),
            taken(texts(100, 4096, range(312, 468)), bits(reserved, PRICE_BITS, 12)),
        ]


class Bids(NexmarkRows):
    """Bids. Half of them are for the hot auction, and three of four are by the hot bidder."""

    kind = BIDS
    schema = _schema(auction=pa.int64(), bidder=pa.int64(), price=pa.int64(), channel=pa.string(), url=pa.string())

    def _columns(self, cycles: Int64s, events: Int64s, words: UInt64s) -> list[pa.Array]:
        last = cycles * AUCTIONS.share + AUCTIONS.share - 1
        auction = np.where(bits(words, 0, 1), hot(last), any_auction(last, words, 1, 22))
        bidder = np.where(bits(words, 23, 2), hot(cycles) + 1, any_person(cycles, words, 25, 22))
        priced = mix(words.copy())
        channel = random_columns.chosen_channels(priced, PRICE_BITS)
        return [
            as_arrow(auction + FIRST_ID),
            as_arrow(bidder + FIRST_ID),
            as_arrow(prices(priced)),
            taken(random_columns.channels(), channel),
            taken(random_columns.urls(), channel),
            times(self.timeline.milliseconds(events)),
            taken(texts(110, 1 << 16, range(54, 82)), bits(words, 47, 16)),
        ]


def _trimmed(salt: int, lengths: range) -> pa.Array:
    return pc.utf8_trim_whitespace(texts(salt, 4096, lengths, " "))


KINDS: Final[dict[str, type[Persons | Auctions | Bids]]] = {"persons": Persons, "auctions": Auctions, "bids": Bids}
