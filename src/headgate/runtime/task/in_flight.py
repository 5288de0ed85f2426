"""Data in flight: what a checkpoint's barrier overtakes at one task. It belongs to the checkpoint, but to no operator's
state.

At an input channel these are the bytes that the task has received and not processed when it takes its state, and
then what comes until the channel's own barrier. At an output channel these are the bytes that the barrier overtakes. A
channel's two parts, the consumer's first, are one run of bytes, which ends with an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer

#: Consecutive bytes, which no longer change.
Pieces: TypeAlias = list[memoryview]


@dataclass(slots=True)
class InFlight:
    """The data in flight of one task: of each input channel, gate after gate, and of each channel of each output."""

    inputs: list[Pieces] = field(default_factory=list)
    outputs: list[list[Pieces]] = field(default_factory=list)

    @property
    def input_bytes(self) -> int:
        return sum(map(size_of, self.inputs))

    @property
    def output_bytes(self) -> int:
        return sum(size_of(channel) for output in self.outputs for channel in output)


class InputRecording:
    """Copies what a task reads, from when its state was taken until all barriers are in. `held` are the bytes of each
    channel that it had taken by then and not processed."""

    def __init__(self, channels: Sequence[InputChannel], held: list[Pieces]) -> None:
        self._channels: Final = channels
        self._open: Final = [True] * len(channels)
        self.pieces: Final = held

    def add(self, channel: int, buffers: Sequence[Buffer]) -> None:
        """Copy buffers that the task has taken from a channel, and is about to read."""
        if self._open[channel]:
            self.pieces[channel] += [memoryview(b"".join(buffer.views)) for buffer in buffers]

    def end(self, channel: int, arrived: int) -> None:
        """End the recording of a channel. Its barrier came after `arrived` bytes, some of which may still wait for the
        task."""
        if self._open[channel]:
            self._open[channel] = False
            source = self._channels[channel]
            self.pieces[channel] += source.peek(arrived - source.bytes_polled)


def size_of(pieces: Pieces) -> int:
    """Return the number of bytes."""
    return sum(map(len, pieces))
