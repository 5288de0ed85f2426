"""`KeyedBatches`: the operator that runs a `KeyedBatchFunction`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.errors import PlanError
from headgate.operators.keyed.batch_function import BatchContext, KeyedBatchFunction
from headgate.operators.keyed.batch_keys import BatchKeys
from headgate.operators.keyed.collector import Collector
from headgate.operators.keyed.column_state import ColumnState
from headgate.operators.keyed.keyed_operator import KeyedOperator
from headgate.operators.keyed.state_base import declared_states
from headgate.operators.operator import OperatorContext
from headgate.operators.rows import visible
from headgate.records.canonical import Int64s
from headgate.state.growable import Growable
from headgate.state.snapshot import Snapshot


def check_batch_function(function: KeyedBatchFunction) -> KeyedBatchFunction:
    """Check the function that a user passed to `process`, and return it. The driver calls this. Raises PlanError."""
    if type(function).process is KeyedBatchFunction.process:
        raise PlanError(f"process: {type(function).__name__} must override process")
    declared_states(function, ColumnState)
    return function


class KeyedBatches(KeyedOperator[KeyedBatchFunction, ColumnState]):
    """The operator that calls a user's function with each batch, the keys in it, and their state in arrays."""

    _of = "a batch function"
    _kind = ColumnState

    def __init__(
        self,
        function: KeyedBatchFunction,
        keys: tuple[str, ...],
        *,
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema],
        **options: Any,
    ) -> None:
        super().__init__(function, keys, **options)
        self._out = Collector(self._function.process, schema, sides, self._emit)
        #: For each slot, the number of its key in the present batch. The slots of other keys have numbers of earlier
        #: batches.
        self._numbers = Growable(np.int32)
        self._user: BatchContext

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._user = BatchContext(
            context.subtask,
            context.parallelism,
            watermark=self._watermark,
            has_event_time=self._time_column is not None,
        )
        self._open_function(self._user)

    def state_bytes(self) -> int:
        return super().state_bytes() + self._numbers.nbytes

    def process(self, batch: pa.RecordBatch) -> None:
        self._look_at_clock()
        slots = self._slots(batch)
        keys = self._keys_of(slots)
        self._user.processing_time = self._at.now
        self._user._times = partial(self._times, batch)
        for state in self._states:
            state.enter(slots.take(keys.first), len(self._keys))
        self._out.call(self._function.process, visible(batch), keys, self._user)
        for state in self._states:
            state.leave()
        self._user._times = None
        self._out.flush()
        self._forget_unused_keys()

    def _keys_of(self, slots: Int64s) -> BatchKeys:
        """Return the different keys of a batch, without sorting its rows.

        All rows of a key write their number to the same place. Of several writes to one place, the last one stays; so
        the rows are written backwards, and the first row of each key stays.
        """
        self._numbers.resize(len(self._keys))
        numbers, rows = self._numbers.values, np.arange(len(slots), dtype=np.int32)
        numbers[slots[::-1]] = rows[::-1]
        first = np.flatnonzero(numbers.take(slots) == rows)
        numbers[slots.take(first)] = rows[: len(first)]
        return BatchKeys(numbers.take(slots).astype(np.int64), first)

    def process_watermark(self, time: int) -> None:
        self._watermark = self._user.watermark = max(self._watermark, time)
        self.output.emit_watermark(time)

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        super().restore(snapshots)
        self._user.watermark = self._watermark
