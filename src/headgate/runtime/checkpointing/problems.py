"""Describes clean-ups that failed at a job's end: one sentence for all failures with the same cause."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A source or sink whose clean-up failed.

    `error` is the text of the error that it raised. The text may begin with a place (a file, a folder). The rest of the
    text is then often the same as in other errors.
    """

    kind: str
    name: str
    error: str

    @property
    def _place_and_rest(self) -> tuple[str, str]:
        place, separator, rest = self.error.partition(": ")
        return (place, rest) if separator else ("", self.error)


def sentences(problems: Iterable[Problem], known: str = "") -> list[str]:
    """Return one sentence for each cause, with the names of all sources or sinks that it concerns.

    `known` is the job's own error. The sentences do not repeat it.
    """
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        if not known or known not in problem.error:
            groups.setdefault((problem.kind, problem._place_and_rest[1]), []).append(problem)
    return [_sentence(kind, rest, group, known) for (kind, rest), group in groups.items()]


def _sentence(kind: str, rest: str, group: Sequence[Problem], known: str) -> str:
    names = ", ".join(problem.name for problem in group)
    places = ", ".join(dict.fromkeys(problem._place_and_rest[0] for problem in group if problem._place_and_rest[0]))
    who = f"{kind if len(group) == 1 else kind + 's'} {names} could not clean up"
    if rest in known:
        return f"{who} for the same reason" + (f": {places}" if places else "")
    return f"{who}: {places}: {rest}" if places else f"{who}: {rest}"
