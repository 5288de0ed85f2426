"""How soon a mechanism is expected to stop a source, how many rows may then wait, and when the source is free again.

This follows from the documented sizes and times of a mechanism, and from the load of an experiment. The expectations
were written down before the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, Aspect, Reaction
from headgate.lab.mechanisms.observed import MechanismRun
from headgate.lab.mechanisms.overload import Overload
from headgate.lab.mechanisms.verdicts import Observation, OwnObservation

#: Seconds by which a measured time may differ from an expected one, on any machine: processes report up to half a
#: second apart.
SLACK: Final = 0.5


def reactions(name: str, rounds: Sequence[MechanismRun], overload: Overload) -> list[Observation]:
    """Return whether a mechanism reacted as expected in all rounds, or nothing if no reaction is expected of it.

    A miss that is explained fails nothing. But the mechanism may have a bound, which no explanation excuses. The rows
    in flight are only measured, and not judged, where a source without a throttle would meet the limit too; and where
    an explanation would excuse any number of them.
    """
    expected = CONTESTANTS[name].expected
    most = None if expected.bound is None else expected.bound(overload)
    is_bounded = most is not None and _can_miss(overload, most)
    found: list[Observation] = []
    if expected.reaction is not None:
        for aspect, what, did, can_miss in _expectations(
            expected.reaction, overload, rounds, stops=expected.stops is True
        ):
            why = expected.explained.get(aspect, "")
            is_excused = aspect == "in flight" and bool(why) and not is_bounded
            found.append(OwnObservation(name, what, did, True if can_miss and not is_excused else None, why))
    if most is not None:
        what, did = _in_flight(rounds, overload, most)
        found.append(OwnObservation(name, f"in any case, {what}", did, True if is_bounded else None))
    latest = None if expected.stops_by is None else expected.stops_by(overload)
    if latest is not None and latest + SLACK < overload.end - overload.begin:
        found.append(OwnObservation(name, *_stop(rounds, overload, 0.0, latest), True))
    return found


def _can_miss(overload: Overload, most: float) -> bool:
    """Return whether more messages than that are in flight without any throttle: all of the backlog is."""
    return overload.streams * (most + SLACK * overload.come) < overload.backlog


def _in_flight(rounds: Sequence[MechanismRun], overload: Overload, most: float) -> tuple[str, bool]:
    """Return that at most so many messages of a stream are in flight, as text, and whether all rounds showed it."""
    rows = BATCH * overload.streams * (most + SLACK * overload.come)
    is_met = all(each.most_in_flight(0.0, overload.end) <= rows for each in rounds)
    return f"at most {rows:,.0f} rows are in flight", is_met


def _stop(rounds: Sequence[MechanismRun], overload: Overload, earliest: float, latest: float) -> tuple[str, bool]:
    """Return that the source stops so many seconds after the overload begins, as text, and whether all rounds showed
    it."""
    begins = [each.stopped_at(overload.begin) for each in rounds]
    is_met = all(at is not None and earliest <= at - overload.begin <= latest + SLACK for at in begins)
    return f"the source stops after {earliest:.3g} to {latest + SLACK:.3g} s", is_met


def _expectations(
    reaction: Reaction, overload: Overload, rounds: Sequence[MechanismRun], *, stops: bool
) -> Iterator[tuple[Aspect, str, bool, bool]]:
    """Yield what is expected, as its aspect and as text, whether all rounds showed it, and whether it can be missed.

    A queue that the overload is too short to fill stops no source. Without `spare`, nothing is expected after the end,
    and neither if a round ended before that time with a source that still waited.
    """
    divided = 1 / overload.factor if reaction.is_divided else 1.0
    first, last = (size * divided / overload.excess for size in reaction.fills)
    last += reaction.stops_after * divided
    lasts = overload.end - overload.begin
    if stops and last + SLACK < lasts:
        # Times count from the report with the first row, and a stop from the report before it: both make it early.
        earliest = max(0.0, first - 2 * SLACK)
        what, did = _stop(rounds, overload, earliest, last)
        yield "stops", what, did, True
    most = overload.excess * min(last, lasts)
    what, did = _in_flight(rounds, overload, most)
    yield "in flight", what, did, _can_miss(overload, most)
    if stops and overload.spare:
        within = 1.5 * overload.backlog / overload.spare + reaction.resumes_after * divided + SLACK
        late = [_late(each, overload.end, within) for each in rounds]
        if None not in late:
            yield "free", f"{within:.2g} s after the overload the source reads freely", not any(late), True


def _late(run: MechanismRun, end: float, within: float) -> bool | None:
    """Return whether the source was not free again `within` seconds after `end`. None: the run ended before."""
    if run.is_stuck:
        return True
    at = run.released_at(end)
    if at is not None:
        return at - end > within
    return True if run.looks[-1].at - end > within else None
