"""The barrier handler: what follows from each input, under any interleaving, and the planted bugs that this finds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from headgate.errors import ExchangeError
from headgate.exchange import barrier_handler
from headgate.exchange.barrier_handler import (
    AbortAlignment,
    AllBarriersIn,
    BarrierArrived,
    BarrierHandler,
    BeginAlignment,
    CheckpointOrder,
    HandlerState,
    Input,
    Prioritise,
    Resume,
    TriggerTask,
)
from headgate.records.events import Alignment, CheckpointBarrier
from tests.exchange.barrier_machine import BarrierMachine
from tests.memory.edits import always, dropped, never, replaced
from tests.memory.places import assignment, call, condition
from tests.memory.planting import HUNT, PlantedBug, assert_caught, run_machine

HUNT_HANDLER = settings(HUNT, max_examples=1200, stateful_step_count=50)

ALIGNED, TIMED, PRIORITY, COUNTED = (CheckpointBarrier(1, 10, alignment, 5) for alignment in Alignment)
SECOND = CheckpointBarrier(2, 20)


def test_an_aligned_checkpoint_waits_for_all_channels_and_then_all_resume() -> None:
    handler = BarrierHandler(3)
    assert handler.delivered(1, ALIGNED) == [BeginAlignment(ALIGNED), BarrierArrived(1)]
    assert handler.delivered(0, ALIGNED) == [BarrierArrived(0)]
    assert handler.delivered(2, ALIGNED) == [
        BarrierArrived(2),
        TriggerTask(ALIGNED),
        Resume((0, 1, 2)),
        AllBarriersIn(1),
    ]
    assert handler.state is HandlerState.IDLE


def test_a_counted_checkpoint_waits_for_all_channels_and_blocks_none() -> None:
    handler = BarrierHandler(3)
    assert handler.delivered(1, COUNTED) == [BeginAlignment(COUNTED), BarrierArrived(1)]
    assert handler.delivered(0, COUNTED) == [BarrierArrived(0)]
    assert handler.ended(2) == [TriggerTask(COUNTED), AllBarriersIn(1)]
    second = CheckpointBarrier(2, 20, Alignment.COUNTED)
    third = CheckpointBarrier(3, 30, Alignment.COUNTED)
    assert handler.delivered(0, second) == [BeginAlignment(second), BarrierArrived(0)]
    assert handler.delivered(0, third) == [AbortAlignment(2), BeginAlignment(third), BarrierArrived(0)]
    assert handler.delivered(1, second) == []
    assert handler.delivered(1, third) == [BarrierArrived(1), TriggerTask(third), AllBarriersIn(3)]
    handler.validate()


def test_an_aligned_checkpoint_among_counted_ones() -> None:
    """A savepoint."""
    handler = BarrierHandler(2)
    handler.delivered(0, COUNTED)
    assert handler.delivered(0, SECOND) == [AbortAlignment(1), BeginAlignment(SECOND), BarrierArrived(0)]
    assert handler.delivered(1, COUNTED) == []
    assert handler.delivered(1, SECOND) == [BarrierArrived(1), TriggerTask(SECOND), Resume((0, 1)), AllBarriersIn(2)]


def test_a_single_channel_waits_for_no_other() -> None:
    handler = BarrierHandler(1)
    assert handler.delivered(0, ALIGNED) == [
        BeginAlignment(ALIGNED),
        BarrierArrived(0),
        TriggerTask(ALIGNED),
        Resume((0,)),
        AllBarriersIn(1),
    ]
    handler = BarrierHandler(1)
    assert handler.delivered(0, PRIORITY) == [
        BeginAlignment(PRIORITY),
        TriggerTask(PRIORITY),
        BarrierArrived(0),
        AllBarriersIn(1),
    ]


def test_a_priority_barrier_triggers_at_once_and_the_others_follow() -> None:
    handler = BarrierHandler(2)
    assert handler.delivered(1, PRIORITY) == [BeginAlignment(PRIORITY), TriggerTask(PRIORITY), BarrierArrived(1)]
    assert handler.state is HandlerState.OVERTAKING
    assert handler.delivered(0, PRIORITY) == [BarrierArrived(0), AllBarriersIn(1)]


def test_a_timeout_acts_upon_what_is_announced_and_triggers() -> None:
    handler = BarrierHandler(3)
    assert handler.announced(2, TIMED) == [BeginAlignment(TIMED)]
    assert handler.announced(0, TIMED) == []
    assert handler.delivered(0, TIMED) == [BarrierArrived(0)]
    assert handler.timed_out(1) == [TriggerTask(TIMED.as_priority()), Prioritise((2,)), BarrierArrived(2)]
    assert handler.announced(1, TIMED) == [Prioritise((1,)), BarrierArrived(1), Resume((0, 1, 2)), AllBarriersIn(1)]


def test_a_timeout_after_the_end_changes_nothing() -> None:
    handler = BarrierHandler(1)
    handler.delivered(0, TIMED)
    assert handler.timed_out(1) == []


def test_a_barrier_that_turned_urgent_elsewhere_turns_all_urgent() -> None:
    handler = BarrierHandler(3)
    handler.announced(0, TIMED)
    actions = handler.delivered(1, TIMED.as_priority())
    assert actions == [TriggerTask(TIMED.as_priority()), Prioritise((0,)), BarrierArrived(0), BarrierArrived(1)]
    assert handler.delivered(2, TIMED) == [BarrierArrived(2), Resume((0, 2)), AllBarriersIn(1)], (
        "too late to be announced"
    )


def test_a_newer_checkpoint_ends_the_one_under_way() -> None:
    handler = BarrierHandler(2)
    handler.delivered(0, ALIGNED)
    assert handler.delivered(1, SECOND) == [Resume((0,)), AbortAlignment(1), BeginAlignment(SECOND), BarrierArrived(1)]
    assert handler.delivered(0, SECOND)[-1] == AllBarriersIn(2)


def test_an_older_barrier_only_resumes_its_channel() -> None:
    handler = BarrierHandler(2)
    handler.delivered(0, SECOND)
    assert handler.delivered(1, ALIGNED) == [Resume((1,))]
    handler.delivered(1, SECOND)
    assert handler.delivered(1, ALIGNED) == [Resume((1,))]
    assert handler.delivered(1, PRIORITY) == [] == handler.announced(1, TIMED)


@pytest.mark.parametrize("barrier", [ALIGNED, PRIORITY])
def test_a_cancel_marker_ends_the_one_under_way(barrier: CheckpointBarrier) -> None:
    handler = BarrierHandler(2)
    handler.delivered(0, barrier)
    assert handler.cancelled(1, 1)[-1] == AbortAlignment(1)
    assert handler.state is HandlerState.IDLE
    assert handler.cancelled(0, 1) == [], "once"


def test_a_cancel_marker_that_comes_first_is_passed_on_and_its_barriers_are_too_late() -> None:
    handler = BarrierHandler(2)
    assert handler.cancelled(0, 1) == [AbortAlignment(1)]
    assert handler.delivered(1, ALIGNED) == [Resume((1,))]
    handler.delivered(0, SECOND)
    assert handler.cancelled(1, 3) == [Resume((0,)), AbortAlignment(2), AbortAlignment(3)]


def test_a_channel_that_ends_is_not_waited_for() -> None:
    handler = BarrierHandler(3)
    assert handler.ended(0) == []
    handler.delivered(1, ALIGNED)
    assert handler.ended(2) == [TriggerTask(ALIGNED), Resume((1,)), AllBarriersIn(1)]
    assert handler.delivered(1, SECOND)[-1] == AllBarriersIn(2)
    assert handler.ended(1) == []


def test_a_channel_that_ends_while_others_overtake() -> None:
    handler = BarrierHandler(2)
    handler.delivered(0, PRIORITY)
    assert handler.ended(1) == [AllBarriersIn(1)]


def test_a_barrier_twice_is_an_error() -> None:
    handler = BarrierHandler(2)
    handler.delivered(0, ALIGNED)
    with pytest.raises(ExchangeError, match="channel 0 delivered the barrier of checkpoint 1 twice"):
        handler.delivered(0, ALIGNED)


def rule(
    name: str, state: HandlerState, what: Input, age: CheckpointOrder, wrong: int
) -> tuple[str, tuple[HandlerState, Input, CheckpointOrder], int]:
    return name, (state, what, age), wrong


#: Rules that lack one of their steps.
LACKING = [
    rule(
        "an old barrier leaves its channel blocked while no checkpoint is in progress",
        HandlerState.IDLE,
        Input.BLOCKING,
        CheckpointOrder.OLD,
        0,
    ),
    rule(
        "an old barrier leaves its channel blocked during another checkpoint",
        HandlerState.ALIGNING,
        Input.BLOCKING,
        CheckpointOrder.OLD,
        0,
    ),
    rule("the first barrier does not count as arrived", HandlerState.IDLE, Input.BLOCKING, CheckpointOrder.NEW, 2),
    rule("the first barrier does not block its channel", HandlerState.IDLE, Input.BLOCKING, CheckpointOrder.NEW, 1),
    rule("a later barrier does not count as arrived", HandlerState.ALIGNING, Input.BLOCKING, CheckpointOrder.SAME, 1),
    rule(
        "the last barrier does not trigger the checkpoint",
        HandlerState.ALIGNING,
        Input.BLOCKING,
        CheckpointOrder.SAME,
        2,
    ),
    rule(
        "a priority barrier does not trigger the checkpoint",
        HandlerState.ALIGNING,
        Input.PRIORITY,
        CheckpointOrder.SAME,
        0,
    ),
    rule("a timeout does not trigger the checkpoint", HandlerState.ALIGNING, Input.TIMEOUT, CheckpointOrder.SAME, 0),
    rule(
        "a barrier that is announced after the trigger does not count as delivered",
        HandlerState.OVERTAKING,
        Input.ANNOUNCED,
        CheckpointOrder.SAME,
        1,
    ),
    rule(
        "the last priority barrier does not complete the checkpoint",
        HandlerState.OVERTAKING,
        Input.PRIORITY,
        CheckpointOrder.SAME,
        1,
    ),
    rule(
        "a barrier that arrives in order after the trigger blocks its channel forever",
        HandlerState.OVERTAKING,
        Input.BLOCKING,
        CheckpointOrder.SAME,
        0,
    ),
    rule(
        "a cancel marker does not abort a checkpoint that is aligning",
        HandlerState.ALIGNING,
        Input.CANCELLED,
        CheckpointOrder.SAME,
        0,
    ),
    rule(
        "a cancel marker does not abort a checkpoint that was triggered",
        HandlerState.OVERTAKING,
        Input.CANCELLED,
        CheckpointOrder.SAME,
        0,
    ),
    rule(
        "a cancel marker before the first barrier of its checkpoint is forgotten",
        HandlerState.IDLE,
        Input.CANCELLED,
        CheckpointOrder.NEW,
        0,
    ),
    rule(
        "the next checkpoint waits for a channel that has ended", HandlerState.IDLE, Input.ENDED, CheckpointOrder.OLD, 0
    ),
    rule(
        "the end of the last missing channel does not complete the alignment",
        HandlerState.ALIGNING,
        Input.ENDED,
        CheckpointOrder.SAME,
        1,
    ),
    rule(
        "a triggered checkpoint waits for a channel that has ended",
        HandlerState.OVERTAKING,
        Input.ENDED,
        CheckpointOrder.SAME,
        0,
    ),
]

BUGS = [
    PlantedBug("blocked channels do not resume when a checkpoint ends", BarrierHandler._end, never(condition())),
    PlantedBug("the barriers of one checkpoint also count for the next checkpoint", BarrierHandler._end,
               dropped(call("clear"))),
    PlantedBug("a checkpoint that has ended can begin again", BarrierHandler._end,
               replaced(assignment().value.element(2), "self._last")),
    PlantedBug("any barrier counts as the last barrier of its checkpoint", BarrierHandler._finish_if_all_in,
               never(condition(1, of=2))),
    PlantedBug("an aligned checkpoint is never triggered", BarrierHandler._finish_if_all_in, never(condition(2, of=2))),
    PlantedBug("the last barrier triggers an overtaking checkpoint a second time", BarrierHandler._finish_if_all_in,
               always(condition(2, of=2))),
    PlantedBug("an announcement counts although its barrier has already arrived", BarrierHandler._announce,
               always(condition())),
    PlantedBug("a channel whose barrier has arrived still counts as announced", BarrierHandler._arrive,
               dropped(call("discard"))),
    PlantedBug("channels with announced barriers never resume", BarrierHandler._prioritise, dropped(call("_block"))),
]  # fmt: skip


def test_a_handler_under_any_interleaving() -> None:
    run_machine(BarrierMachine, settings(HUNT_HANDLER, max_examples=63))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    assert_caught(bug, BarrierMachine, HUNT_HANDLER, alike=True)


@pytest.mark.parametrize(("key", "step"), [rule[1:] for rule in LACKING], ids=[name for name, _, _ in LACKING])
def test_a_rule_that_lacks_a_step_is_caught(
    monkeypatch: pytest.MonkeyPatch, key: tuple[HandlerState, Input, CheckpointOrder], step: int
) -> None:
    steps = barrier_handler._RULES[key]
    monkeypatch.setitem(barrier_handler._RULES, key, steps[:step] + steps[step + 1 :])
    with pytest.raises((AssertionError, ExchangeError)):
        run_state_machine_as_test(BarrierMachine, settings=HUNT_HANDLER)
