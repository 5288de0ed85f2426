"""The job of the schedules: from Kafka through keyed windows into a sink, whose commits a test can stop at a line."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import headgate as hg
from headgate.testing.line_crash import LineCrash

SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("ms", "UTC")})
#: The length of a window in milliseconds.
WINDOW = 500
PROGRAM = "import sys; from tests.kafka.window_job import main; main(*sys.argv[1:])"


def main(servers: str, topic: str, folder: str, parallelism: str, place: str) -> None:
    """Run the job. `place` has in JSON where the windows go."""
    sink = sink_of(json.loads(place))
    stop_in_commits(type(sink), Path(folder, "stop"))
    config = hg.Config(
        checkpoint_dir=f"{folder}/checkpoints", checkpoint_interval="50 ms", restart=hg.restart.fixed(1000, "0.1 s")
    )
    deployment = hg.LocalDeployment(taskmanagers=2, processes=True)
    env = hg.StreamEnvironment(parallelism=int(parallelism), config=config, deployment=deployment)
    rows = env.from_source(hg.sources.kafka(servers, topic, schema=SCHEMA), watermark=hg.Watermark("at"))
    counts = rows.key_by("key").window(hg.tumble(WINDOW / 1000)).aggregate(rows=hg.count())
    counts.select("key", "window_start", "rows").sink_to(sink)
    env.execute("windows", resume="latest-if-any")


def sink_of(place: dict[str, Any]) -> hg.Sink:
    match place["kind"]:
        case "kafka":
            options = {"transaction.timeout.ms": 10_000}
            return hg.sinks.kafka(place["servers"], place["topic"], key="key", guarantee="exactly-once",
                                  options=options)  # fmt: skip
        case "postgresql":
            return hg.sinks.adbc("postgresql", place["uri"], place["table"])
        case "delta":
            return hg.sinks.delta(place["path"])
        case _:
            return hg.sinks.iceberg(place["table"], "test", options=place["options"])


class StopAtLine(LineCrash):
    """Stops the process before a line of the sink's code, until it gets SIGCONT."""

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            if self.lines == self._number:
                signal.raise_signal(signal.SIGSTOP)
            self.lines += 1
        return self._line


def stop_in_commits(kind: type[hg.Sink], lever: Path) -> None:
    """Let the process stop in its next commit of rows once the file `lever` is there, which has the number of a line.

    A commit of fewer lines stops at its end.
    """
    commit = kind.commit

    def call(sink: hg.Sink, pending: Sequence[Any], checkpoint: int = 0) -> None:
        if not any(pending) or not lever.exists():
            return commit(sink, pending, checkpoint)
        number = int(lever.read_text())
        lever.unlink()
        stop = StopAtLine(sink, number)
        try:
            with stop.active():
                commit(sink, pending, checkpoint)
            if stop.lines <= number:
                signal.raise_signal(signal.SIGSTOP)
        finally:
            print(f"a commit of {stop.lines} lines was stopped at line {number}", file=sys.stderr)

    kind.commit = call  # type: ignore[assignment, method-assign]
