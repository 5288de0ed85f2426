"""When to ask again."""

from __future__ import annotations

from headgate.protocol.backoff import Backoff


def waits(backoff: Backoff) -> list[float]:
    return list(iter(backoff.next, None))


def test_the_wait_doubles_up_to_the_longest_and_then_it_is_over() -> None:
    assert waits(Backoff(0.1, 1.0)) == [0.1, 0.2, 0.4, 0.8, 1.0]
    assert waits(Backoff(1.0, 1.0)) == [1.0]
    backoff = Backoff(0.5, 2.0)
    assert waits(backoff) == [0.5, 1.0, 2.0]
    assert backoff.next() is None
