"""Bytewax for comparison: measure its rate for functions on rows. Bytewax is installed on first use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from headgate.bench.conversation import ChildProcess
from headgate.bench.peers.peer_environment import PeerEnvironment

BYTEWAX: Final = PeerEnvironment(
    "Bytewax",
    "0.21.1",
    Path(__file__).with_name("bytewax_requirements.txt"),
    pythons=((3, 11), (3, 12)),
    size=60,
)
_TIMEOUT: Final = 600.0


class Bytewax:
    """A running Bytewax in its own process. Use it as a context manager. Raises ChildFailed if it cannot run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        job = Path(__file__).with_name("bytewax_job.py")
        self._process = ChildProcess("Bytewax", [str(BYTEWAX.python(say)), "-P", str(job)])

    def seconds(self, task: str, rows: int, *, timed: bool) -> float:
        """Return the seconds of processor time that `task` takes for `rows` rows. Raises ChildFailed.

        `timed` says whether the rows have a time.
        """
        return float(self._process.ask({"task": task, "rows": rows, "timed": timed}, _TIMEOUT)["seconds"])

    def __enter__(self) -> Bytewax:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()
