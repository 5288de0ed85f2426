"""Pictures of curves, drawn with matplotlib if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headgate.lab.experiment import Plot

#: The size of one plot in inches.
_WIDTH, _HEIGHT = 7.0, 3.6


def draw(plots: Sequence[Plot], target: Path) -> bool:
    """Write an SVG file with the plots one below the other. Return False if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(plots)), layout="constrained")
    for axes, plot in zip(figure.subplots(len(plots), squeeze=False)[:, 0], plots, strict=True):
        for series in plot.series:
            axes.plot(series.x, series.y, marker="o" if len(series.x) < 20 else None, markersize=4, label=series.name)
        for at, label in plot.marks:
            axes.axvline(at, color="grey", linestyle=":")
            axes.annotate(label, (at, 1), xycoords=("data", "axes fraction"), fontsize="small", va="bottom")
        if plot.log_x:
            axes.set_xscale("log")
        if plot.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set(xlabel=plot.x, ylabel=plot.y)
        axes.set_title(plot.title, pad=16)
        axes.legend(fontsize="small")
        axes.grid(alpha=0.3)
    figure.savefig(target, format="svg")
    return True
