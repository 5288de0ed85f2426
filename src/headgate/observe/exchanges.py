"""Why an exchange is slow, when producers wait and no consumer is busy."""

from __future__ import annotations

import math

from headgate.observe.finding import Cause, Remedy
from headgate.observe.gains import next_limit
from headgate.observe.metrics_window import Window
from headgate.observe.roots import SlowExchange


def exchange_cause(root: SlowExchange) -> Cause:
    """Return why the producers of an exchange wait."""
    blocked = max(task.blocked for task in root.tasks)
    usage = max(task.out_pool_usage for task in root.tasks)
    evidence = {"blocked": blocked, "out_pool_usage": usage}
    return Cause(
        name="exchange",
        text=f"no consumer is busy, and its producers wait {blocked:.0%} of the time: credits come back too slowly",
        evidence=evidence,
    )


def exchange_remedy(window: Window, cause: Cause) -> Remedy:
    """Return how many times as many buffers keep the producers busy: twice the buffers carry twice the rows."""
    blocked = cause.evidence["blocked"]
    gain = next_limit(window, -1)
    factor = min(gain.factor, 1 / max(1e-2, 1 - blocked))
    return Remedy(
        text=f"{math.ceil(factor)} times as many buffers_per_channel, or larger ones (segment_size), would carry "
        f"{factor:.1f} times as many rows",
        gain=factor,
        limit=gain.limit,
    )
