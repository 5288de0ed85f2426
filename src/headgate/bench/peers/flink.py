"""Flink SQL for comparison: measure the time of its queries. Flink is installed on first use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from headgate.bench.conversation import ChildFailed, ChildProcess
from headgate.bench.peers.peer_environment import PeerEnvironment

FLINK: Final = PeerEnvironment(
    "Flink", "2.3.0", Path(__file__).with_name("flink_requirements.txt"), pythons=((3, 11), (3, 12)), size=850
)
#: How many seconds a query may take. The first query also starts Flink.
QUERY_TIMEOUT = 600.0
#: A rate, in rows/s, that no source of Flink reaches.
AS_FAST_AS_POSSIBLE = 1_000_000_000

Query = Literal["one-phase", "two-phase", "source-only"]


class Flink:
    """A running Flink in its own process. Use it as a context manager. Raises ChildFailed if Flink cannot run."""

    def __init__(self, parallelism: int, say: Callable[[str], None]) -> None:
        if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
            raise ChildFailed("Flink needs Java; put java in PATH or set JAVA_HOME")
        job = Path(__file__).with_name("flink_job.py")
        self._process = ChildProcess("Flink", [str(FLINK.python(say)), str(job), str(parallelism)])

    def seconds(self, query: Query, rows: int, rate: int = AS_FAST_AS_POSSIBLE) -> float:
        """Return the seconds that `query` takes for `rows` rows, the job's start-up included. Raises ChildFailed.

        The source makes at most `rate` rows/s.
        """
        return float(self._process.ask({"query": query, "rows": rows, "rate": rate}, QUERY_TIMEOUT)["seconds"])

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()
