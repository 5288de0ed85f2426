"""Plain TCP: the data plane without credit, as Flink's was before 1.5 (FLINK-7282).

1. The producer sends whatever its subpartitions have, until the socket is above its high mark (`outgoing.py`).
2. The consumer takes buffers of the gate's shared pool for each data frame that arrives. When there is none the frame
   waits for the next one that comes back, and until then nothing more is read from that socket: every channel of the
   connection stands still behind that frame (head-of-line blocking). The kernel's buffers fill up, and so the producer
   stops.

Results are the same as under credit; who has to wait for whom is not. A connection may carry the channels of one edge
only: were one edge to wait behind another, a pipeline could wait for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from headgate.errors import ExchangeError
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment
from headgate.protocol.decoders import NO_MEMORY_YET, NoMemoryYet
from headgate.protocol.receiver import Receiver


class NoCredit:
    """What a sender spends where nothing limits it but the socket."""

    available: Final = sys.maxsize
    needs_announcement: Final = False
    is_whole: Final = True

    def __init__(self, initial: int) -> None:
        self.add(initial)

    def add(self, credit: int) -> None:
        """Raises ExchangeError for a consumer that grants any."""
        if credit:
            raise ExchangeError(f"credit of {credit} on a connection without credit")

    def spend(self, count: int) -> None: ...

    def on_resume(self) -> None: ...


class SharedBuffers:
    """One channel's buffers: all of them are the gate's, and taken as frames arrive.

    The network thread takes, the task thread recycles, the pool's listener may run on either; hence the
    lock. `on_buffer` is called, outside it, when a buffer has come for the frame that waits.
    """

    __slots__ = ("_lock", "_offered", "_on_buffer", "_pool", "_released", "_waiting")

    initial_credit: Final = 0
    free_exclusive: Final = 0

    def __init__(self, pool: LocalBufferPool, on_buffer: Callable[[], None], lock_factory: LockFactory) -> None:
        self._pool = pool
        self._on_buffer = on_buffer
        self._lock = lock_factory()
        self._offered: list[MemorySegment] = []
        self._waiting = False
        self._released = False

    def validate(self) -> None:
        """Raises AssertionError unless at most one buffer stands ready, none is waited for then, and none is held once
        released."""
        with self._lock:
            ready = [segment.index for segment in self._offered]
            assert len(ready) <= 1, f"buffers {ready} stand ready for one frame"
            assert not (ready and self._waiting), f"buffer {ready} stands ready, and another is waited for"
            assert not (ready and self._released), f"released, but holds buffer {ready}"

    def take(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        """Up to `count` buffers for data that arrived; NO_MEMORY_YET when the gate has none now, and then `on_buffer`
        tells when to ask again; None once released."""
        with self._lock:
            if self._released:
                return None
            segments, self._offered = self._offered, []
            while not segments and not self._waiting:
                segments = self._pool.request_many(count)
                if not segments:  # and if one comes back before the next line, ask again
                    self._waiting = self._pool.add_listener(self._offer)
            return segments or NO_MEMORY_YET

    def _offer(self, segment: MemorySegment | None) -> bool:
        """The pool offers one buffer (None: it is destroyed). Returns whether it was taken."""
        with self._lock:
            self._waiting = False
            if segment is None or self._released:
                return False
            self._offered = [segment]
        self._on_buffer()
        return True

    @property
    def free_floating(self) -> int:
        """Buffers that stand ready for the frame that waits."""
        return len(self._offered)

    def recycle(self, *segments: MemorySegment) -> None:
        """The task has consumed buffers."""
        self._pool.recycle_many(segments)

    def on_backlog(self, backlog: int) -> None: ...

    def block(self) -> None: ...

    def take_unannounced(self) -> int:
        return 0

    def release(self) -> None:
        """Hold nothing more; buffers still with the task go to the pool when it recycles them."""
        with self._lock:
            self._released = True
            segments, self._offered = self._offered, []
        if segments:
            self._pool.recycle_many(segments)


class PlainReceiver(Receiver):
    """The consumer's end of a connection without credit. `buffers()` is empty while a frame waits for memory."""

    def credit_available(self, receiver: int) -> None:
        """A buffer has come for a frame that waited."""
        self._resume()

    def cancel(self, receiver: int) -> None:
        """Take leave of a channel; a frame of it that waited is discarded, and the others go on."""
        super().cancel(receiver)
        self._resume()

    def _resume(self) -> None:
        self._dispatch(self._decoder.resume())
        self.tell_channels()
