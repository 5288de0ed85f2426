"""`KeySampler`: finds the hot keys of a TaskManager's task from a sample of its rows, when the driver requests it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.observe.heavy_keys import HeavyKeys, hot, shown
from headgate.records.canonical import as_arrow
from headgate.records.hashing import key_hash
from headgate.runtime.control_messages import DeclineRequest, FromTaskManager, ReportKeys, SampleKeys
from headgate.runtime.task.task_builder import BuiltTask
from headgate.transport.network_thread import NetworkThread

log = logging.getLogger(__name__)

#: The most samples that a TaskManager takes at the same time.
MOST: Final = 4
#: The most rows of a batch in a sample, and the least seconds between two batches.
_ROWS, _PERIOD = 1024, 0.1
#: After a batch, a sample takes no batch for this many times the seconds that the batch cost. So a sample of long keys
#: costs a task 0.5 % of its time, and one of short keys 0.3 %.
_REST: Final = 200
#: The sample keeps a key's text if the key has at least this share of the sampled rows of a batch.
_NOTABLE: Final = 0.05
#: The most characters of one value of a key.
_LONGEST: Final = 40
#: How often a sample is prolonged while the task takes no batch.
_AGAIN: Final = 5


class KeySampler:
    """Takes the requested samples. The TaskManager's own thread calls `take`; the network thread ends the samples."""

    def __init__(self, network: NetworkThread, send: Callable[[FromTaskManager], None]) -> None:
        self._network = network
        self._send = send
        self._running: set[tuple[int, int]] = set()

    def take(self, order: SampleKeys, tasks: Sequence[BuiltTask]) -> None:
        """Begin to sample the rows of a task, and send its hot keys when the sample is complete."""
        place = order.vertex, order.subtask
        built = next((each for each in tasks if (each.vertex.id, each.subtask) == place), None)
        if built is None or built.input is None or built.task.has_ended:
            self._decline(order, "its task has not started yet, has ended, or has no input")
        elif place in self._running or len(self._running) >= MOST:
            self._decline(order, f"its keys are being sampled already, or its TaskManager takes {MOST} samples")
        else:
            self._running.add(place)
            sample = KeySample(order.keys)
            built.input.on_batch = sample.add
            self._network.call_later(order.seconds, partial(self._end, order, built, sample, _AGAIN))

    def _end(self, order: SampleKeys, built: BuiltTask, sample: KeySample, again: int) -> None:
        if not sample.rows and again and sample.error is None and not built.task.has_ended:
            self._network.call_later(order.seconds, partial(self._end, order, built, sample, again - 1))
            return
        assert built.input is not None  # `take` has checked it
        built.input.on_batch = None
        self._running.discard((order.vertex, order.subtask))
        if sample.error is not None:
            self._decline(order, f"unexpected {type(sample.error).__name__}: {sample.error}")
        elif not sample.rows:
            self._decline(order, "its task took no rows")
        else:
            self._send(ReportKeys(request=order.request, rows=sample.rows, shares=sample.hot_keys()))

    def _decline(self, order: SampleKeys, reason: str) -> None:
        self._send(DeclineRequest(request=order.request, reason=reason))


class KeySample:
    """A sample of the rows of a task. `keys` has the key columns of each input; an input without a key has none.

    The task's thread calls `add` with each batch. From at most one batch in 0.1 s, `add` takes random rows. They stand
    for all rows since the last sampled batch, so batches of all sizes count right. `_lock` protects `_heavy`, `_texts`
    and `rows`.
    """

    def __init__(self, keys: Sequence[Sequence[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._random = np.random.default_rng()
        self._next = clock()
        self._rows_since = 0
        self._lock = threading.Lock()
        self._heavy = HeavyKeys()
        self._texts: dict[int, str] = {}
        #: The rows that the sampled rows stand for.
        self.rows = 0
        #: The error that has ended the sample. A sample that fails is no reason for a task to fail.
        self.error: Exception | None = None

    def add(self, batch: pa.RecordBatch, port: int) -> None:
        """Note the rows of a batch, which came to the input `port` of the operator."""
        if self.error is not None or not self._keys[port]:
            return
        self._rows_since += batch.num_rows
        now = self._clock()
        if now < self._next or not batch.num_rows:
            return
        try:
            with self._lock:
                self._sample(batch, self._keys[port])
        except Exception as error:
            log.exception("error in a sample of keys")
            self.error = error
        self._next = now + max(_PERIOD, _REST * (self._clock() - now))

    def _sample(self, batch: pa.RecordBatch, keys: Sequence[str]) -> None:
        columns = [batch.column(key) for key in keys]
        if batch.num_rows > _ROWS:
            chosen = as_arrow(self._random.integers(batch.num_rows, size=_ROWS))
            columns = [column.take(chosen) for column in columns]
        hashes, first, counts = np.unique(key_hash(columns), return_index=True, return_counts=True)
        rows = len(columns[0])
        self._heavy.add(hashes, counts.astype(np.float64) * (self._rows_since / rows))
        for at in np.flatnonzero(counts >= _NOTABLE * rows):
            if int(hashes[at]) not in self._texts:
                values = {key: column[int(first[at])].as_py() for key, column in zip(keys, columns, strict=True)}
                self._texts[int(hashes[at])] = shown(values, _LONGEST)
        self.rows += self._rows_since
        self._rows_since = 0

    def hot_keys(self) -> list[tuple[str, float]]:
        """Return the hot keys as (text, share of the rows). Any thread may call this method."""
        with self._lock:
            found = hot(self._heavy.shares())
            return [(self._texts[key], share) for key, share in found if key in self._texts]
