"""What users' functions print in a TaskManager process, when it has come to the driver."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

from headgate.errors import printable

#: What is shown of one line, characters.
LINE_LENGTH: Final = 8192


def show(message: Mapping[str, Any]) -> None:
    """On the driver: print the lines of a message. A driver whose own output is closed goes on without."""
    stream: TextIO | None = sys.stderr if message["stream"] == "stderr" else sys.stdout
    if stream is None:
        return
    task = _shown(message["task"])
    text = "".join(f"{task} | {_shown(line)}\n" for line in message["lines"])
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError as error:
            stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        stream.flush()
    except (OSError, ValueError):
        pass


def _shown(line: object) -> str:
    """On one line, whatever a peer may have put there."""
    return printable(str(line)[: 2 * LINE_LENGTH]).replace("\n", "\\n")
