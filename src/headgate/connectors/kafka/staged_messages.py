"""Staged messages: the encoded messages of a checkpoint, in files beside the job's checkpoints, until the commit.

A subtask writes one file for each checkpoint: an Arrow IPC stream, compressed, with a checksum. The driver reads it
back batch by batch, so no process holds a whole checkpoint in memory. While the driver writes a checkpoint to Kafka, a
sign beside the files says so, and subtasks stage only a limited part of the next checkpoint. Failed checkpoints have no
sign.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa
import xxhash
from pyarrow import fs

from headgate.connectors.connector import SinkWriter, WriterContext
from headgate.connectors.kafka.delivery import Delivery
from headgate.connectors.kafka.message_encoders import Messages
from headgate.connectors.kafka.topic_limits import TopicLimits
from headgate.connectors.staging_limit import LOOK_INTERVAL, MOST_STAGED
from headgate.errors import ResultsGone, SinkError
from headgate.filesystems import brief, create_private, listing, locate, make_for_files, opened, sync, sync_folder
from headgate.state import shapes
from headgate.state.checkpoint_files import verify_state
from headgate.state.checkpoint_metadata import WrittenFile

#: The names of the folders with staged messages, one for each run of a sink.
_FOLDER: Final = re.compile(r"kafka-([A-Za-z0-9-]+)")
#: The names of the files: the epoch of the program that wrote the file, the attempt, the subtask and the checkpoint.
_FILE: Final = re.compile(r"([0-9]+)-[0-9]+-[0-9]+-[0-9]+\.arrow")
#: The names of the driver's signs, with the epoch of the program.
_SIGN: Final = re.compile(r"([0-9]+)-committing")
_COMPRESSION: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_STAGED: Final = shapes.fields({"path": shapes.text, "size": shapes.count, "checksum": shapes.text,
                                "messages": shapes.count}, {"topic": shapes.text})  # fmt: skip


@dataclass(frozen=True, slots=True)
class StagedFile(WrittenFile):
    """A file of staged messages, as a checkpoint names it, and the topic of the messages.

    Checkpoints of earlier versions name no topic.
    """

    messages: int
    topic: str = ""

    @staticmethod
    def of(values: Any, run: str) -> StagedFile:
        """Return the file that a writer named. Raises SinkError for a file that no writer of the run wrote.

        A damaged or forged checkpoint may hold any value, and the sink reads and removes the file.
        """
        try:
            _STAGED(values, "what a writer staged")
            folder, _, name = values["path"].rpartition("/")
            if folder.rpartition("/")[2] != f"kafka-{run}" or not _FILE.fullmatch(name) or ".." in folder.split("/"):
                raise ValueError(f"{values['path']!r} is no file of this sink")
        except ValueError as error:
            raise SinkError(f"kafka: {error} (run {run}); start from another checkpoint") from None
        return StagedFile(**values)

    def exists(self) -> bool:
        """Return whether the file is there. The sink removes it when its messages are committed."""
        with _files(self.path):
            filesystem, inside = locate(self.path)
            return bool(filesystem.get_file_info(inside).type == fs.FileType.File)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages, as `Messages.encoded` made them. Raises CheckpointError for a file that has changed, and
        ResultsGone for one that is gone."""
        if not self.exists():
            raise ResultsGone(
                f"{self.path}: is gone, with {self.messages} messages of a checkpoint that are not in Kafka; put it "
                "back, or start without resume. All machines of the job must share this folder"
            )
        verify_state(self)
        with opened(self.path) as stream, pa.ipc.open_stream(stream) as reader:
            yield from reader

    def remove(self) -> None:
        """Remove the file. It may be gone already."""
        with _files(self.path):
            filesystem, inside = locate(self.path)
            with suppress(FileNotFoundError):
                filesystem.delete_file(inside)


