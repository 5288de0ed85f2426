"""`BatchKeys`: the different keys of a batch, and calculations on the rows of each key without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import DataError
from headgate.other_names import OtherNames
from headgate.records.canonical import Int64s

#: `running_sum` adds this many rows of each key row by row, for all keys at once. It adds further rows key by key.
_TOGETHER = 64


class BatchKeys(OtherNames):
    """The different keys of a batch, numbered 0, 1, 2 ... in the order of their first rows.

    `of_row` has the number of each row's key. `first`, `last` and `counts` have the first row, the last row and the
    number of rows of each key. `len(keys)` is the number of keys. Arrays with one element per key, such as the values
    of a `hg.ColumnState`, are in the order of these numbers.

    ```python
    keys = hg.BatchKeys.of(["a", "b", "a"])  # a function of `process` gets them
    assert keys.of_row.tolist() == [0, 1, 0] and keys.first.tolist() == [0, 1]
    ```
    """

    def __init__(self, of_row: Int64s, first: Int64s) -> None:
        self.of_row = of_row
        self.first = first

    @staticmethod
    def of(keys: Any) -> BatchKeys:
        """Return the keys of a list or array, for tests of a function."""
        _, first, inverse = np.unique(np.asarray(keys), return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers = np.empty_like(order)
        numbers[order] = np.arange(len(order))
        return BatchKeys(numbers.take(inverse.reshape(-1)), first.take(order))

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def counts(self) -> Int64s:
        """The number of rows of each key."""
        counts: Int64s = np.bincount(self.of_row, minlength=len(self)).astype(np.int64, copy=False)
        return counts

    @cached_property
    def last(self) -> Int64s:
        """The last row of each key."""
        return self._order.take(self._begins + self.counts - 1)

    def previous(self, values: Any, before: Any) -> npt.NDArray[Any]:
        """Return, for each row, the value of the same key's previous row.

        `values` has one value per row. `before` has one value per key, which the key's first row gets.

        >>> hg.BatchKeys.of(["a", "b", "a"]).previous([1, 2, 3], before=[10, 20]).tolist()
        [10, 20, 1]
        """
        values, before = _without_nulls(values), np.asarray(before)
        by_key = np.empty(len(values), np.result_type(values, before))
        by_key[1:] = values.take(self._order)[:-1]
        by_key[self._begins] = before
        return self._in_rows(by_key)

    def running_sum(self, values: Any, before: Any = 0) -> npt.NDArray[Any]:
        """Return, for each row, `before` plus the sum of its key's values up to this row.

        `values` has one value per row. `before` has one value per key, or one value for all keys. The values of a key
        are added in their order, so the result is the same as in a loop over the rows. Sums of integers and booleans
        have 64 bits.

        >>> hg.BatchKeys.of(["a", "b", "a"]).running_sum([1, 2, 3], before=[10, 20]).tolist()
        [11, 22, 14]
        """
        values, before = _without_nulls(values), np.asarray(before)
        by_key = values.take(self._order).astype(_of_sums(np.result_type(values, before)), copy=False)
        by_key[self._begins] += before
        for keys, rank in self._ranks():
            if rank == _TOGETHER:
                for begin, count in zip(self._begins.take(keys).tolist(), self.counts.take(keys).tolist(), strict=True):
                    rest = by_key[begin + rank - 1 : begin + count]
                    np.cumsum(rest, out=rest)
                break
            if rank:
                rows = self._begins.take(keys) + rank
                by_key[rows] += by_key.take(rows - 1)
        return self._in_rows(by_key)

    def rounds(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield (rows, numbers of their keys): each key's first row, then each key's second row, and so on.

        A round has at most one row per key. So a calculation that needs the result of the key's previous row can
        calculate the rows of a round together.

        >>> for rows, keys in hg.BatchKeys.of(["a", "b", "a"]).rounds():
        ...     print(rows, keys)
        [0 1] [0 1]
        [2] [0]
        """
        for keys, rank in self._ranks():
            yield self._order.take(self._begins.take(keys) + rank), keys

    def _ranks(self) -> Iterator[tuple[Int64s, int]]:
        """Yield the keys that have more than `rank` rows, for rank 0, 1, 2 ... as long as there are any."""
        keys = np.arange(len(self))
        for rank in range(int(self.counts.max(initial=0))):
            keys = keys[self.counts.take(keys) > rank] if rank else keys
            yield keys, rank

    @cached_property
    def _order(self) -> Int64s:
        """The rows, sorted by key. The rows of a key keep their order."""
        # NumPy sorts numbers of 16 bits several times as fast.
        small = self.of_row.astype(np.uint16) if len(self) <= 1 << 16 else self.of_row
        return np.argsort(small, kind="stable")

    @cached_property
    def _begins(self) -> Int64s:
        """The position of each key's first row in `_order`."""
        begins: Int64s = np.cumsum(self.counts) - self.counts
        return begins

    def _in_rows(self, by_key: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return values, which are in the order of `_order`, in the order of the rows."""
        result = np.empty_like(by_key)
        result[self._order] = by_key
        return result


def _of_sums(kind: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of sums: integers get 64 bits, as in `numpy.cumsum`."""
    return kind if kind.kind not in "bui" else np.result_type(kind, np.uint64 if kind.kind == "u" else np.int64)


def _without_nulls(values: Any) -> npt.NDArray[Any]:
    """Return values as a NumPy array. Raises DataError for an Arrow array with nulls: NumPy would take a null for NaN,
    and each later sum of its key would be NaN."""
    if isinstance(values, pa.Array | pa.ChunkedArray) and values.null_count:
        raise DataError(
            f"{values.null_count} of {len(values)} values are null, which NumPy does not know: fill them, for example "
            "with pc.fill_null(values, 0), or filter such rows out"
        )
    return np.asarray(values)
