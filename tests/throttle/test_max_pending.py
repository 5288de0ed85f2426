"""MaxPending: trees of messages, their timeout, the limit of a source, and what it costs to send again."""

from __future__ import annotations

import random
from collections import Counter, deque
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.throttle.acker import Acker, AnchoredMessage, MessageDone, TreeEnded, TreeStarted
from headgate.throttle.max_pending import MaxPending, PendingSource
from headgate.throttle.mechanism import NEVER, Scope, SourcePolicy
from headgate.throttle.rotating_map import RotatingMap

READER = (0, 0)
chance = random.Random(1)


def random_id() -> int:
    return chance.getrandbits(64)


def source(limit: int | None = None, now: float = 0.0) -> PendingSource[Any]:
    return MaxPending(limit).pending_source(READER, now, random_id)


def send(policy: PendingSource[Any], acker: Acker, row: Any, destinations: int = 1) -> list[AnchoredMessage]:
    """Let a source send a row. Return the message that each destination gets."""
    tree = policy.open_tree()
    messages = [child(tree) for _ in range(destinations)]
    started = policy.close_tree(row, tree)
    assert started
    assert acker.on_signal(started) is None
    return messages


def child(message: AnchoredMessage) -> AnchoredMessage:
    """Return a message that comes from another one."""
    return AnchoredMessage(message.root, message.send(), random_id)


def finish(policy: PendingSource[Any], acker: Acker, message: AnchoredMessage) -> None:
    """Note that a message is processed, and carry the acker's answer to the source."""
    if ended := acker.on_signal(message.done()):
        policy.on_signal(0.0, ended)


# --- the map


def test_an_entry_expires_with_the_second_rotation_after_it_was_put() -> None:
    rotating: RotatingMap[str, int] = RotatingMap()
    rotating.put("old", 1)
    assert rotating.rotate() == {}
    rotating.put("new", 2)
    assert rotating.rotate() == {"old": 1}
    assert (rotating.get("old"), rotating.get("new"), len(rotating)) == (None, 2, 1)
    rotating.put("new", 3)
    assert rotating.rotate() == {}
    assert rotating.pop("new") == 3
    assert rotating.pop("new") is None


# --- the acker: Storm's tests of acking


def test_a_tree_ends_when_each_message_is_processed() -> None:
    policy, acker = source(), Acker()
    (first,) = send(policy, acker, "row")
    second = child(first)
    finish(policy, acker, first)
    assert (policy.pending, len(acker)) == (1, 1)
    finish(policy, acker, second)
    assert (policy.pending, len(acker), list(policy.failed)) == (0, 0, [])


def test_a_message_that_branches_ends_when_all_branches_are_processed() -> None:
    policy, acker = source(), Acker()
    (first,) = send(policy, acker, "row")
    branches = [child(first) for _ in range(3)]
    finish(policy, acker, first)
    for branch in branches:
        assert policy.pending == 1
        finish(policy, acker, branch)
    assert policy.pending == 0


def test_a_message_that_comes_from_two_trees_has_an_id_in_each() -> None:
    policy, acker = source(), Acker()
    parents = [send(policy, acker, row)[0] for row in ("left", "right")]
    joined = [child(parent) for parent in parents]
    for parent in parents:
        finish(policy, acker, parent)
    assert policy.pending == 2
    for number, message in enumerate(joined, 1):
        finish(policy, acker, message)
        assert policy.pending == 2 - number


def test_a_message_that_comes_from_the_same_message_twice_counts_once() -> None:
    """Storm's test of self-anchoring."""
    policy, acker = source(), Acker()
    (first,) = send(policy, acker, "row")
    second = AnchoredMessage(first.root, first.send() ^ first.send(), random_id)
    finish(policy, acker, first)
    assert policy.pending == 1
    finish(policy, acker, second)
    assert policy.pending == 0


def test_the_end_of_a_tree_goes_to_its_source() -> None:
    acker = Acker()
    assert acker.on_signal(TreeStarted(7, 5, READER)) is None
    ended = acker.on_signal(MessageDone(7, 5))
    assert ended == TreeEnded((READER,), 7)
    assert ended.scope is Scope.TASKS


def test_signals_of_a_tree_may_come_in_any_order() -> None:
    signals: list[Any] = [TreeStarted(7, 1 ^ 2, READER), MessageDone(7, 1 ^ 4), MessageDone(7, 2), MessageDone(7, 4)]
    for order in permutations(signals):
        acker = Acker()
        assert [acker.on_signal(signal) for signal in order][:-1] == [None] * 3
        assert len(acker) == 0


