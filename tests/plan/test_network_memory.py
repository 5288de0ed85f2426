"""The sizes of buffer pools in a plan."""

from __future__ import annotations

import pytest

from headgate.config import Config
from headgate.plan.network_memory import floating_pool, shared_pool


@pytest.mark.parametrize("channels", [1, 2, 7, 1000])
@pytest.mark.parametrize(("exclusive", "floating"), [(2, 8), (5, 3)])
def test_an_input_may_have_as_many_buffers_without_credit_as_with_it(
    channels: int, exclusive: int, floating: int
) -> None:
    sizes = {"buffers_per_channel": exclusive, "floating_buffers_per_gate": floating}
    with_credit = channels * exclusive + floating_pool(Config(**sizes)).maximum
    without = shared_pool(channels, Config(**sizes, flow_control="tcp"))
    assert (without.required, without.maximum) == (channels, with_credit)
