"""Faults at their very moment: levers that are built into a pipeline, which a test pulls by making a file.

What runs in the pipeline is closures and classes made here, which travel to other processes by value.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate as hg
from headgate.connectors.connector import Claim, ReaderContext, Sink, SinkWriter, Source, SourceReader, WriterContext
from tests.exactly_once import Function, build, rows
from tests.runtime.jobs import eventually

#: What is done at each step of a source.
Pull = Callable[[], None]


def gated(folder: Path, *pulls: Pull, before: int = 7000) -> Source:
    """The rows of `tests.exactly_once`, behind a gate."""
    return behind_gate(rows(rate=None), folder, *pulls, before=before)


def behind_gate(source: Source, folder: Path, *pulls: Pull, before: int) -> Source:
    """Until `folder`/open is there each subtask gives about `before` of the source's rows, in each attempt, and goes on
    taking checkpoints; the first does not finish: so no job is over before its fault, however slow the machine."""
    gate = folder / "open"

    class Reader(SourceReader):
        def __init__(self, reader: SourceReader, context: ReaderContext) -> None:
            self._reader, self._clock, self._given = reader, context.clock, 0
            self._is_first = context.subtask == 0

        def read(self) -> pa.RecordBatch | None:
            for pull in pulls:
                pull()
            is_open = gate.exists()
            more = (self._given < before or is_open) and not self._reader.finished
            batch = self._reader.read() if more else None
            self._given += 0 if batch is None else batch.num_rows
            self.finished = self._reader.finished and (is_open or not self._is_first)
            return batch

        def next_read(self) -> float | None:
            return self._clock() + 0.005

        def position(self) -> Any:
            return self._reader.position()

    class Gated(Source):
        schema = source.schema

        def reader(self, context: ReaderContext) -> SourceReader:
            return Reader(source.reader(context), context)

    return Gated()


def open_gate(folder: Path) -> None:
    (folder / "open").touch()


def build_gated(env: hg.StreamEnvironment, folder: Path, sink: Sink | None = None) -> hg.StreamEnvironment:
    """The pipeline of `tests.exactly_once`, which does not come to its end before the gate is open."""
    return build(env, folder, source=gated(folder, before=12_000), sink=sink)


def holds(*levers: Path) -> Pull:
    """The first task that comes to a pulled lever stays there until `let_go`."""
    take = taken()

    def hold() -> None:
        for lever in levers:
            if take(lever):
                while not lever.with_suffix(".go").exists():
                    time.sleep(0.005)

    return hold


def holds_rows(lever: Path, when: Callable[[pa.RecordBatch], bool]) -> Function:
    """The same as a function of the pipeline, for the first batch that is so."""
    hold = holds(lever)

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if when(batch):
            hold()
        return batch

    return function


def holds_uploads(lever: Path, of: str = "state") -> Pull:
    """The process of the first task that comes writes half of what its next task has of a kind, "state" or
    "in-flight", and the rest after `let_go`."""
    take = taken()

    def tear() -> None:
        if not take(lever):
            return
        from headgate.runtime.taskmanager import state_upload
        from headgate.state import checkpoint_storage

        write = checkpoint_storage.write_part

        def write_part(folder: str, attempt: int, task: str, payload: Any, kind: Any = "state") -> Any:
            def halves() -> Any:
                whole = b"".join(payload)
                yield whole[: len(whole) // 2]
                lever.with_suffix(".torn").touch()
                while not lever.with_suffix(".go").exists():
                    time.sleep(0.005)
                yield whole[len(whole) // 2 :]

            return write(folder, attempt, task, halves() if kind == of else payload, kind)

        state_upload.write_part = write_part  # type: ignore[attr-defined]

    return tear


def fills_the_disk(lever: Path) -> Pull:
    """The process of the first task that comes can no longer write to any file: the kernel limits their size."""
    take = taken()

    def fill() -> None:
        if take(lever):
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    return fill


def raises(lever: Path) -> Pull:
    """The first task that comes fails."""
    take = taken()

    def fail() -> None:
        if take(lever):
            raise ValueError("once")

    return fail


def cuts_connections(lever: Path) -> Pull:
    """The process of the first task that comes loses all connections that it has accepted."""
    take, accepted = taken(), accepted_connections()

    def cut() -> None:
        if take(lever):
            for each in accepted():
                with each, suppress(OSError):
                    each.shutdown(2)

    return cut


def cuts_one_connection(lever: Path, *, waits: bool = False) -> Pull:
    """The process of the first task that comes loses one of the connections that it has accepted; the lever's number
    says which. With `waits` a process that has none does not come. When one is cut, there is the file `lever`.done."""
    take, accepted = taken(), accepted_connections()

    def cut() -> None:
        found = accepted() if lever.exists() else []
        if (found or not waits) and take(lever) and found:
            number = int(lever.with_name(f"{lever.name}-{os.getpid()}").read_text())
            with suppress(OSError):  # it is closed already
                found[number % len(found)].shutdown(2)
                lever.with_suffix(".done").touch()
        for each in found:
            each.close()

    return cut


def accepted_connections() -> Callable[[], list[Any]]:
    """The connections that this process has accepted, by the sockets' second file descriptors."""

    def accepted() -> list[Any]:
        import socket

        import psutil

        found = psutil.Process().net_connections("tcp")
        listening = {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
        sockets = []
        for each in found:
            if each.raddr and each.laddr.port in listening:
                with suppress(OSError):
                    sockets.append(socket.socket(fileno=os.dup(each.fd)))
        return sockets

    return accepted


def taken_by(lever: Path) -> int:
    """The process that has come to a lever."""
    found = eventually(lambda: next(lever.parent.glob(f"{lever.name}-[0-9]*"), None), 60)
    return int(found.name.removeprefix(f"{lever.name}-"))


def let_go(lever: Path) -> None:
    lever.with_suffix(".go").touch()


def taken() -> Callable[[Path], bool]:
    """Whether a lever is pulled and nobody else has come to it."""

    def taken(lever: Path) -> bool:
        try:
            lever.rename(lever.with_name(f"{lever.name}-{os.getpid()}"))
        except FileNotFoundError:
            return False
        return True

    return taken


#: A sink's `commit`.
Commit = Callable[[Sequence[Any]], None]


def committing(sink: Sink, commit: Callable[[Commit, Sequence[Any]], None]) -> Sink:  # noqa: C901  # all hooks of a sink
    """A sink of which `commit` is in the test's hands, which is given the sink's own and what it is to commit."""

    class Committing(Sink):
        hook: Callable[[Commit, Sequence[Any]], None]

        def __getstate__(self) -> dict[str, Any]:
            return {}  # the hook is the driver's

        def prepare(self, job: str, schema: pa.Schema) -> None:
            sink.prepare(job, schema)

        def prepared(self) -> Any:
            return sink.prepared()

        def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
            sink.resume(job, schema, prepared)

        def newest_owner(self) -> int:
            return sink.newest_owner()

        def claim(self, claim: Claim) -> bool:
            return sink.claim(claim)

        def begin(self, claim: Claim) -> None:
            sink.begin(claim)

        def published_after(self, checkpoint: int, run: str) -> int:
            return sink.published_after(checkpoint, run)

        def writer(self, context: WriterContext) -> SinkWriter:
            return sink.writer(context)

        def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
            self.hook(lambda part: sink.commit(part, checkpoint), pending)

        def finish(self) -> None:
            sink.finish()

        def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
            sink.rollback(pending, checkpoint)

        def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
            sink.abort(pending, checkpoint)

    made = Committing()
    made.hook = commit
    return made


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
