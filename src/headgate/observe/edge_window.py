"""Compute what each exchange of a job sent between two reports of its TaskManagers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.observe.metrics_snapshot import Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeWindow:
    """The rows, bytes and buffers that all producers of one exchange sent.

    `usage` is the share of its output buffers in use in the fullest producer: the mean of the two reports.
    `buffers` and `usage` are None in old recordings, which do not contain these counters.
    """

    name: str
    rows: int
    bytes: int
    buffers: int | None
    usage: float | None = None

    @property
    def bytes_per_row(self) -> float | None:
        return self.bytes / self.rows if self.rows else None

    @property
    def bytes_per_buffer(self) -> float | None:
        return self.bytes / self.buffers if self.buffers else None


def edge_windows(reports: Sequence[tuple[Counters, Counters]]) -> dict[str, EdgeWindow]:
    """Return the exchanges by name. `reports` has the earlier and the later report of each TaskManager."""
    totals: dict[str, list[int | None]] = {}
    usages: dict[str, float] = {}
    for old, new in reports:
        before = {(row["name"], row["producer"]): row for row in old.get("edges", ())}
        for row in new.get("edges", ()):
            earlier = before.get((row["name"], row["producer"]), {})
            growths = [_growth(earlier, row, name) for name in ("rows_out", "bytes_out", "buffers_out")]
            sums = totals.setdefault(row["name"], [0, 0, 0])
            totals[row["name"]] = [_sum(one, other) for one, other in zip(sums, growths, strict=True)]
            if "out_pool_usage" in row:
                usage = (earlier.get("out_pool_usage", 0.0) + row["out_pool_usage"]) / 2
                usages[row["name"]] = max(usage, usages.get(row["name"], 0.0))
    return {
        name: EdgeWindow(name=name, rows=rows or 0, bytes=content or 0, buffers=buffers, usage=usages.get(name))
        for name, (rows, content, buffers) in totals.items()
    }


def _growth(before: Counters, after: Counters, name: str) -> int | None:
    return None if name not in after else int(after[name] - before.get(name, 0))


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
