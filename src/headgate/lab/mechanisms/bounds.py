"""How many messages of a stream wait at most with a mechanism that bounds them by more than a queue's size."""

from __future__ import annotations

import math

from headgate.lab.mechanisms.overload import Overload


def owed(overload: Overload, *, stands: float) -> float:
    """Return the bound of StormZooKeeper: a full queue, and what the schedule of the source owes.

    A source that may go on can read all of this before it is stopped again. The sink has not taken what is in excess,
    and it takes nothing while its queue is empty and the source stands, for `stands` seconds before the division. While
    the sink takes nothing at all, its queue never empties, so that the source reads nothing more.
    """
    mark = 0.9 * 1024 / overload.factor
    if not overload.taken:
        return mark + overload.come * 0.1 / overload.factor
    return mark + overload.backlog + overload.taken * stands / overload.factor


def read_asleep(overload: Overload) -> float:
    """Return the bound of JStormMaster: a full queue, and what the source reads before and after it is told to sleep.

    The first order comes within 4 s, as in `Reaction`. While the sink is congested, further orders come, each within
    two periods of four checks. With the k-th one, the source sleeps for k ms or more after each message. So t seconds
    after the first order it reads at most 1000 messages/s times two periods, divided by t.
    """
    orders = 2 * 4 * 0.5 / overload.factor
    lasts = overload.end - overload.begin
    awake = min(lasts, 1000 * orders / overload.come)
    slept = 1000 * orders * math.log(lasts / awake)
    return 1024 / overload.factor + overload.come * (4 / overload.factor + awake) + slept


def stored(overload: Overload, *, least: float) -> float | None:
    """Return the bound of SparkPid: what comes before the first slow batch is complete, and after that.

    The controller then sets the rate that the sink takes, or `least` messages/s times the factor if that is more. The
    source may have saved up this rate for a second. A batch that never ends sets no rate.
    """
    if not overload.taken:
        return None
    interval = 2 / overload.factor
    slow_batch = overload.come * interval / overload.taken
    rate = max(overload.taken, least * overload.factor)
    too_fast = (rate - overload.taken) * (overload.end - overload.begin)
    return overload.come * (interval + slow_batch) + rate * 1.0 + too_fast
