"""`cost`, small: both modes carry the rows, and the verdict is as written."""

from __future__ import annotations

import pytest

from headgate.bench.exchange import end, rate
from headgate.lab import cost
from headgate.lab.cost import CREDIT, DEFAULT, MANY, SIZES, TCP


def test_a_channel_runs_in_both_modes() -> None:
    with end("producer", 0) as producer, end("consumer", 1) as consumer:
        for buffers in SIZES.values():
            for mode in (CREDIT, TCP):
                assert rate(producer, consumer, 2 << 20, {**buffers, "flow_control": mode}) > 0


@pytest.mark.parametrize(("credit", "met"), [(0.95, True), (0.949, False)])
def test_the_verdict_is_on_the_many_buffers(credit: float, met: bool) -> None:
    rates = {(size, TCP): [1e9, 2e9, 3e9] for size in SIZES}
    rates |= {(MANY, CREDIT): [1e9 * credit, 2e9 * credit, 2.9e9], (DEFAULT, CREDIT): [1e8, 2e8, 3e8]}
    result = cost.report(rates, 1)
    figures = {figure.name: figure.median for figure in result.figures}
    assert figures[f"credit / tcp, {MANY}"] == pytest.approx(credit)
    assert figures[f"credit / tcp, {DEFAULT}"] == pytest.approx(0.1)
    assert result.met is met and len(result.plots[0].series) == 4
