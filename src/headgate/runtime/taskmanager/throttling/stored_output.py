"""`StoredOutput`: what a source has sent, in order, until its throttle passes it on. Rows are in memory or on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from headgate.exchange.spill_file import SpillFile
from headgate.memory.buffer import Buffer
from headgate.memory.memory_guard import MemoryGuard


class StoredOutput:
    """A queue of batches and other calls, each with the number of the timed batch that it belongs to.

    `guard` limits the bytes of rows in memory. Further rows go to `disk`; if `disk` is None, `add_rows` raises
    NetworkMemoryFull. Only the task's thread uses the object.
    """

    def __init__(self, guard: MemoryGuard, disk: SpillFile | None) -> None:
        self._guard = guard
        self._disk = disk
        self._bytes = 0
        #: For each call: the batch number, the number of rows, the bytes in memory, and the call.
        self._calls: deque[tuple[int, int, int, Callable[[], None]]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def first(self) -> int:
        """The batch number of the first call. Raises IndexError when the queue is empty."""
        return self._calls[0][0]

    def add(self, number: int, call: Callable[[], None]) -> None:
        """Store a call without rows."""
        self._calls.append((number, 0, 0, call))

    def add_rows(self, number: int, batch: pa.RecordBatch, emit: Callable[[pa.RecordBatch], None]) -> None:
        """Store a batch for `emit`. Raises NetworkMemoryFull, and SpillError when the disk refuses the rows."""
        size = batch.nbytes
        if self._bytes + size <= self._guard.size:
            self._bytes += size
            self._calls.append((number, batch.num_rows, size, lambda: emit(batch)))
            return
        if self._disk is None:
            raise self._guard.full(
                f"a source has stored {self._bytes + size} bytes of rows for later batches, and network_memory has "
                f"{self._guard.size} bytes. The rate has not followed the times of the batches; "
                'SparkPid(storage="memory_and_disk") stores more rows on disk'
            )
        self._disk.append(Buffer.of_bytes(_encoded(batch)))
        self._calls.append((number, batch.num_rows, 0, lambda: emit(self._from_disk())))

    def _from_disk(self) -> pa.RecordBatch:
        """Return the first batch on disk: batches go there, and leave it, in the order of the queue."""
        assert self._disk is not None
        item = self._disk.popleft()
        assert isinstance(item, Buffer)
        return pa.ipc.open_stream(b"".join(item.views)).read_next_batch()

    def pass_on(self) -> int:
        """Make the first call, and return how many rows it passed on. Raises IndexError when the queue is empty."""
        _, rows, size, call = self._calls.popleft()
        self._bytes -= size
        call()
        return rows

    def close(self) -> None:
        """Drop all calls and close the file."""
        self._calls.clear()
        if self._disk is not None:
            self._disk.close()


def _encoded(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow stream, which has the values of dictionaries, too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
