"""The report of a case: figures with their spread, whether its target is met, and the machine."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate.runtime.compiled import IS_COMPILED


@dataclass(frozen=True, slots=True)
class Figure:
    """A quantity that one run measured several times: its median, and its lowest and highest value as the spread."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def listed(self) -> str:
        """All values in their order, as text."""
        return ", ".join(f"{value:.3g}" for value in self.values)

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit, "median": self.median, "low": min(self.values), "high": max(self.values),
                "values": list(self.values)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part of a case that could not be measured, and the reason. A case with a skipped part has not passed."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The outcome of a case. `target` says in words what `met` means."""

    case: str
    target: str
    met: bool
    figures: tuple[Figure, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()

    @property
    def passed(self) -> bool:
        return self.met and not self.skipped

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "target": self.target,
            "met": self.met,
            "figures": {figure.name: figure.to_json() for figure in self.figures},
            "settings": self.settings,
            "skipped": {skipped.what: skipped.reason for skipped in self.skipped},
        }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """Return the quotients of values that were measured side by side, so that common noise cancels out."""
    return tuple(a / b for a, b in zip(ours, theirs, strict=True))


def run_description(command: str) -> dict[str, Any]:
    """Return the machine, the versions, the command and the date of a run, for its JSON report."""
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "package": "compiled" if IS_COMPILED else "sources",
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