def test_the_acker_forgets_old_trees_and_says_nothing() -> None:
    acker = Acker()
    acker.on_signal(TreeStarted(7, 5, READER))
    acker.rotate()
    acker.on_signal(MessageDone(7, 1))  # a signal makes the tree young again
    acker.rotate()
    assert len(acker) == 1
    acker.rotate()
    assert len(acker) == 0
    assert acker.on_signal(MessageDone(7, 4)) is None


@given(tree=st.lists(st.integers(0, 3), max_size=30), order=st.randoms(use_true_random=False))
def test_any_tree_ends_with_its_last_message(tree: list[int], order: random.Random) -> None:
    """Each number says how many messages come from the next message."""
    policy, acker = source(), Acker()
    waiting, children = send(policy, acker, "row"), deque(tree)
    while waiting:
        assert policy.pending == 1
        message = waiting.pop(order.randrange(len(waiting)))
        waiting += [child(message) for _ in range(children.popleft() if children else 0)]
        finish(policy, acker, message)
    assert policy.pending == 0


# --- the source


def test_a_source_waits_while_the_limit_is_reached() -> None:
    policy, acker = source(2), Acker()
    gate: SourcePolicy = policy
    (first,) = send(policy, acker, "a")
    assert gate.permit(1.0) == 1.0
    send(policy, acker, "b")
    assert gate.permit(1.0) == NEVER
    finish(policy, acker, first)
    assert gate.permit(1.0) == 1.0


def test_one_read_may_exceed_the_limit() -> None:
    """Storm asks before a read, and a read may send many messages."""
    policy, acker = source(2), Acker()
    assert policy.permit(0.0) == 0.0
    for number in range(5):
        send(policy, acker, number)
    assert policy.pending == 5
    assert policy.permit(0.0) == NEVER


def test_without_a_limit_a_source_never_waits() -> None:
    policy, acker = source(), Acker()
    for number in range(1000):
        send(policy, acker, number, destinations=2)
    assert policy.permit(1.0) == 1.0
    assert policy.pending == 1000


def test_a_message_without_destinations_is_processed_at_once() -> None:
    policy = source(1)
    assert policy.close_tree("row", policy.open_tree()) is None
    assert policy.pending == 0


@pytest.mark.parametrize(("sent", "failed"), [(0.0, 60.0), (29.0, 60.0), (31.0, 90.0)])
def test_a_message_fails_after_one_or_two_timeouts(sent: float, failed: float) -> None:
    policy, acker = source(1), Acker()
    now = 0.0
    while not policy.failed:
        if now == sent:
            send(policy, acker, "row")
        if now >= policy.next_rotation:
            policy.rotate(now)
        now += 1.0
    assert now - 1.0 == failed
    assert policy.permit(now) == now


def test_the_end_of_a_tree_that_has_failed_by_its_timeout_is_ignored() -> None:
    policy, acker = source(1), Acker()
    (message,) = send(policy, acker, "row")
    for now in (30.0, 60.0):
        policy.rotate(now)
    finish(policy, acker, message)
    assert list(policy.failed) == ["row"]
    assert policy.pending == 0


# --- a job whose queue waits longer than the timeout


def run(limit: int, seconds: int, rate: int = 10) -> tuple[Counter[int], int]:
    """Return how often each message was processed, and the most messages in the queue. The job processes `rate` per s.

    The source sends failed messages first, and then new ones, as fast as it may.
    """
    policy, acker = source(limit), Acker()
    queue: deque[tuple[int, AnchoredMessage]] = deque()
    processed: Counter[int] = Counter()
    fresh = most = 0
    for now in range(seconds):
        if now >= policy.next_rotation:
            policy.rotate(now)
            acker.rotate()
        while policy.permit(now) <= now:
            if not policy.failed:
                policy.failed.append(fresh)
                fresh += 1
            row = policy.failed.popleft()
            queue.append((row, *send(policy, acker, row)))
        most = max(most, len(queue))
        for _ in range(min(rate, len(queue))):
            row, message = queue.popleft()
            finish(policy, acker, message)
            processed[row] += 1
    return processed, most


def test_a_limit_below_rate_times_timeout_doubles_nothing() -> None:
    processed, most = run(limit=250, seconds=600)
    assert max(processed.values()) == 1
    assert len(processed) == 6000
    assert most == 250


def test_a_limit_beyond_rate_times_timeout_starts_a_storm_of_replays() -> None:
    """Messages time out while they wait. They are sent again, so more than the limit is under way, and work is done
    twice and more."""
    processed, most = run(limit=1000, seconds=600)
    assert most > 2 * 1000
    assert sum(processed.values()) == 6000
    assert max(processed.values()) > 2
    assert len(processed) < 3000


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"messages": 0}, "messages=0 is impossible: it must be a whole number of at least 1"),
        ({"timeout": 0}, "timeout=0 is impossible: it must be above 0"),
        ({"acking": 1}, "acking=1 is impossible: it must be True or False"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        MaxPending(**wrong)
