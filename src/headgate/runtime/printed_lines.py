"""What users' functions print in a TaskManager process, when it has come to the driver."""

from __future__ import annotations

import sys
from typing import Final, TextIO

from headgate.errors import printable
from headgate.runtime.control_messages import Printed

#: What is shown of one line, characters.
LINE_LENGTH: Final = 8192


def show(printed: Printed) -> None:
    """On the driver: print the lines. A driver whose own output is closed goes on without."""
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
    """On one line, whatever a peer may have put there."""
    return printable(line[: 2 * LINE_LENGTH]).replace("\n", "\\n")
