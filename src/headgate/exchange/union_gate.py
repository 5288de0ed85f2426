"""The gates of a task as one input, fair over them."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence

from headgate.exchange.gate import InputGate
from headgate.memory.buffer import Buffer
from headgate.protocol.messages import TURN
from headgate.records.events import Event


class UnionGate:
    """Gates with data stand in one queue, once each, by the rules of a gate for its channels: with a thousand gates of
    one channel, those that have nothing are not asked. Channels are numbered through, gate after gate."""

    def __init__(self, gates: Sequence[InputGate]) -> None:
        self._gates = tuple(gates)
        self._ready: deque[int] = deque()
        self._queued: set[int] = set()
        self._offsets = []
        self.channels = 0
        for number, gate in enumerate(gates):
            self._offsets.append(self.channels)
            self.channels += len(gate.channels)
            gate.tell_first(functools.partial(self._notify, number))
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
        """A channel's number, and its next buffers (`TURN` segments at most while others have any) or its next event;
        None when there is nothing."""
        ready = self._ready
        while ready:
            number = ready.popleft()
            self._queued.discard(number)
            gate = self._gates[number]
            try:
                polled = gate.poll(min(limit, TURN) if ready else limit)
            finally:  # also when one of its channels has failed
                if gate.has_data:
                    self._notify(number)
            if polled is not None:
                channel, taken = polled
                return channel + self._offsets[number], taken
        return None
