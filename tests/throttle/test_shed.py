"""Shed: the limit of an input queue, and which message goes."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.throttle.mechanism import Overflow, QueuePolicy
from headgate.throttle.shed import Shed


def test_the_defaults_are_those_of_s4() -> None:
    assert Shed().queue_policy() == QueuePolicy(capacity=1000, overflow=Overflow.DROP_NEWEST)


def test_the_oldest_message_may_go_instead() -> None:
    assert Shed(1, drop="oldest").queue_policy() == QueuePolicy(capacity=1, overflow=Overflow.DROP_OLDEST)


def test_sources_are_not_asked() -> None:
    assert Shed().source_policy(now=0.0) is None


@pytest.mark.parametrize("messages", [0, -1, 1.5, True, "10", None])
def test_an_impossible_limit_is_refused(messages: Any) -> None:
    with pytest.raises(ConfigError, match=r"^messages=.* is impossible: it must be a whole number of at least 1$"):
        Shed(messages)


@pytest.mark.parametrize("drop", ["random", "", None, "Newest"])
def test_an_unknown_choice_is_refused(drop: Any) -> None:
    with pytest.raises(ConfigError, match=r'^drop=.* is unknown: it must be "newest" or "oldest"$'):
        Shed(drop=drop)
