"""The console of the commands: what they show is plain text, never markup."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from headgate.errors import printable
from headgate.redaction import redacted


class PlainConsole(Console):
    """Nothing in a string is markup, what a terminal would act upon is escaped, and credentials are left out. That
    holds for what is printed, and for the cells and titles of tables. Styles are given as such, or in
    a Text of the program's own."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Rich calls this for every string."""
        return super().render_str(printable(redacted(text)), **{**options, "markup": False, "emoji": False})
