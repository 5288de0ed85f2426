"""What a checkpoint holds whose barriers overtake: rows are in the state of a reader or in flight, each once.

Whole exchanges in an order that comes from a seed; `Exchange.check_parts` looks at every checkpoint.
"""

from __future__ import annotations

import random

import pytest

from headgate.config import FlowControl
from headgate.errors import HeadgateError
from headgate.exchange.channels import RemoteInputChannel as Remote
from headgate.exchange.due import DueOutput as Due
from headgate.exchange.writer import RecordWriter as Writer
from headgate.records.events import Alignment
from headgate.runtime.task.barriers import TaskBarriers as Barriers
from headgate.runtime.task.in_flight import InputRecording as Recording
from headgate.runtime.task.input import TaskInput as Input
from tests.exchange.whole import ALL, Exchange, Shape
from tests.memory.edits import dropped, never, only, replaced
from tests.memory.places import assignment, call, comparison, condition, increment, returned
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


def rounds(count: int) -> int:
    return sum(map(one_round, range(count)))


def test_rows_are_in_a_state_or_in_flight_once() -> None:
    assert rounds(60) > 100


BUGS = [
    PlantedBug("the checkpoint lacks an element that was received only in part", Input._held,
               dropped(increment(3, of=3))),
    PlantedBug("the checkpoint lacks rows that were received but not processed", Input._held,
               dropped(increment(2, of=3))),
    PlantedBug("the checkpoint lacks due messages", Due.overtake, dropped(returned().element(1).element(2))),
    PlantedBug("the checkpoint lacks pending rows", Writer.overtake, dropped(call("flush"))),
    PlantedBug("the checkpoint lacks the due messages that a barrier overtakes after its timeout", Due.prioritise,
               dropped(assignment(3, of=3).value.element(2))),
    PlantedBug("a barrier that has left the output is sent once more as a priority barrier", Due.prioritise,
               replaced(call("prioritise"),
                        "self._partition.overtake(channel, CheckpointBarrier(checkpoint, 0).as_priority())")),
    PlantedBug("the checkpoint lacks data that are read before the channel's barrier", Recording.add,
               never(condition())),
    PlantedBug("the checkpoint contains data behind the channel's barrier", Recording.end,
               dropped(assignment(1, of=2))),
    PlantedBug("the checkpoint lacks data that wait before the channel's barrier", Recording.end, dropped(increment())),
    PlantedBug("the checkpoint contains all data that wait in a channel", Remote.bytes_before,
               only(call("get").argument(2))),
    PlantedBug("the task processes overtaken rows before the priority barrier", Remote.poll, never(condition(4, of=9))),
    PlantedBug("a task's part is stored while its barrier may still overtake output", Barriers._store_if_known,
               dropped(comparison(1, of=2))),
    PlantedBug("the checkpoint lacks the output that a barrier overtakes after its timeout",
               Barriers._turn_output_urgent, dropped(assignment(3, of=5))),
    PlantedBug("an output that the barrier has left is recorded without its channels", Barriers._turn_output_urgent,
               replaced(assignment(3, of=5).value.element(1),
                        "THIS if any(each is not None for each in channels) else []")),
]  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    with bug.planted(), pytest.raises((AssertionError, HeadgateError)):
        rounds(400)
