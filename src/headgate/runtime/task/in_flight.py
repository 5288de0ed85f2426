"""What belongs to a checkpoint and is in no operator's state: the data that its barrier overtakes at one task.

Of a channel to the task that is what it has received and not worked on when its state is taken, and then what comes
until the channel's own barrier; of a channel from the task, what the barrier that it passes on leaves behind. A
channel's two parts, the consumer's first, are one run of bytes, which ends with an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headgate.exchange.channels import InputChannel
from headgate.memory.buffer import Buffer

#: Bytes one behind the other, which do not change any more.
Pieces: TypeAlias = list[memoryview]


@dataclass(slots=True)
class InFlight:
    """By channel to the task, gate after gate, and by channel of each output."""

    inputs: list[Pieces] = field(default_factory=list)
    outputs: list[list[Pieces]] = field(default_factory=list)

    @property
    def input_bytes(self) -> int:
        return sum(map(size_of, self.inputs))

    @property
    def output_bytes(self) -> int:
        return sum(size_of(channel) for output in self.outputs for channel in output)


class InputRecording:
    """Copies of what comes to a task, from when its state was taken until all barriers are in. `held` is what it had
    taken from each channel by then and not worked on."""

    def __init__(self, channels: Sequence[InputChannel], held: list[Pieces]) -> None:
        self._channels: Final = channels
        self._open: Final = [True] * len(channels)
        self.pieces: Final = held

    def add(self, channel: int, buffers: Sequence[Buffer]) -> None:
        """The task has taken these from a channel, and is about to read them."""
        if self._open[channel]:
            self.pieces[channel] += [memoryview(b"".join(buffer.views)) for buffer in buffers]

    def end(self, channel: int, arrived: int) -> None:
        """A channel's barrier has come, behind so many bytes; some of these may still wait for the task."""
        if self._open[channel]:
            self._open[channel] = False
            source = self._channels[channel]
            self.pieces[channel] += source.peek(arrived - source.bytes_polled)


def size_of(pieces: Pieces) -> int:
    """Bytes."""
    return sum(map(len, pieces))
