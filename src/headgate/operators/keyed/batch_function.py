"""`KeyedBatchFunction`: a user's function on whole batches, with state for each key in arrays; and its context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headgate.operators.keyed.batch_keys import BatchKeys
from headgate.operators.keyed.process_function import NO_EVENT_TIME, KeyedFunction
from headgate.other_names import OtherNames
from headgate.records.canonical import Int64s


class KeyedBatchFunction(KeyedFunction):
    """The base class of vectorised functions with state for each key: `stream.key_by(...).process(function,
    schema=...)`.

    Override `process`. It gets a whole batch, and the different keys in it. State is declared as attributes,
    `hg.ColumnState`, whose values are NumPy arrays with one value per key. The function does the same as a
    `hg.KeyedProcessFunction`, but it calls NumPy for all keys at once, so it is many times as fast. It has no timers.

    `process` returns or yields RecordBatches of the declared schema, rows as dicts, either of them in
    `hg.SideOutput(tag, rows)`, or None. Each subtask has its own copy (`copy.copy`) of the function.

    ```python
    class Total(hg.KeyedBatchFunction):
        total = hg.ColumnState(pa.float64())

        def process(self, batch, keys, ctx):
            total = self.total.values()
            np.add.at(total, keys.of_row, batch["amount"])
            self.total.update(total)
            return pa.record_batch({"shop": batch["shop"].take(pa.array(keys.first)), "total": total})
    ```
    """

    def open(self, ctx: BatchContext) -> None:
        """Prepare the function. Each subtask calls this method once, before `process`."""

    def process(self, batch: pa.RecordBatch, keys: BatchKeys, ctx: BatchContext) -> Any:
        """Process a batch. `keys` are its different keys; the state has one value for each of them."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what `open` allocated. Each subtask calls this method once after `open`, also after a failure."""


class BatchContext(OtherNames):
    """The context of a call of a `KeyedBatchFunction`. Times are microseconds since the epoch.

    Attributes: `subtask` and `parallelism`; `watermark`, the current watermark; and `processing_time`, the clock's time
    when the batch arrived.
    """

    def __init__(self, subtask: int, parallelism: int, *, watermark: int, has_event_time: bool) -> None:
        self.subtask = subtask
        self.parallelism = parallelism
        #: The current watermark: -2**63 before the first watermark, and 2**63 - 1 when the input has ended.
        self.watermark = watermark
        #: The clock's time, read when the batch arrived.
        self.processing_time = 0
        self._has_event_time = has_event_time
        self._times: Callable[[], Int64s] | None = None

    @property
    def timestamps(self) -> Int64s:
        """The event time of each row, as a NumPy array. Raises RuntimeError in a stream without event time, and outside
        `process`."""
        if not self._has_event_time:
            raise RuntimeError(f"ctx.timestamps needs event time, {NO_EVENT_TIME}")
        if self._times is None:
            raise RuntimeError("ctx.timestamps: there is no batch now; use it in process")
        return self._times()
