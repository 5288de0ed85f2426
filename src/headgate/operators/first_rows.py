"""`FirstRows`: makes the combiner of `top`, `max_by`, `min_by` and `deduplicate`, which leaves of each batch only the
rows that may be among the first of their key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, as_arrow, decoded, same_values
from headgate.records.hashing import key_hash
from headgate.records.order_words import Ranking, order_words

#: A batch of fewer rows is sent as it is: to look at it costs more than to send it.
_LEAST_ROWS: Final = 128
#: If more than this share of a batch's rows remains, the next `_PAUSE` batches are sent as they are.
_WORTH: Final = 0.75
_PAUSE: Final = 15


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first `most` rows of each key, as ranked by the columns `by`.

    Of rows with equal values, the earlier one is ahead, or the later one with `later_first`. Without `by`, all values
    are equal. A call makes the combiner that sends these rows of each batch.
    """

    keys: tuple[str, ...]
    by: Ranking = ()
    most: int = 1
    later_first: bool = False

    def __call__(self) -> FirstRowsOfBatch:
        return FirstRowsOfBatch(self)

    def __str__(self) -> str:
        """
        >>> str(FirstRows(("auction",), (("price", True),), most=10))
        'of each batch at most 10 rows of a key'
        """
        return f"of each batch at most {self.most} {'row' if self.most == 1 else 'rows'} of a key"


class FirstRowsOfBatch:
    """The combiner that keeps the first rows of each key in a batch, in their order.

    Where the keys hardly repeat, it looks only at some batches.
    """

    def __init__(self, first: FirstRows) -> None:
        self._keys = first.keys
        self._by = first.by
        self._most = first.most
        self._later_first = first.later_first
        self._paused = 0

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch without those that are behind `most` others of their key."""
        if self._paused:
            self._paused -= 1
            return batch
        keys = [decoded(batch.column(name)) for name in self._keys]
        by = [decoded(batch.column(name)) for name, _ in self._by]
        if batch.num_rows < _LEAST_ROWS or any(column.null_count for column in (*keys, *by)):
            return batch
        rows = self._first_rows(keys, [order_words(column) for column in by], batch.num_rows)
        if rows is None or len(rows) > _WORTH * batch.num_rows:
            self._paused = _PAUSE
            return batch
        return batch.take(as_arrow(rows))

    def _first_rows(self, keys: Sequence[pa.Array], words: Sequence[Int64s], count: int) -> Int64s | None:
        """Return the first of `count` rows of each key, in ascending order. Returns None if two keys have the same
        hash. `words` has the order words of the columns that rank the rows."""
        hashes = key_hash(keys) if keys else np.zeros(count, np.uint64)
        ranked = [~word if greatest else word for word, (_, greatest) in zip(words, self._by, strict=True)]
        sorted_by = (*reversed(ranked), hashes)
        if self._later_first:  # the sort is stable
            order = count - 1 - np.lexsort([column[::-1] for column in sorted_by])
        else:
            order = np.lexsort(sorted_by)
        ordered = hashes.take(order)
        begins = np.append(True, ordered[1:] != ordered[:-1])
        for key in keys:
            if not same_values(key.take(as_arrow(order[:-1])), key.take(as_arrow(order[1:])))[~begins[1:]].all():
                return None
        first = np.flatnonzero(begins)
        rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
        return np.sort(order[rank < self._most])
