"""Plain TCP: the data plane without credit, like Flink's before 1.5 (FLINK-7282).

1. The producer sends all data of its subpartitions, until the socket is above its high mark (`outgoing.py`).
2. The consumer takes buffers of the gate's shared pool for each data frame that arrives. When the pool is empty, the
   frame waits for a recycled buffer. Until then the consumer does not read from that socket. Every channel of the
   connection waits behind that frame (head-of-line blocking). The kernel's buffers fill up, which stops the producer.

Results are the same as with credit; only the waits differ. A connection carries the channels of one edge only: if one
edge waited behind another, a pipeline could deadlock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from headgate.errors import ExchangeError
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment
from headgate.protocol.credit import HasBacklog
from headgate.protocol.decoders import NO_MEMORY_YET, NoMemoryYet
from headgate.protocol.receiver import Receiver
from headgate.protocol.waiting_time import WaitingTime, no_clock


class NoCredit:
    """An unlimited credit, for a sender that only its socket limits."""

    available: Final = sys.maxsize
    needs_announcement: Final = False
    is_whole: Final = True
    granted: Final = 0
    waited_s: Final = 0.0

    def __init__(self, initial: int) -> None:
        self.add(initial)

    def add(self, credit: int) -> None:
        """Raise ExchangeError if the consumer grants any credit: the consumer then uses another flow control."""
        if credit:
            raise ExchangeError(f"the consumer granted a credit of {credit} on a connection without credit")

    def spend(self, count: int) -> None: ...

    def on_resume(self) -> None: ...

    def note_backlog(self, view: HasBacklog) -> None: ...
    def note_new_data(self, view: HasBacklog) -> None: ...


class SharedBuffers:
    """The buffers of one channel without credit. The channel takes them from the gate's pool when frames arrive.

    The network thread takes buffers. The task thread recycles buffers. Either thread may run the pool's listener. The
    lock protects the offered buffer and both flags; it is taken before the pool's lock. `on_buffer` is called, without
    the lock, when a buffer is ready for the waiting frame.
    """

    __slots__ = ("_lock", "_offered", "_on_buffer", "_pool", "_released", "_waiting", "_without", "reader_stops")

    initial_credit: Final = 0
    free_exclusive: Final = 0
    unannounced: Final = 0
    announced: Final = 0

    def __init__(
        self,
        pool: LocalBufferPool,
        on_buffer: Callable[[], None],
        lock_factory: LockFactory,
        clock: Callable[[], float] = no_clock,
    ) -> None:
        self._pool = pool
        self._on_buffer = on_buffer
        self._lock = lock_factory()
        self._offered: list[MemorySegment] = []
        self._waiting = False
        self._released = False
        self._without = WaitingTime(clock)
        #: How often a frame found no free buffer, so that the connection was not read for a time.
        self.reader_stops = 0

    def validate(self) -> None:
        """Raise AssertionError when the buffers that are ready contradict the flags.

        At most one buffer is ready. None is ready while the channel waits for a buffer, or after the release.
        """
        with self._lock:
            ready = [segment.index for segment in self._offered]
            assert len(ready) <= 1, f"buffers {ready} are ready for one frame"
            assert not (ready and self._waiting), f"buffer {ready} is ready, but the channel waits for another"
            assert not (ready and self._released), f"released, but holds buffer {ready}"

    def take(self, count: int) -> Sequence[MemorySegment] | NoMemoryYet | None:
        """Take up to `count` buffers for arriving data. Returns None after the release.

        Returns NO_MEMORY_YET when the gate's pool is empty. `on_buffer` is called when it is time to ask again. A
        `GuardedPool` raises NetworkMemoryFull instead.
        """
        with self._lock:
            if self._released:
                return None
            segments, self._offered = self._offered, []
            while not segments and not self._waiting:
                segments = self._pool.request_many(count)
                if not segments:  # if a buffer comes back before the next line, the loop asks again
                    self._waiting = self._pool.add_listener(self._offer)
                    self.reader_stops += self._waiting
            self._without.note(self._waiting)
            return segments or NO_MEMORY_YET

    def _offer(self, segment: MemorySegment | None) -> bool:
        """Accept an offered buffer and return True, except after the release. None: the pool is destroyed."""
        with self._lock:
            self._waiting = False
            self._without.note(False)
            if segment is None or self._released:
                return False
            self._offered = [segment]
        self._on_buffer()
        return True

    @property
    def free_floating(self) -> int:
        """The number of buffers that are ready for the waiting frame."""
        return len(self._offered)

    @property
    def without_buffer_s(self) -> float:
        """The seconds in which a frame waited for a buffer, and no other frame of the connection was read."""
        return self._without.seconds

    def recycle(self, *segments: MemorySegment) -> None:
        """Take back buffers that the task has consumed, and return them to the gate's pool."""
        self._pool.recycle_many(segments)

    def on_backlog(self, backlog: int) -> None: ...

    def block(self) -> None: ...

    def take_unannounced(self) -> int:
        return 0

    def release(self) -> None:
        """Return the offered buffer to the pool. Buffers that the task still uses follow when it recycles them."""
        with self._lock:
            self._released = True
            self._without.note(False)
            segments, self._offered = self._offered, []
        if segments:
            self._pool.recycle_many(segments)


class PlainReceiver(Receiver):
    """The consumer's end of a connection without credit. `buffers()` is empty while a frame waits for memory."""

    def credit_available(self, receiver: int) -> None:
        """Continue with the waiting frame, now that a buffer is ready for it."""
        self._resume()

    def cancel(self, receiver: int) -> None:
        """Cancel a channel. Its waiting frame is discarded, and the other channels resume."""
        super().cancel(receiver)
        self._resume()

    def _resume(self) -> None:
        self._dispatch(self._decoder.resume())
        self.notify_channels()
