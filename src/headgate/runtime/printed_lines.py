"""Prints on the driver the lines that users' functions printed in a TaskManager process."""

from __future__ import annotations

import sys
from typing import Final, TextIO

from headgate.errors import printable
from headgate.runtime.control_messages import Printed

#: The most characters of one line. A TaskManager cuts longer lines, and adds how many characters are missing.
LINE_LENGTH: Final = 8192


def show(printed: Printed) -> None:
    """Print the lines on the driver. Does nothing if the driver's own output is closed."""
    stream: TextIO | None = sys.stderr if printed.stream == "stderr" else sys.stdout
    if stream is None:
        return
    task = _shown(printed.task)
    text = "".join(f"{task} | {_shown(line)}\n" for line in printed.lines)
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError as error:
            stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        stream.flush()
    except (OSError, ValueError):
        pass


def _shown(line: str) -> str:
    """Return the text on one line, without control characters that a peer may have sent."""
    return printable(line[: 2 * LINE_LENGTH]).replace("\n", "\\n")
