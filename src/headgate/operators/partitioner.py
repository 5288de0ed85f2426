"""`UserPartitioner`: distributes rows to channels by a user's function, and checks the function's result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import UserFunctionError
from headgate.exchange.selectors import small_integers, split_by_channel
from headgate.operators.operator import OperatorContext, call_user, function_name
from headgate.operators.rows import visible


class UserPartitioner:
    """A channel selector that calls a user's function to choose the channel of each row.

    `function(batch, channels)` returns the channel of each row, 0 to `channels` - 1: a NumPy array of integers, or an
    Arrow array without nulls. If the function fails, `select` raises a UserFunctionError, which names the sending
    operator.
    """

    splits = True

    def __init__(self, function: Callable[[pa.RecordBatch, int], Any], channels: int, context: OperatorContext) -> None:
        self._function = function
        self._channels = channels
        self._context = context
        self._small = small_integers(channels)

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        try:
            result = call_user(self._function, visible(batch), self._channels)
            return split_by_channel(batch, self._checked(result, batch.num_rows), self._channels)
        except UserFunctionError as error:
            error.at(job=self._context.job, operator=self._context.operator, subtask=self._context.subtask)
            raise

    def _checked(self, result: object, rows: int) -> np.ndarray[Any, Any]:
        """Return the function's result as an array of the smallest integer type for channel numbers.

        Raises UserFunctionError for a wrong result.
        """
        name = f"partition_by: {function_name(self._function)}"
        if isinstance(result, (pa.Array, pa.ChunkedArray)) and pa.types.is_integer(result.type):
            if result.null_count:
                raise UserFunctionError(f"{name} returned {result.null_count} nulls; every row needs a subtask")
            result = result.to_numpy()
        if not isinstance(result, np.ndarray) or result.ndim != 1 or not np.issubdtype(result.dtype, np.integer):
            got = f"an array of {result.dtype}" if isinstance(result, np.ndarray) else type(result).__name__
            must = "a NumPy or pyarrow array of integers, each row's subtask"
            raise UserFunctionError(f"{name} must return {must}, and returned {got}")
        if len(result) != rows:
            raise UserFunctionError(f"{name} returned {len(result)} numbers for a batch of {rows} rows; one per row")
        least, greatest = int(result.min()), int(result.max())
        if least < 0 or greatest >= self._channels:
            wrong = least if least < 0 else greatest
            raise UserFunctionError(
                f"{name} returned subtask {wrong}, and there are {self._channels}, from 0 on; use `% subtasks`"
            )
        return result.astype(self._small)
