"""The job of the schedules: from Kafka through keyed windows into a sink, whose calls a test can stop at a line."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import headgate as hg
from headgate.testing.line_crash import LineCrash

SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("ms", "UTC")})
#: The length of a window in milliseconds.
WINDOW = 500
TASKMANAGERS = 2
PROGRAM = "import sys; from tests.kafka.window_job import main; main(*sys.argv[1:])"


def main(servers: str, topic: str, folder: str, parallelism: str, place: str) -> None:
    """Run the job. `place` has in JSON where the windows go."""
    sink = sink_of(json.loads(place))
    for call in ("commit", "rollback", "claim"):
        stop_in(call, type(sink), Path(folder, f"stop-{call}"))
    die_in_flushes(sink, Path(folder, "die"))
    config = hg.Config(
        checkpoint_dir=f"{folder}/checkpoints", checkpoint_interval="50 ms", restart=hg.restart.fixed(1000, "0.1 s")
    )
    deployment = hg.LocalDeployment(taskmanagers=TASKMANAGERS, processes=True)
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


class SignalAtLine(LineCrash):
    """Sends the process a signal before a line of a connector's code, such as SIGSTOP, until it gets SIGCONT."""

    def __init__(self, connector: object, number: int, number_of_signal: signal.Signals) -> None:
        super().__init__(connector, number)
        self._signal = number_of_signal

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            if self.lines == self._number:
                signal.raise_signal(self._signal)
            self.lines += 1
        return self._line


def stop_in(call: str, kind: type[hg.Sink], lever: Path) -> None:
    """Let the process stop in the next call of this method once the file `lever` is there, which has the number of a
    line. A commit without rows does not count.

    A call of fewer lines stops at its end.
    """
    inner = getattr(kind, call)

    def stopping(sink: hg.Sink, *arguments: Any) -> Any:
        if (call == "commit" and not any(arguments[0])) or not lever.exists():
            return inner(sink, *arguments)
        number = int(lever.read_text())
        lever.unlink()
        stop = SignalAtLine(sink, number, signal.SIGSTOP)
        try:
            with stop.active():
                returned = inner(sink, *arguments)
            if stop.lines <= number:
                signal.raise_signal(signal.SIGSTOP)
        finally:
            print(f"a {call} of {stop.lines} lines was stopped at line {number}", file=sys.stderr)
        return returned

    setattr(kind, call, stopping)


def die_in_flushes(sink: hg.Sink, lever: Path) -> None:
    """Let the process of a writer be killed in its next flush of rows once the file `lever` is there, which has the
    number of a line.

    A flush of fewer lines dies at its end. The file `lever`.lines then has how many lines it had run.
    """
    kind = type(sink)

    def writer(self: hg.Sink, context: hg.WriterContext) -> hg.SinkWriter:
        made = kind.writer(self, context)
        dying = DyingFlush(made, lever)
        made.write, made.flush = dying.write, dying.flush  # type: ignore[method-assign]
        return made

    # Other processes have this class by its value, because no module has it.
    sink.__class__ = type("SinkThatDies", (kind,), {"writer": writer, "__module__": kind.__module__})


class DyingFlush:
    """The methods of a writer, of which `flush` may kill the process."""

    def __init__(self, writer: hg.SinkWriter, lever: Path) -> None:
        self._writer = writer
        self._write, self._flush = writer.write, writer.flush
        self._lever = lever
        self._has_rows = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._has_rows = True
        self._write(batch)

    def flush(self, checkpoint: int) -> Any:
        number = self._number() if self._has_rows else None
        self._has_rows = False
        if number is None:
            return self._flush(checkpoint)
        dies = SignalAtLine(self._writer, number, signal.SIGKILL)
        with dies.active():
            self._flush(checkpoint)
        self._lever.with_suffix(".lines").write_text(str(dies.lines))
        signal.raise_signal(signal.SIGKILL)
        raise AssertionError("it lives")

    def _number(self) -> int | None:
        """Take the lever, if no other writer was faster."""
        mine = self._lever.with_suffix(f".{id(self)}")
        try:
            self._lever.rename(mine)
        except FileNotFoundError:
            return None
        return int(mine.read_text())
