"""UnionGate: the gates of a task as one input, which polls them in turn."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence

from headgate.exchange.gate import InputGate
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import TURN
from headgate.records.events import Event


class UnionGate:
    """The gates of a task as one input.

    Each gate with data is in a queue once, like a channel in its gate. Gates without data therefore cost nothing.
    Channels are numbered consecutively over all gates.
    """

    def __init__(self, gates: Sequence[InputGate]) -> None:
        self._gates = tuple(gates)
        self._ready: deque[int] = deque()
        self._queued: set[int] = set()
        self._offsets = []
        self.channels = 0
        for number, gate in enumerate(gates):
            self._offsets.append(self.channels)
            self.channels += len(gate.channels)
            gate.notify_first(functools.partial(self._notify, number))
            if gate.has_data:
                self._notify(number)

    def _notify(self, gate: int) -> None:
        if gate not in self._queued:
            self._queued.add(gate)
            self._ready.append(gate)

    @property
    def has_data(self) -> bool:
        return bool(self._ready)

    def poll(self, limit: int = 1) -> tuple[int, list[Buffer] | Event] | None:
        """Return (channel number, its next buffers or its next event), or None when no channel has data.

        The buffers have about `limit` segments, but at most `TURN` while other gates have data.
        """
        ready = self._ready
        while ready:
            number = ready.popleft()
            self._queued.discard(number)
            gate = self._gates[number]
            try:
                polled = gate.poll(min(limit, TURN) if ready else limit)
            finally:  # also when a channel of the gate has failed
                if gate.has_data:
                    self._notify(number)
            if polled is not None:
                channel, taken = polled
                return channel + self._offsets[number], taken
        return None
