"""All to all: both A deal their rows to both B. B.4 takes nothing; in the end every writer stands, and B.3 gets none.

No flow control can help here: a writer distributes in turn, and what it has for B.4 has found no room. Only when it
stands is a matter of buffers. Its stop is seen in the rows themselves, which say when they were made.
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

#: Sources go on so long after the stall, seconds, or their stop could not be seen.
_AFTER = 1.5


@dataclass(frozen=True, slots=True)
class Standstill:
    """One round."""

    #: From the beginning of B.4's stall until the last writer stood, seconds; None if one did not.
    seconds: float | None
    #: Bytes that were made for B.4 before that and that it had not taken.
    bytes_made: int
    #: Rows that came to B.3, over time.
    came: Series


def one_round(place: Place, mode: str, flow: float, stall: float) -> Standstill:
    """Let rows flow at full speed for `flow` seconds, then stall B.4. Raises HeadgateError if it did not stall."""
    environment = place(MODES[mode])
    probe = Probe({B4: Stall(after=flow, seconds=stall)})
    source = Flows({writer: Flow((B3, B4)) for writer in (A1, A2)}, flow + stall + _AFTER)
    environment.from_source(source).partition_by(by_target).sink_to(probe)
    environment.execute("isolation, all to all")
    return standing(mode, probe.seen[B3], probe.seen[B4], flow + stall + _AFTER)


def standing(mode: str, b3: Seen, b4: Seen, end: float) -> Standstill:
    """What two readers saw of all writers; curves go on until `end`."""
    if b4.stalled is None:
        raise HeadgateError("isolation: B.4 did not stall, so nothing was shown")
    begin, over = (b4.start - b3.start + moment for moment in b4.stalled)  # on B.3's clock
    gaps = [b3.gaps[writer] for writer in (A1, A2)]
    seconds = max(0.0, *(gap.begin - begin for gap in gaps)) if all(gap.end >= over for gap in gaps) else None
    made = sum(gap.in_flight for gap in b4.gaps.values())
    return Standstill(seconds, made * ROW_BYTES, b3.curve(f"{mode}, all to all", end))


def is_met(outcomes: Mapping[str, Sequence[Standstill]]) -> bool:
    """Whether every writer stood in every round."""
    return all(each.seconds is not None for rounds in outcomes.values() for each in rounds)


def figures(outcomes: Mapping[str, Sequence[Standstill]]) -> list[Figure]:
    """Rounds by mode; a writer that did not stand has no time."""
    found: list[Figure] = []
    for mode, rounds in outcomes.items():
        name, stood = f"{mode}, all to all", tuple(1000 * each.seconds for each in rounds if each.seconds is not None)
        if stood:
            found.append(Figure(f"{name}: every writer stands after", "ms", stood))
        found.append(Figure(f"{name}: rounds in which one did not stand", "", (float(len(rounds) - len(stood)),)))
        found.append(Figure(f"{name}: made for B.4, not taken", "B", tuple(float(each.bytes_made) for each in rounds)))
    return found


def plot(outcomes: Mapping[str, Sequence[Standstill]], stall_at: float) -> Plot:
    """B.3's rows over time, of each mode's last round."""
    curves = tuple(rounds[-1].came for rounds in outcomes.values())
    return Plot(
        title="B.3 in an all-to-all exchange, last round",
        x="time, s",
        y="rows/s",
        series=curves,
        marks=((stall_at, "B.4 stalls"),),
    )
