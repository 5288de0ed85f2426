"""What a checkpoint holds whose barriers overtake: rows are in the state of a reader or in flight, each once.

Whole exchanges in an order that comes from a seed; `Exchange.check_parts` looks at every checkpoint.
"""

from __future__ import annotations

import random

import pytest

from headgate.config import FlowControl
from headgate.errors import HeadgateError
from headgate.exchange.channels import RemoteInputChannel as Remote
from headgate.exchange.writer import RecordWriter as Writer
from headgate.records.events import Alignment
from headgate.runtime.task.barriers import TaskBarriers as Barriers
from headgate.runtime.task.in_flight import InputRecording as Recording
from headgate.runtime.task.input import TaskInput as Input
from tests.exchange.whole import ALL, Exchange, Shape
from tests.memory.planting import PlantedBug


def one_round(seed: int) -> int:
    """Returns how many writers' rows were looked at in whole checkpoints."""
    chance = random.Random(seed)
    writers, branches = chance.choice([((0,), 1), ((0, 1), 1), ((0, 0, 1), 1), ((0, 0), 2), ((0, 0, 1, 1), 2)])
    shape = Shape(
        mode=FlowControl.CREDIT,
        writers=writers,
        branches=branches,
        unions=chance.choice([1, 2]),
        readers=chance.choice([(0,), (1,), (0, 1), (1, 0)]),
        selector=chance.choice(["key groups", "rebalance", "broadcast"]),
        buffer_timeout=chance.choice([-1.0, 0.0, 0.05]),
        message_size=chance.choice([64, 200, 1000]),
        exclusive=chance.randint(0, 2),
        extra=chance.randint(0, 4),
        cap=chance.choice([3, 100]),
        capacity=chance.choice([300, ALL]),
        segment=chance.choice([128, 1024]),
    )
    world = Exchange(shape)
    for _ in range(20):
        writer = chance.randrange(len(world.producers))
        if chance.random() < 0.7 and world.producers[writer].may_emit:
            for rows in chance.choice([[1], [17], [60], [3, 17]]):
                world.emit(writer, rows)
            if chance.random() < 0.3:
                world.watermark(writer)
        if chance.random() < 0.5:
            world.inject(writer, chance.choice([Alignment.UNALIGNED, Alignment.TIMEOUT]))
        world.timeouts_pass = chance.random() < 0.4
        world.move(chance, chance.choice([2, 10, 30]))
        if chance.random() < 0.1:
            world.rest()
    world.run_to_the_end()
    world.close(chance)
    return world.whole_parts


def test_rows_are_in_a_state_or_in_flight_once() -> None:
    assert sum(map(one_round, range(60))) > 100


BUGS = [
    PlantedBug("half an element that was gathered is not kept", Input, "_held", "held[channel] += deserializer.partial",
               "pass"),
    PlantedBug("rows that were read and wait are not kept", Input, "_held",
               "held[channel] += serialize(element, self._codec)", "pass"),
    PlantedBug("what is due is not kept", Writer, "overtake", ", *_bytes_of(due)", ""),
    PlantedBug("pending rows are not kept", Writer, "overtake", "self.flush()", "pass"),
    PlantedBug("what is due before a barrier that overtakes late is not kept", Writer, "_prioritise", ", *before]",
               "]"),
    PlantedBug("a barrier that has left is said to overtake", Writer, "_prioritise",
               "return self.partition.prioritise(channel, checkpoint)",
               "return self.partition.overtake(channel, CheckpointBarrier(checkpoint, 0).as_priority())"),
    PlantedBug("what is read before a channel's barrier is not kept", Recording, "add", "if self._open[channel]:",
               "if False:"),
    PlantedBug("what is read behind a channel's barrier is kept", Recording, "end", "self._open[channel] = False",
               "pass"),
    PlantedBug("what waits before a channel's barrier is not kept", Recording, "end",
               "self.pieces[channel] += source.peek(arrived - source.bytes_polled)", "pass"),
    PlantedBug("all that waits in a channel is kept", Remote, "bytes_before",
               "dict(self._barriers_at).get(checkpoint, self.bytes_in)", "self.bytes_in"),
    PlantedBug("rows behind a barrier are worked on before it", Remote, "poll",
               "if self._priority and self._is_overtaken:  # after", "if False:  # after"),
    PlantedBug("a part is stored before it is known what a barrier overtakes", Barriers, "_store_if_known",
               "or self._output_timeout is not None", ""),
    PlantedBug("what a barrier overtakes late is not kept", Barriers, "_turn_output_urgent",
               "self._in_flight.outputs = [[each or [] for each in channels] for channels in overtaken]", "pass"),
    PlantedBug("an output that a barrier has left has no channels", Barriers, "_turn_output_urgent",
               "[[each or [] for each in channels] for channels in overtaken]",
               "[[each or [] for each in channels] if any(each is not None for each in channels) else [] "
               "for channels in overtaken]"),
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    with bug.planted(), pytest.raises((AssertionError, HeadgateError)):
        for seed in range(400):
            one_round(seed)
