"""The report of an experiment: figures as in a benchmark, and the curves to plot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headgate.bench.report import CaseResult


@dataclass(frozen=True, slots=True)
class Series:
    """One curve."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Curves over one pair of axes. `x` and `y` are labels with units. `marks` are labelled vertical lines, by x."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(CaseResult):
    """The outcome of an experiment. `met` says whether the experiment reached its target."""

    plots: tuple[Plot, ...] = ()
    #: What the figures show, as sentences.
    findings: tuple[str, ...] = ()
    #: The contestants that did not do what was expected of them.
    missed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        report = CaseResult.to_json(self)
        return {"experiment": report.pop("case"), **report, "findings": list(self.findings),
                "plots": [asdict(plot) for plot in self.plots]}  # fmt: skip
