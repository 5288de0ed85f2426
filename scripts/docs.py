#!/usr/bin/env python3
"""Write the parts of docs/ that are generated: the table of options in configuration.md."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from headgate.config import Config
from headgate.options import option_of

DOCS = Path(__file__).parents[1] / "docs"
HEADER = "| name | type | unit | default | meaning |"


def configuration(page: str) -> str:
    """The page with its table written anew."""
    before, _, after = page.partition(HEADER)
    rest = "\n".join(line for line in after.splitlines() if not line.startswith("|"))
    return before + "\n".join([HEADER, "|---|---|---|---|---|", *map(_row, dataclasses.fields(Config))]) + rest + "\n"


def _row(field: dataclasses.Field[object]) -> str:
    option = option_of(field)
    cells = (f"`{field.name}`", option.kind.name, option.unit, option.kind.show(field.default), option.meaning)
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


if __name__ == "__main__":
    page = DOCS / "configuration.md"
    page.write_text(configuration(page.read_text()))
