"""Where the checkpoints of a job are: a folder by path or URI, `<uri>/<job>/chk-<id>` for each.

Tasks write files into a checkpoint's folder; each has a name of its own, so nobody writes over what somebody else wrote
- not a task of an older attempt, nor another run of the job. The driver writes `_metadata`, which names those that
count, last and at once: a checkpoint is complete when it is there, and nothing without it is one.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from itertools import islice
from typing import Final, Literal

import xxhash
from pyarrow import fs

from headgate.errors import CheckpointError
from headgate.filesystems import absolute
from headgate.state.checkpoint_files import (
    Payload,
    is_there,
    listed,
    make_folder,
    read_file,
    remove_file,
    remove_folder,
    remove_link,
    verify_state,
    write_at_once,
    write_file,
)
from headgate.state.checkpoint_metadata import LAST_ID, METADATA_FILE, OTHER, CheckpointMetadata, StateFile

log = logging.getLogger(__name__)

#: How many completed checkpoints are kept.
KEEP: Final = 3
_FOLDER: Final = re.compile(r"chk-([1-9][0-9]*)")
_ANY_FOLDER: Final = re.compile(r"(?:chk-([1-9][0-9]*)|sp-([1-9][0-9]*)-[0-9a-f]+)")
_LONGEST_NAME: Final = 80


class CheckpointStorage:
    """The checkpoints of one job, from any process. It holds no connection and no state. Everything that it does raises
    CheckpointError, which names the file and says what to do."""

    def __init__(self, uri: str | os.PathLike[str], job: str) -> None:
        self.job = job
        self.folder = f"{absolute(uri).rstrip('/')}/{_folder_name(job)}"

    def folder_of(self, checkpoint: int) -> str:
        """The path or URI of a checkpoint, which `load_checkpoint` understands."""
        return f"{self.folder}/chk-{checkpoint}"

    def check(self) -> None:
        """Before a job starts: it can be written to, and what is written can be read and removed."""
        make_folder(self.folder)
        probe = write_file(f"{self.folder}/.probe-{uuid.uuid4().hex}", [b"headgate"])
        verify_state(probe)
        remove_file(probe.path)

    # --- writing

    def next_id(self) -> int:
        """For the first checkpoint of a run: above those of all runs before."""
        return 1 + max(self._begun(), default=0)

    def write_task(
        self, checkpoint: int, attempt: int, task: str, payload: Payload, kind: Literal["state", "in-flight"] = "state"
    ) -> StateFile:
        """Called where the task runs."""
        name = f"{attempt}-{_safe(task)[:_LONGEST_NAME]}-{uuid.uuid4().hex[:12]}.{kind}"
        return write_file(f"{self.folder_of(checkpoint)}/{name}", payload)

    def complete(self, metadata: CheckpointMetadata) -> str:
        """All tasks have written: from now on the checkpoint counts. Returns its path or URI."""
        folder = self.folder_of(metadata.id)
        path = f"{folder}/{METADATA_FILE}"
        if is_there(path):
            raise CheckpointError(
                f"{path}: somebody else completed this checkpoint: another job named {self.job!r} runs with this "
                "folder; give each a name or a folder of its own"
            )
        write_at_once(path, metadata.to_bytes())
        return folder

    def discard(self, checkpoint: int) -> None:
        """Remove a checkpoint, also one that is not complete. It stops to count first. Of a link nothing but the link
        goes."""
        folder = self.folder_of(checkpoint)
        if not remove_link(folder):
            remove_file(f"{folder}/{METADATA_FILE}")
            remove_folder(folder)

    def retain(self, keep: int = KEEP) -> None:
        """Remove the completed checkpoints before the newest `keep`, and what is left of aborted ones before the
        newest. Savepoints do not count: they may be moved or removed. What cannot be removed is named in a warning, and
        tried again the next time."""
        try:
            old = self._old(keep)
        except CheckpointError as error:
            log.warning("job %r: old checkpoints are left: %s", self.job, error)
            return
        for checkpoint in old:
            try:
                self.discard(checkpoint)
            except CheckpointError as error:
                log.warning("job %r: an old checkpoint is left: %s", self.job, error)

    def _old(self, keep: int) -> list[int]:
        completed = self.completed()
        kept = list(islice(filter(self._is_own, completed), keep))
        first = kept[-1] if len(kept) == keep else 0
        before = [each for each in self._begun() if completed and each < completed[0]]
        return [each for each in before if each < first or each not in completed]

    def _is_own(self, checkpoint: int) -> bool:
        """Whether it has files of its own, as far as can be told: it does not only name a savepoint."""
        try:
            return self.load(checkpoint).kind == "checkpoint"
        except CheckpointError:
            return False

    # --- reading

    def completed(self) -> list[int]:
        """The newest first."""
        begun = sorted(self._begun(), reverse=True)
        return [each for each in begun if is_there(f"{self.folder_of(each)}/{METADATA_FILE}")]

    def load(self, checkpoint: int) -> CheckpointMetadata:
        """What a completed checkpoint consists of; its files are not looked at."""
        folder = self.folder_of(checkpoint)
        metadata = load_checkpoint(folder)
        if metadata.job != self.job:
            raise CheckpointError(f"{folder}/{METADATA_FILE}: is of job {metadata.job!r}, not {self.job!r}; {OTHER}")
        return metadata

    def latest_usable(self) -> CheckpointMetadata | None:
        """The newest completed checkpoint whose files are all as they were written; None if there is none. Those that
        are passed over are named in a warning."""
        for checkpoint in self.completed():
            try:
                metadata = self.load(checkpoint)
                verify_checkpoint(metadata)
                return metadata
            except CheckpointError as error:
                log.warning("job %r: checkpoint %d cannot be used: %s", self.job, checkpoint, error)
        return None

    def _begun(self) -> list[int]:
        """All there are, complete or not; no job gives a number that is too large."""
        numbers = [int(found[1]) for found in map(_FOLDER.fullmatch, _folders(self.folder)) if found]
        return [each for each in numbers if each <= LAST_ID]


class SavepointStorage(CheckpointStorage):
    """One savepoint, and nothing else: `folder` is its own."""

    def __init__(self, folder: str, job: str) -> None:
        self.job = job
        self.folder = folder

    @staticmethod
    def below(uri: str | os.PathLike[str], job: str, checkpoint: int, run: str) -> SavepointStorage:
        """In a folder that is given: `<uri>/<job>/sp-<id>-<run>`, for several runs may give one the same number; `run`
        is hexadecimal."""
        return SavepointStorage(f"{CheckpointStorage(uri, job).folder}/sp-{checkpoint}-{run}", job)

    def folder_of(self, checkpoint: int) -> str:
        """Its own."""
        return self.folder


def load_checkpoint(uri: str | os.PathLike[str]) -> CheckpointMetadata:
    """The checkpoint or savepoint in a folder, by path or URI; its files are not looked at. Raises CheckpointError."""
    folder = absolute(uri).rstrip("/").removesuffix(f"/{METADATA_FILE}")
    path = f"{folder}/{METADATA_FILE}"
    if not is_there(path):
        raise CheckpointError(
            f"{folder}: is no completed checkpoint, it has no {METADATA_FILE}; `headgate checkpoints list` with the "
            "folder that checkpoints are written to shows those there are"
        )
    metadata = CheckpointMetadata.from_bytes(read_file(path).to_pybytes(), folder)
    own = _FOLDER.fullmatch(folder.rpartition("/")[2])
    if own and int(own[1]) != metadata.id:
        raise CheckpointError(f"{path}: is that of checkpoint {metadata.id}, which is not its folder's; {OTHER}")
    return metadata


def verify_checkpoint(metadata: CheckpointMetadata) -> None:
    """Read all files of a checkpoint. Raises CheckpointError for the first that is not as it was written."""
    for file in metadata.files:
        verify_state(file)


def find_checkpoints(uri: str | os.PathLike[str]) -> list[str]:
    """The folders of all checkpoints and savepoints, complete or not, that a path or URI stands for: one, those of a
    job, or those of all jobs in a folder; the newest of each job first. Raises CheckpointError."""
    folder = absolute(uri).rstrip("/").removesuffix(f"/{METADATA_FILE}")
    if _ANY_FOLDER.fullmatch(folder.rpartition("/")[2]) or is_there(f"{folder}/{METADATA_FILE}"):
        return [folder]
    names = _folders(folder)
    own = {name: int(found[1] or found[2]) for name in names if (found := _ANY_FOLDER.fullmatch(name))}
    if own:
        return [f"{folder}/{name}" for name in sorted(own, key=lambda name: (own[name], name), reverse=True)]
    jobs = [f"{folder}/{name}" for name in sorted(names)]
    return [each for job in jobs if any(map(_ANY_FOLDER.fullmatch, _folders(job))) for each in find_checkpoints(job)]


def _folders(folder: str) -> list[str]:
    return [entry.base_name for entry in listed(folder) if entry.type == fs.FileType.Directory]


def _folder_name(job: str) -> str:
    """A job's name, as any filesystem takes it; different names stay different."""
    safe = _safe(job)[:_LONGEST_NAME]
    if safe == job and not _ANY_FOLDER.fullmatch(job):
        return safe
    return f"{safe}-{xxhash.xxh3_64_hexdigest(job.encode())[:8]}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("._-") or "job"
