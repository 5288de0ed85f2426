"""NumPy arrays that grow at their end by doubling, so that appending costs amortised constant time."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

_LEAST = 1024
Scalar = TypeVar("Scalar", bound=np.generic)


class Growable(Generic[Scalar]):
    """A NumPy array that grows at its end; `values` is its filled part.

    `values` is a view. Read `values` again for each use, because growth creates a new view. Growth and `replace` do not
    change the content of an older view.
    """

    __slots__ = ("_data", "_fill", "_size")

    def __init__(self, dtype: type[Scalar] | np.dtype[Scalar], fill: Any = 0) -> None:
        self._fill = fill
        self._data: npt.NDArray[Scalar] = np.empty(0, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> npt.NDArray[Scalar]:
        return self._data[: self._size]

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def resize(self, size: int) -> None:
        """Grow to `size` elements; new elements hold the fill value."""
        if size > len(self._data):
            grown = np.empty(max(size, 2 * len(self._data), _LEAST), self._data.dtype)
            grown[: self._size] = self.values
            self._data = grown
        if size != self._size:
            self._data[self._size : size] = self._fill
            self._size = size

    def append(self, values: npt.NDArray[Scalar]) -> None:
        """Add values at the end."""
        begin = self._size
        self.resize(begin + len(values))
        self._data[begin : self._size] = values

    def replace(self, values: npt.NDArray[Scalar]) -> None:
        """Replace all values by these, in new memory: a snapshot may still read the old memory."""
        self._data = np.empty(max(min(len(self._data), 2 * len(values)), _LEAST), self._data.dtype)
        self._size = 0
        self.append(values)

    def frozen(self) -> Growable[Scalar]:
        """Return a copy for reading only."""
        return self._reader(self.values.copy())

    def shared(self) -> Growable[Scalar]:
        """Return a read-only array of the same memory. Later calls of `append` and `replace` do not change it.
        Writes to elements do."""
        return self._reader(self.values)

    def _reader(self, values: npt.NDArray[Scalar]) -> Growable[Scalar]:
        reader = Growable(values.dtype, self._fill)
        reader._data, reader._size = values, len(values)
        return reader
