"""The log of emissions stays small, and its newest points stay exact."""

from __future__ import annotations

from headgate.operators.emission_log import EmissionLog


def test_a_log_that_is_not_full_holds_all_points() -> None:
    log = EmissionLog()
    for number in range(1024):
        log.record(number / 10, number)
    assert log.points() == [(number / 10, number) for number in range(1024)]


def test_a_full_log_drops_every_second_point_but_not_the_newest() -> None:
    log = EmissionLog()
    for number in range(1025):
        log.record(float(number), number)
    assert [total for _, total in log.points()] == [*range(1, 1024, 2), 1024]


def test_the_log_stays_small_and_sorted() -> None:
    log = EmissionLog()
    for number in range(100_000):
        log.record(float(number), 3 * number)
    points = log.points()
    assert 512 <= len(points) <= 1024
    assert points == sorted(points)
    assert all(total == 3 * now for now, total in points)
    assert points[-1] == (99_999.0, 299_997)
