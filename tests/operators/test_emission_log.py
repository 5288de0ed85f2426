"""The log of emissions stays small and keeps its end exact."""

from __future__ import annotations

from headgate.operators.windows.emission_log import EmissionLog


def test_all_points_while_they_fit() -> None:
    log = EmissionLog()
    for number in range(1024):
        log.record(number / 10, number)
    assert log.points() == [(number / 10, number) for number in range(1024)]


def test_when_full_every_second_point_goes_and_the_newest_stays() -> None:
    log = EmissionLog()
    for number in range(1025):
        log.record(float(number), number)
    assert [total for _, total in log.points()] == [*range(1, 1024, 2), 1024]


def test_however_many_come_it_stays_within_its_size_and_in_order() -> None:
    log = EmissionLog()
    for number in range(100_000):
        log.record(float(number), 3 * number)
    points = log.points()
    assert 512 <= len(points) <= 1024
    assert points == sorted(points)
    assert all(total == 3 * now for now, total in points)
    assert points[-1] == (99_999.0, 299_997)
