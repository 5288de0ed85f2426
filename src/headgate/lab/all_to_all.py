"""A part of `isolation`: A.1 and A.2 both send rows to both B.3 and B.4. B.4 reads nothing, so both writers must stop.

B.3 then gets no rows either. No flow control can help here: a writer serves both readers in turn, and has no room for
its rows to B.4. The buffers only decide when a writer stops. Each row has the time when it was made, so the rows show
when a writer stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.bench.report import Figure
from headgate.errors import HeadgateError
from headgate.lab.experiment import Plot, Series
from headgate.lab.flows import ROW_BYTES, Flow, Flows, by_target
from headgate.lab.places import A1, A2, B3, B4, MODES, Place
from headgate.lab.probe import Probe, Seen, Stall

#: The seconds for which sources continue after the stall. Only rows after the stall show how long a source stopped.
_AFTER = 1.5


@dataclass(frozen=True, slots=True)
class Standstill:
    """The outcome of one round."""

    #: Seconds from the start of B.4's stall until the last writer stopped; None if a writer did not stop.
    seconds: float | None
    #: Bytes that the writers made for B.4 before they stopped, and that B.4 had not read then.
    bytes_made: int
    #: Rows that arrived at B.3, over time.
    arrived: Series


def one_round(place: Place, mode: str, flow: float, stall: float) -> Standstill:
    """Let rows flow at full speed for `flow` seconds, then stall B.4. Raises HeadgateError if B.4 did not stall."""
    environment = place(MODES[mode])
    probe = Probe({B4: Stall(after=flow, seconds=stall)})
    source = Flows({writer: Flow((B3, B4)) for writer in (A1, A2)}, flow + stall + _AFTER)
    environment.from_source(source).partition_by(by_target).sink_to(probe)
    environment.execute("isolation, all to all")
    return standing(mode, probe.seen[B3], probe.seen[B4], flow + stall + _AFTER)


def standing(mode: str, b3: Seen, b4: Seen, end: float) -> Standstill:
    """Return the outcome from the records of both readers. Curves end at `end` seconds."""
    if b4.stalled is None:
        raise HeadgateError("isolation, all to all: B.4 did not stall, so the round does not count; run it again")
    begin, over = (b4.start - b3.start + moment for moment in b4.stalled)  # on B.3's clock
    gaps = [b3.gaps[writer] for writer in (A1, A2)]
    seconds = max(0.0, *(gap.begin - begin for gap in gaps)) if all(gap.end >= over for gap in gaps) else None
    made = sum(gap.in_flight for gap in b4.gaps.values())
    return Standstill(seconds, made * ROW_BYTES, b3.curve(f"{mode}, all to all", end))


def is_met(outcomes: Mapping[str, Sequence[Standstill]]) -> bool:
    """Return whether every writer stopped in every round."""
    return all(standstill.seconds is not None for rounds in outcomes.values() for standstill in rounds)


def figures(outcomes: Mapping[str, Sequence[Standstill]]) -> list[Figure]:
    """Return the figures of all rounds, by mode. A round in which a writer did not stop is counted, but has no time."""
    result: list[Figure] = []
    for mode, rounds in outcomes.items():
        name, stood = f"{mode}, all to all", tuple(1000 * each.seconds for each in rounds if each.seconds is not None)
        if stood:
            result.append(Figure(f"{name}: every writer stands after", "ms", stood))
        result.append(Figure(f"{name}: rounds in which one did not stand", "", (float(len(rounds) - len(stood)),)))
        result.append(Figure(f"{name}: made for B.4, not taken", "B", tuple(float(each.bytes_made) for each in rounds)))
    return result


def plot(outcomes: Mapping[str, Sequence[Standstill]], stall_at: float) -> Plot:
    """Return the plot of B.3's rows over time in each mode's last round."""
    curves = tuple(rounds[-1].arrived for rounds in outcomes.values())
    return Plot(
        title="B.3 in an all-to-all exchange, last round",
        x="time, s",
        y="rows/s",
        series=curves,
        marks=((stall_at, "B.4 stalls"),),
    )
