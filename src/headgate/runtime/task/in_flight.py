"""Data in flight: the data that a checkpoint's barrier overtakes at one task.

These data belong to the checkpoint, but to no operator's state. At an input channel there are two kinds of bytes. The
task had received the first kind but not processed it when it took its state. The second kind arrives later, before the
channel's own barrier. At an output channel, they are the bytes that the barrier overtakes. A channel has a part at its
consumer and a part at its producer. Joined in this order, the two parts end with a whole element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer

#: Consecutive bytes in immutable pieces.
Pieces: TypeAlias = list[memoryview]


@dataclass(slots=True)
class InFlight:
    """The data in flight of one task.

    `inputs` has the pieces of each input channel, gate after gate. For each output, `outputs` has the pieces of its
    channels.
    """

    inputs: list[Pieces] = field(default_factory=list)
    outputs: list[list[Pieces]] = field(default_factory=list)

    @property
    def input_bytes(self) -> int:
        return sum(map(size_of, self.inputs))

    @property
    def output_bytes(self) -> int:
        return sum(size_of(channel) for output in self.outputs for channel in output)


class InputRecording:
    """A copy of the bytes that a task reads between the capture of its state and the arrival of all barriers.

    `held` has, for each channel, the bytes that the task had taken but not processed at the capture.
    """

    def __init__(self, channels: Sequence[InputChannel], held: list[Pieces]) -> None:
        self._channels: Final = channels
        self._open: Final = [True] * len(channels)
        self.pieces: Final = held

    def add(self, channel: int, buffers: Sequence[Buffer]) -> None:
        """Copy buffers that the task has taken from a channel, before the task reads them."""
        if self._open[channel]:
            self.pieces[channel] += [memoryview(b"".join(buffer.views)) for buffer in buffers]

    def end(self, channel: int, arrived: int) -> None:
        """End the recording of a channel. The channel's barrier came after `arrived` bytes.

        Some of these bytes may still wait for the task.
        """
        if self._open[channel]:
            self._open[channel] = False
            source = self._channels[channel]
            self.pieces[channel] += source.peek(arrived - source.bytes_polled)


def size_of(pieces: Pieces) -> int:
    """Return the number of bytes in all pieces."""
    return sum(map(len, pieces))