class StagingFolder:
    """The folder of the staged files of one run of a sink, in the folder `home` of the job's checkpoints.

    `owner` is the epoch of this program. It touches no file of newer programs.
    """

    def __init__(self, home: str, run: str, owner: int) -> None:
        self.home = home
        self.run = run
        self.path = f"{home}/kafka-{run}"
        self.owner = owner

    @property
    def _sign(self) -> str:
        """The path of the file that is there while the driver writes messages to Kafka."""
        return f"{self.path}/{self.owner}-committing"

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Show the subtasks, for a block, that the driver writes messages to Kafka.

        Nobody looks if the folder is gone, because a newer program has taken over the job.
        """
        with _files(self._sign):
            filesystem, inside = locate(self._sign)
        with _files(self._sign), suppress(FileNotFoundError):
            create_private(filesystem, inside)
            filesystem.open_output_stream(inside, compression=None).close()
        try:
            yield
        finally:
            with _files(self._sign), suppress(FileNotFoundError):
                filesystem.delete_file(inside)

    def is_committing(self) -> bool:
        """Return whether the driver writes messages to Kafka now."""
        with _files(self._sign):
            filesystem, inside = locate(self._sign)
            return bool(filesystem.get_file_info(inside).type == fs.FileType.File)

    def clear(self) -> None:
        """Remove all files of this program and of older ones. If the folder had files and is then empty, remove it
        too."""
        with _files(self.path):
            filesystem, inside = locate(self.path)
            entries = listing(filesystem, inside)
            for entry in entries:
                name = _FILE.fullmatch(entry.base_name) or _SIGN.fullmatch(entry.base_name)
                if name is not None and int(name[1]) <= self.owner:
                    with suppress(FileNotFoundError):
                        filesystem.delete_file(entry.path)
            if entries and not listing(filesystem, inside):
                with suppress(OSError):  # an older program, which still runs, has written another file
                    filesystem.delete_dir(inside)

    def abandoned(self, runs: Collection[str]) -> list[StagingFolder]:
        """Return the folders of all runs except `runs`, the runs that programs can resume."""
        with _files(self.home):
            filesystem, inside = locate(self.home)
            names = [_FOLDER.fullmatch(entry.base_name) for entry in listing(filesystem, inside)
                     if entry.type == fs.FileType.Directory]  # fmt: skip
        found = [name[1] for name in names if name is not None]
        return [StagingFolder(self.home, run, self.owner) for run in found if run not in runs]


class StagedMessagesWriter(SinkWriter):
    """The writer of one subtask: it encodes rows, and stages the messages of each checkpoint in a file."""

    def __init__(self, messages: Messages, folder: StagingFolder, limits: TopicLimits, context: WriterContext) -> None:
        self._messages = messages
        self._folder = folder
        self._limits = limits
        self._context = context
        self._checkpoint = context.checkpoint
        self._file: _OpenFile | None = None
        self._staged = 0
        self._next_look = 0.0
        self._is_behind = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Stage the messages of a batch. Wait if many are staged, and the driver is behind.

        Raises SinkError for a message that the brokers would not take: once its checkpoint is complete, it would be too
        late.
        """
        if self._staged >= MOST_STAGED:
            self._context.wait_until(self._may_stage)
        encoded = self._messages.encoded(batch)
        self._limits.check(encoded, self._context.clock())
        if self._file is None:
            context = self._context
            name = f"{self._folder.owner}-{context.attempt}-{context.subtask}-{self._checkpoint}.arrow"
            self._file = _OpenFile(f"{self._folder.path}/{name}", encoded.schema, self._limits.topic)
        self._file.write(encoded)
        self._staged += encoded.nbytes

    def _may_stage(self) -> bool:
        """Return whether the driver has committed the last checkpoint. Asks the filesystem from time to time."""
        now = self._context.clock()
        if now >= self._next_look:
            self._next_look = now + LOOK_INTERVAL
            self._is_behind = self._folder.is_committing()
        return not self._is_behind

    def flush(self, checkpoint: int) -> Mapping[str, Any] | None:
        """End the file, durably, and return the fields of its `StagedFile`. Return None if there is no file."""
        self._checkpoint = checkpoint + 1
        return self.finish()

    def finish(self) -> Mapping[str, Any] | None:
        """End the file, durably, and return the fields of its `StagedFile`. Return None if there is no file."""
        file, self._file, self._staged = self._file, None, 0
        return None if file is None else asdict(file.end())

    def close(self) -> None:
        """Leave an unfinished file to the next clean-up."""
        file, self._file = self._file, None
        if file is not None:
            file.abandon()


def give_staged(delivery: Delivery, files: Sequence[StagedFile]) -> None:
    """Produce the messages of files, batch by batch, and wait until the brokers have them.

    Raises SinkError for messages of another topic: since they were staged, another program gave the sink a new one.
    """
    if others := [file for file in files if file.topic not in ("", delivery.topic)]:
        raise SinkError(
            f"topic {delivery.topic!r}: {sum(file.messages for file in others)} messages up to the checkpoint belong "
            f"in topic {others[0].topic!r}, and are not there yet; give that topic. To change it, resume with that "
            "topic once, and end the job with stop()"
        )
    for file in files:
        for batch in file.batches():
            delivery.give(batch)
    delivery.wait()


class _OpenFile:
    """A file that is being written."""

    def __init__(self, path: str, schema: pa.Schema, topic: str) -> None:
        self._path = path
        self._topic = topic
        self._messages = 0
        with _files(path):
            self._filesystem, self._inside = locate(path)
            make_for_files(self._filesystem, self._inside.rpartition("/")[0])
            create_private(self._filesystem, self._inside)
            self._stream = _Summed(self._filesystem.open_output_stream(self._inside, compression=None))
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._stream, mode="w"), schema, options=_COMPRESSION)

    def write(self, encoded: pa.RecordBatch) -> None:
        with _files(self._path):
            self._writer.write_batch(encoded)
            self._messages += encoded.num_rows

    def end(self) -> StagedFile:
        """End the file. It survives a loss of power from then on."""
        with _files(self._path):
            self._writer.close()
            self._stream.close()
            sync(self._filesystem, self._inside)
            if isinstance(self._filesystem, fs.LocalFileSystem):
                sync_folder(self._filesystem, self._inside)
        checksum = self._stream.checksum.hexdigest()
        return StagedFile(self._path, self._stream.size, checksum, self._messages, self._topic)

    def abandon(self) -> None:
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()


class _Summed:
    """A stream that keeps the size and the checksum of what is written to it."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self.size = 0
        self.checksum = xxhash.xxh3_64()
        self.closed = False

    def write(self, data: Any) -> int:
        self.checksum.update(data)
        self.size += memoryview(data).nbytes
        written: int = self._stream.write(data)
        return written

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True
        self._stream.close()


@contextmanager
def _files(path: str) -> Iterator[None]:
    """Turn the errors of filesystems into a SinkError."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"{path}: messages cannot be staged: {brief(error)}; check space and rights there") from error
