"""The page of results: one static HTML file. Each experiment is a section: question, set-up, finding,
caveat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from headgate.bench.command import number
from headgate.lab.experiment import Experiment
from headgate.lab.questions import QUESTIONS

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 56rem; margin: 0 auto; padding: 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #8884; text-align: right }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left }
figure { margin: 1rem 0; background: white } svg { max-width: 100%; height: auto }
.met { color: #1a7f37 } .missed { color: #d1242f } .small { opacity: .7; font-size: .9rem }
"""


def page(
    run: Mapping[str, Any],
    experiments: Sequence[Experiment],
    plotted: Mapping[str, str],
    to_come: Sequence[str] = (),
) -> str:
    """Return the whole page. `plotted` maps the name of an experiment to its plots as SVG, if there are any.

    `to_come` names the experiments that have not ended yet.
    """
    waits = f'<p class="small">To come: {escape(", ".join(to_come))}</p>' if to_come else ""
    facts = ", ".join(f"{name} {value}" for name, value in run.items() if name != "command")
    sections = "\n".join(_section(result, plotted.get(result.case)) for result in experiments)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Headgate's lab</title><style>{_STYLE}</style>
<h1>Headgate's lab</h1>
<p><code>{escape(str(run["command"]))}</code></p>
<p class="small">{escape(facts)}</p>{waits}
{sections}
</html>
"""


def _section(result: Experiment, plot: str | None) -> str:
    verdict = "met" if result.passed else "missed"
    rows = "\n".join(
        f"<tr><td>{escape(figure.name)}<td>{number(figure.median)}<td>{number(min(figure.values))}"
        f"<td>{number(max(figure.values))}<td>{escape(figure.unit)}"
        for figure in result.figures
    )
    skipped = "\n".join(f'<p class="missed">{escape(each.what)}: {escape(each.reason)}</p>' for each in result.skipped)
    picture = "" if plot is None else f"<figure>{plot[plot.index('<svg') :]}</figure>"
    settings = escape(", ".join(f"{name} {value}" for name, value in result.settings.items()))
    findings = "".join(f"<li>{escape(each)}" for each in result.findings)
    question = QUESTIONS[result.case]
    return f"""<h2 id="{escape(result.case)}">{escape(question.asks)}</h2>
<p><b>Set-up</b> (<code>{escape(result.case)}</code>). {escape(question.set_up)}</p>
<p class="small">{settings}</p>
<p><b>Finding.</b> Target: {escape(result.target)}: <strong class="{verdict}">{verdict}</strong></p>
<ul>{findings}</ul>
{picture}
<table><tr><th>figure<th>median<th>low<th>high<th>unit
{rows}
</table>
{skipped}
<p><b>Caveat.</b> {escape(question.caveat)}</p>"""
