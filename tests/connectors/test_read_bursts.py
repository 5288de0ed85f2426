"""When a source whose rows trickle reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.connectors.read_bursts import FEW_ROWS, REST, ReadBursts


def ended(bursts: ReadBursts, rows: int, now: float) -> float:
    bursts.add(rows)
    return bursts.end(now)


def test_a_source_rests_after_a_burst_of_a_few_rows() -> None:
    bursts = ReadBursts()
    ended(bursts, 1, 5.0)
    assert ended(bursts, 1, 5.001) == bursts.rests_until == pytest.approx(5.02)
    assert ended(bursts, 9, 5.0202) == pytest.approx(5.04)


@pytest.mark.parametrize("rows", [1, FEW_ROWS])
def test_a_source_does_not_rest_after_its_first_burst(rows: int) -> None:
    """One burst does not tell how fast rows come. A rest would delay the first rows of a fast source."""
    assert ended(ReadBursts(), rows, 5.001) == 5.001


def test_a_burst_without_rows_needs_no_rest() -> None:
    bursts = ReadBursts()
    assert bursts.end(5.0) == 5.0
    ended(bursts, 1, 5.0)
    until = ended(bursts, 1, 5.001)
    assert bursts.end(5.002) == 5.002
    assert bursts.rests_until == until


@pytest.mark.parametrize(("rows", "rests"), [(FEW_ROWS - 1, True), (FEW_ROWS, False), (100 * FEW_ROWS, False)])
def test_a_source_of_many_rows_does_not_rest(rows: int, rests: bool) -> None:
    bursts = ReadBursts()
    ended(bursts, 1, 0.0)
    assert (ended(bursts, rows, REST) > REST) == rests


def test_a_large_burst_after_a_long_pause_is_a_trickle() -> None:
    bursts = ReadBursts()
    ended(bursts, 1, 0.0)
    assert ended(bursts, FEW_ROWS, 60.001) == pytest.approx(60.02)


@given(st.lists(st.tuples(st.integers(0, 10 * FEW_ROWS), st.floats(0, 1e9)), max_size=20))
def test_a_rest_is_short_and_never_goes_back(bursts_at: list[tuple[int, float]]) -> None:
    bursts = ReadBursts()
    for rows, now in sorted(bursts_at, key=lambda burst: burst[1]):
        until = ended(bursts, rows, now)
        assert now <= until <= now + REST * 1.0001 + 1e-6
