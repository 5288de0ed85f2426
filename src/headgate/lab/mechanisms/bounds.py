"""Bounds that follow from the load: how many messages of a stream wait at most, and when a source has stopped.

They hold for mechanisms whose queues alone do not bound what waits.
"""

from __future__ import annotations

import math

from headgate.lab.mechanisms.overload import Overload

#: The mark of StormZooKeeper's queue, and the seconds within which ZooKeeper's answer, or an announcement of Heron,
#: stops a source.
_MARK = 0.9 * 1024
_ANSWER = 0.1
#: The seconds of Storm 1.2 after which a time in a node is old, and between two polls of a source.
_TIMEOUT, _POLL = 30.0, 30.0


def full_queue(overload: Overload) -> float | None:
    """Return the bound of StormZooKeeper while the sink takes nothing: a full queue, which never empties.

    None: the sink takes messages. Then the source stands and reads in turn, and falls behind. When it may go on, it
    reads what is due until ZooKeeper's answer stops it. The documents have no rate for this, so it may read all of the
    backlog.
    """
    if overload.taken:
        return None
    return (_MARK + overload.come * _ANSWER) / overload.factor


def read_until_the_next_poll(overload: Overload) -> float | None:
    """Return the bound of StormZooKeeper 1.2: what is due when the source learns for the second time that it must stop.

    It stops when the queue is full. When the sink has taken these messages, the time in the node still counts for the
    timeout, and the source learns that it is old at its next poll. It then reads all that is due, and learns at the
    poll after that one that the queue is full. While the queue is empty, the sink takes nothing.

    None: the source may go on for a second time during the overload. It has read the excess of a timeout and a poll at
    least before it stops again, and goes on when the sink has taken this.
    """
    if not overload.taken:
        return full_queue(overload)
    timeout, poll = _TIMEOUT / overload.factor, _POLL / overload.factor
    lasts = overload.end - overload.begin
    if (timeout + poll) * overload.come / overload.taken < lasts:
        return None
    mark = _MARK / overload.factor
    stops = mark / overload.excess + _ANSWER / overload.factor
    learns = stops + mark / overload.taken + timeout + poll + poll
    return overload.excess * min(learns, lasts) + overload.taken * (timeout + poll)


def due_at_the_low_mark(overload: Overload, *, mark: float) -> float:
    """Return the bound of HeronSpout: what is due when the sink has taken half of `mark`, and the source goes on.

    The source may read all of it before the next announcement stops it. If the overload has ended by then, the bound is
    the mark, and what the source reads until the first announcement.
    """
    mark /= overload.factor
    lasts = overload.end - overload.begin
    stops = min(mark / overload.excess + _ANSWER / overload.factor, lasts)
    goes_on = stops + mark / 2 / overload.taken if overload.taken else math.inf
    return overload.excess * (goes_on if goes_on < lasts else stops)


def read_asleep(overload: Overload) -> float:
    """Return the bound of JStormMaster: a full queue, and what the source reads before and after it is told to sleep.

    The first order comes within 4 s, as in `Reaction`. While the sink is congested, further orders come, each within
    two periods of four checks. With the k-th one, the source sleeps for k ms or more after each message. So t seconds
    after the first order it reads at most 1000 messages/s times two periods, divided by t. The sink takes messages
    meanwhile: what waits grows until the source reads no more than that. A sink that is relieved halves the sleep, with
    an empty queue. Less waits after that.
    """
    orders = 2 * 4 * 0.5 / overload.factor
    lasts = overload.end - overload.begin
    awake = min(lasts, 1000 * orders / overload.come)
    grows = min(lasts, 1000 * orders / overload.taken) if overload.taken else lasts
    slept = 1000 * orders * math.log(grows / awake) - overload.taken * (grows - awake)
    return 1024 / overload.factor + overload.excess * (4 / overload.factor + awake) + slept


#: The seconds of a batch of SparkPid. Its token bucket saves up the rate of a second, which is not divided.
_INTERVAL = 2.0
_SAVED = 1.0


def stored(overload: Overload, *, least: float) -> float | None:
    """Return the bound of SparkPid: what comes before the first slow batch is complete, and after that.

    The controller then sets the rate that the sink takes, or `least` messages/s times the factor if that is more. The
    source may have saved up this rate for a second. A batch that never ends sets no rate.
    """
    if not overload.taken:
        return None
    rate = max(overload.taken, least * overload.factor)
    too_fast = (rate - overload.taken) * (overload.end - overload.begin)
    return overload.come * _slow_batch_ends(overload) + rate * _SAVED + too_fast


def rate_is_paid(overload: Overload, *, least: float) -> float | None:
    """Return after how many seconds of overload SparkPid has stopped a source, for `least` see `stored`.

    The first slow batch is complete and sets the rate. Then the source reads what it has saved up of this rate. None:
    no batch ends, or the least rate stops no source.
    """
    rate = max(overload.taken, least * overload.factor)
    if not overload.taken or rate >= overload.come:
        return None
    return _slow_batch_ends(overload) + rate * _SAVED / (overload.come - rate)


def _slow_batch_ends(overload: Overload) -> float:
    """Return when the first batch that the sink takes slowly is complete. It was received before, for an interval."""
    interval = _INTERVAL / overload.factor
    return interval + overload.come * interval / overload.taken
