"""The console of the commands. It shows plain text, never markup."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from headgate.errors import printable
from headgate.redaction import redacted


class PlainConsole(Console):
    """A console that shows every string as it is, also in the cells and titles of tables.

    No string is markup. Characters that a terminal would obey are escaped, and credentials are left out. To set a
    style, give the argument `style` or a `Text`.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as `Text` without styles. Rich calls this for every string that it shows."""
        return super().render_str(printable(redacted(text)), **{**options, "markup": False, "emoji": False})
