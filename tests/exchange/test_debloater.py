"""Buffer sizes from throughput: Flink's vectors, and what makes a size worth telling."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.exchange.debloater import BufferDebloater


def small(**options: float) -> BufferDebloater:
    """Sizes 10 to 200, a target of 1 s, alpha 1/2, every change is announced."""
    chosen: dict[str, Any] = {
        "target": 1.0,
        "samples": 3,
        "threshold_percentages": 0,
        "smallest": 10,
        "largest": 200,
        **options,
    }
    return BufferDebloater(**chosen)


def test_flinks_vectors() -> None:
    debloater = small()
    steps = [(111, 13)] + 5 * [(107, 7)] + 2 * [(107, 13)] + 2 * [(333, 1)]
    sizes = []
    for total, buffers in steps:
        debloater.recalculate(total // buffers * buffers, buffers)
        sizes.append(debloater.size)
    assert sizes == [104, 59, 37, 26, 20, 17, 12, 10, 15, 22]


def test_shrinking_and_growing_with_the_defaults() -> None:
    """20 samples: alpha is 2/21 (the comment in Flink's source)."""
    debloater = BufferDebloater(target=1.0, samples=20, threshold_percentages=25, smallest=256, largest=32768)
    shrunk = []
    for _ in range(3):
        debloater.recalculate(0.0, 1)
        shrunk.append(debloater.size)
    assert shrunk == [29647, 26823, 24268]
    debloater.size = 19864
    grown = []
    for _ in range(2):
        debloater.recalculate(1e12, 1)
        grown.append(debloater.size)
    assert grown == [21755, 23826]


@pytest.mark.parametrize(("buffers", "size"), [(0, 100), (1, 100), (4, 25)])
def test_it_settles_where_the_buffers_in_use_are_the_target(buffers: int, size: int) -> None:
    debloater = small()
    for _ in range(60):
        debloater.recalculate(100.0, buffers)
    assert abs(debloater.size - size) <= 1
    assert debloater.time_to_consume == pytest.approx(1.0, rel=0.05)


def test_small_changes_are_not_announced() -> None:
    debloater = small(threshold_percentages=25)
    assert debloater.recalculate(160.0, 1) is None
    assert debloater.size == 180
    assert debloater.recalculate(120.0, 1) == 150, "exactly a quarter less than 200, which was announced last"
    assert debloater.recalculate(180.0, 1) is None


def test_the_ends_of_the_range_are_always_announced_once() -> None:
    debloater = small(threshold_percentages=90)
    announced = [debloater.recalculate(0.0, 1) for _ in range(20)]
    assert [size for size in announced if size is not None] == [12, 10]
    assert debloater.size == 10
    announced = [debloater.recalculate(1e9, 1) for _ in range(20)]
    assert announced.count(200) == 1
    assert announced[-1] is None


@given(st.lists(st.tuples(st.floats(0, 1e12), st.integers(0, 10_000)), max_size=50))
def test_any_measurements_give_a_size_within_the_range(measured: list[tuple[float, int]]) -> None:
    debloater = small()
    for throughput, buffers in measured:
        announced = debloater.recalculate(throughput, buffers)
        assert 10 <= debloater.size <= 200
        assert announced in (None, debloater.size)
