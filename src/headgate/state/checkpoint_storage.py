"""`CheckpointStorage`: stores, finds and removes the checkpoints of a job.

A checkpoint of the first owner has the folder `<uri>/<job>/chk-<id>`, by path or URI. A checkpoint of a later owner has
the folder `<uri>/<job>/chk-<id>-<owner>`. The folder `<uri>/<job>/owners` records the owners (see
`headgate.ownership`).

Tasks write files into a checkpoint's folder. Each file has a unique name, so no task overwrites a file of another task,
attempt or run. The driver writes the file `_metadata` last, and atomically. `_metadata` names the files that belong to
the checkpoint. A checkpoint is complete when `_metadata` exists.

Only the owner stores and removes checkpoints. An owner never removes a newer owner's checkpoints.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Literal

import xxhash
from pyarrow import fs

from headgate.errors import CheckpointError
from headgate.filesystems import absolute
from headgate.ownership import Ownership, Program
from headgate.state.checkpoint_files import (
    Payload,
    is_there,
    listed,
    make_folder,
    probe,
    read_file,
    remove_file,
    remove_folder,
    remove_link,
    require_files,
    storage_errors,
    verify_state,
    write_at_once,
    write_file,
)
from headgate.state.checkpoint_line import NONE, CheckpointName, Start, line
from headgate.state.checkpoint_metadata import LAST_ID, METADATA_FILE, OTHER, CheckpointMetadata, StateFile
from headgate.state.shapes import MOST_JSON

log = logging.getLogger(__name__)

#: How many completed checkpoints a job retains by default.
KEEP: Final = 3
_SAVEPOINT: Final = re.compile(r"sp-([1-9][0-9]*)-[0-9a-f]+")
_LONGEST_NAME: Final = 80


class CheckpointStorage:
    """The checkpoints of one job below a folder, by path or URI. The object holds no connection.

    Every method may raise CheckpointError, which names the file and says what to do. Methods that only the owner may
    call raise Superseded if another program has become the owner.
    """

    def __init__(self, uri: str | os.PathLike[str], job: str) -> None:
        self.job = job
        self.folder = f"{absolute(uri).rstrip('/')}/{_folder_name(job)}"
        self._owners = f"{self.folder}/owners"
        self._ownership: Ownership | None = None
        #: The starts of owners that were already read. A start rarely changes, and each read on S3 costs two requests.
        self._known: dict[int, Start] = {}
        self._newest_at_claim = NONE
        #: The first flag: all retained checkpoints are this owner's, but records of older owners still exist. The
        #: second flag: all retained checkpoints were this owner's at least once.
        self._is_alone = self._has_been_alone = False

    def folder_of(self, checkpoint: int) -> str:
        """Return the path or URI of one of this owner's checkpoints, for `load_checkpoint`."""
        return self._path(CheckpointName(self.owner, checkpoint))

    def _path(self, name: CheckpointName) -> str:
        return f"{self.folder}/{name.folder}"

    def check(self) -> None:
        """Check, before a job starts, that the folder can be written, read and cleaned.

        Raises ConfigError for a filesystem that cannot say which of two programs owns the folder.
        """
        make_folder(self.folder)
        probe(f"{self.folder}/.probe-{uuid.uuid4().hex}")

    # --- ownership

    @property
    def owner(self) -> int:
        """This program's epoch. Before `claim` it is 1: the folders then have the same names as the first owner's."""
        return 1 if self._ownership is None else self._ownership.epoch

    def newest_owner(self) -> int:
        """Return the epoch of the newest owner, or 0 if there is none."""
        with storage_errors(self._owners, "listed"):
            return Ownership(self._owners, Program.this("")).newest()

    def claim(self, program: Program, least: int = 1, known: int | None = None) -> int:
        """Make this program the owner. Returns the program's epoch, which is `least` or more.

        The program must not change files of older owners before it calls `start`. `known` is the newest epoch that
        the caller knows of, if any: CheckpointError is raised if a newer owner exists.
        """
        ownership = Ownership(self._owners, program)
        least = max(least, 1 + max((name.owner for name in self._begun()), default=0))
        with storage_errors(self._owners, "claimed"):
            if known is None:
                epoch = ownership.claim(least)
            else:
                epoch = max(least, known + 1)
                is_first = ownership.newest() <= known and ownership.claim_as(epoch) and ownership.newest() == epoch
                if not is_first:
                    raise CheckpointError(
                        f"{self.folder}: another program has started job {self.job!r} in the meantime; let it run, or "
                        'take over from it with resume="latest-if-any"'
                    )
        self._ownership = ownership
        # From now on, a checkpoint that an older owner completes must not count for a job that starts from nothing.
        self._newest_at_claim = next((name for name in self._line() if isinstance(name, CheckpointName)), NONE)
        return epoch

    def start(self, resumed: str | None, replaces: bool = False) -> None:
        """Record that the owner starts from the checkpoint in the folder `resumed`, or from nothing if this is None.

        A checkpoint that an older owner completes after this call does not count. If the owner starts from nothing and
        `replaces` the results of older owners, none of their checkpoints counts.
        """
        assert self._ownership is not None
        with storage_errors(self._owners, "written"):
            start = Start() if resumed is None and replaces else self._start_from(resumed)
            self._ownership.note(start.to_json())

    def _start_from(self, resumed: str | None) -> Start:
        if resumed is None:
            return Start(self._newest_at_claim)
        folder, _, last = resumed.rpartition("/")
        name = CheckpointName.of(last)
        return Start(name) if name is not None and folder == self.folder else Start(uri=resumed)

    def require_owner(self) -> None:
        """Raise Superseded if another program has become the owner."""
        if self._ownership is not None:
            with storage_errors(self._owners, "listed"):
                self._ownership.check()

    # --- writing

    def next_id(self) -> int:
        """Return the number for a run's first checkpoint, above the numbers of all former runs."""
        return 1 + max((name.id for name in self._begun()), default=0)

    def complete(self, metadata: CheckpointMetadata) -> str:
        """Make a checkpoint complete, after all tasks have written their files. Returns its path or URI."""
        self.require_owner()
        return store(self.folder_of(metadata.id), metadata)

    def retain(self, keep: int = KEEP) -> None:
        """Remove old checkpoints: all that are older than the newest `keep` checkpoints that count.

        Also removes incomplete checkpoints that are older than the newest one that counts. Savepoints are not counted
        among the `keep`, because the user may move or remove them. A warning names each folder that cannot be removed;
        the next call tries again.
        """
        self._remove(lambda: self._take_stock(keep))
        if self._is_alone and self._ownership is not None:
            try:
                self._forget_older(self._ownership)
            except CheckpointError as error:
                log.warning("job %r: the notes of older owners are left: %s", self.job, error)

    def _forget_older(self, ownership: Ownership) -> None:
        """Remove the start records of older owners. Their checkpoints then do not count, even if they complete later.

        First this owner records that no older checkpoint counts. Only then it removes the older records. A program that
        reads the records at the same time, in order, finds either the older records or the new one.
        """
        with storage_errors(self._owners, "written"):
            if self._starts().get(self.owner, Start()).uri is None:
                self._known[self.owner] = Start(NONE)
                ownership.note(Start(NONE).to_json())
            ownership.forget(self.owner - 1)
        self._known = {owner: start for owner, start in self._known.items() if owner >= self.owner}
        self._is_alone = False

    def remove_incomplete(self, last: int) -> None:
        """Remove incomplete checkpoints: this owner's up to the number `last`, and those of all older owners."""
        self._remove(lambda: [name for name in self._incomplete() if name <= (self.owner, last)])

    def _remove(self, find: Callable[[], list[CheckpointName]]) -> None:
        self.require_owner()
        try:
            names = find()
        except CheckpointError as error:
            log.warning("job %r: old checkpoints are left: %s", self.job, error)
            return
        for name in names:
            try:
                discard(self._path(name))
            except CheckpointError as error:
                log.warning("job %r: an old checkpoint is left: %s", self.job, error)

    def _take_stock(self, keep: int) -> list[CheckpointName]:
        """Return the checkpoints that `retain` removes. Also records whether this owner took all retained
        checkpoints."""
        counting = [name for name in self._line() if isinstance(name, CheckpointName)]
        retained = list(islice(filter(self._has_files, counting), keep))
        first = retained[-1] if len(retained) == keep else NONE
        newest = counting[0] if counting else NONE
        if first.owner == self.owner and not self._has_been_alone:
            self._is_alone = self._has_been_alone = True
        return [name for name in self._begun() if name < first or (name < newest and not self._is_complete(name))]

    def _incomplete(self) -> list[CheckpointName]:
        return [name for name in self._begun() if not self._is_complete(name)]

    def _has_files(self, name: CheckpointName) -> bool:
        """Return whether the checkpoint has its own files. False if it names a savepoint, or if it cannot be read."""
        try:
            return self.load(self._path(name)).kind == "checkpoint"
        except CheckpointError:
            return False

    # --- reading

    def completed(self) -> list[str]:
        """Return the folders of the checkpoints that count, the newest first.

        The last folder may be that of a savepoint, or of another job's checkpoint: the job started from it.
        """
        return [name if isinstance(name, str) else self._path(name) for name in self._line()]

    def completed_by_owner(self) -> list[str]:
        """Return the folders of the checkpoints that count and that this program has taken, the newest first."""
        return [self._path(name) for name in self._line() if isinstance(name, CheckpointName) and name[0] == self.owner]

    def load(self, folder: str) -> CheckpointMetadata:
        """Return the metadata of a completed checkpoint. The tasks' files are not checked."""
        metadata = load_checkpoint(folder)
        if metadata.job != self.job and folder.startswith(f"{self.folder}/"):
            raise CheckpointError(f"{folder}/{METADATA_FILE}: is of job {metadata.job!r}, not {self.job!r}; {OTHER}")
        return metadata

    def prepared(self) -> list[Any] | None:
        """Return the values that sources and sinks prepared, from all checkpoints that count.

        Returns None if one of the checkpoints cannot be read.
        """
        try:
            return [value for folder in self.completed() for value in self.load(folder).prepared.values()]
        except CheckpointError:
            return None

    def latest_usable(self) -> str | None:
        """Return the folder of the newest checkpoint that counts and whose files are unchanged. None if there is none.

        A warning names each checkpoint that is skipped.
        """
        for folder in self.completed():
            try:
                verify_checkpoint(self.load(folder))
                return folder
            except CheckpointError as error:
                log.warning("job %r: %s cannot be used: %s", self.job, folder, error)
        return None

    def _line(self) -> list[CheckpointName | str]:
        complete = [name for name in self._begun() if self._is_complete(name)]
        return list(line(complete, self._starts()))

    def _starts(self) -> dict[int, Start]:
        try:
            with storage_errors(self._owners, "read"):
                notes = Ownership(self._owners, Program.this("")).notes(self._known)
            self._known |= {epoch: Start.from_json(note) for epoch, note in notes.items()}
        except ValueError as error:
            raise CheckpointError(f"{self._owners}: {error}; name the checkpoint to resume from") from None
        return self._known

    def _is_complete(self, name: CheckpointName) -> bool:
        return is_there(f"{self._path(name)}/{METADATA_FILE}")

    def _begun(self) -> list[CheckpointName]:
        """Return all checkpoints, complete or not. Leaves out numbers above `LAST_ID`, which no job uses."""
        names = [name for name in map(CheckpointName.of, _folders(self.folder)) if name is not None]
        return [name for name in names if name.id <= LAST_ID]


def savepoint_folder(uri: str | os.PathLike[str], job: str, checkpoint: int, run: str) -> str:
    """Return the folder of a savepoint, `<uri>/<job>/sp-<id>-<run>`.

    `run` is hexadecimal; it is part of the name because two runs may use the same number.
    """
    return f"{CheckpointStorage(uri, job).folder}/sp-{checkpoint}-{run}"


def write_part(
    folder: str, attempt: int, task: str, payload: Payload, kind: Literal["state", "in-flight"] = "state"
) -> StateFile:
    """Write a task's file into the folder of a checkpoint or savepoint. The task's own process calls this."""
    name = f"{attempt}-{_safe(task)[:_LONGEST_NAME]}-{uuid.uuid4().hex[:12]}.{kind}"
    return write_file(f"{folder}/{name}", payload)


def store(folder: str, metadata: CheckpointMetadata) -> str:
    """Make the checkpoint or savepoint in a folder complete. All its files must exist. Returns the folder."""
    require_files(metadata.files)
    make_folder(folder)
    write_at_once(f"{folder}/{METADATA_FILE}", metadata.to_bytes())
    return folder


def discard(folder: str) -> None:
    """Remove a checkpoint or savepoint, complete or not.

    The function removes `_metadata` first: without this file, no job resumes from the checkpoint. If the folder is a
    symbolic link, the function removes only the link.
    """
    if not remove_link(folder):
        remove_file(f"{folder}/{METADATA_FILE}")
        remove_folder(folder)


def load_checkpoint(uri: str | os.PathLike[str]) -> CheckpointMetadata:
    """Return the metadata of the checkpoint or savepoint in a folder, by path or URI.

    The tasks' files are not checked. Raises CheckpointError.
    """
    folder = absolute(uri).rstrip("/").removesuffix(f"/{METADATA_FILE}")
    path = f"{folder}/{METADATA_FILE}"
    if not is_there(path):
        raise CheckpointError(
            f"{folder}: is not a completed checkpoint, it has no {METADATA_FILE}; run `headgate checkpoints list` with "
            "the folder that the job writes checkpoints to, and choose one of those that it shows"
        )
    metadata = CheckpointMetadata.from_bytes(read_file(path, MOST_JSON), folder)
    own = CheckpointName.of(folder.rpartition("/")[2])
    if own and own.id != metadata.id:
        raise CheckpointError(f"{path}: describes checkpoint {metadata.id}, not that of its folder; {OTHER}")
    return metadata


def verify_checkpoint(metadata: CheckpointMetadata) -> None:
    """Read all files of a checkpoint. Raises CheckpointError for the first one that is missing or changed."""
    for file in metadata.files:
        verify_state(file)


def find_checkpoints(uri: str | os.PathLike[str]) -> list[str]:
    """Return the folders of the checkpoints and savepoints, complete or not, at a path or URI.

    The path or URI may be that of one checkpoint, of a job's folder, or of a folder with several jobs. Each job's
    checkpoints come newest first. Raises CheckpointError.
    """
    folder = absolute(uri).rstrip("/").removesuffix(f"/{METADATA_FILE}")
    if _rank(folder.rpartition("/")[2]) or is_there(f"{folder}/{METADATA_FILE}"):
        return [folder]
    names = _folders(folder)
    own = {name: rank for name in names if (rank := _rank(name))}
    if own:
        return [f"{folder}/{name}" for name in sorted(own, key=lambda name: (own[name], name), reverse=True)]
    jobs = [f"{folder}/{name}" for name in sorted(names)]
    return [folder for job in jobs if any(map(_rank, _folders(job))) for folder in find_checkpoints(job)]


def is_complete_checkpoint(path: str) -> bool:
    """Return whether this is the path of the metadata of a checkpoint or savepoint."""
    folder, _, name = path.rpartition("/")
    return name == METADATA_FILE and _rank(folder.rpartition("/")[2]) is not None


def _rank(folder: str) -> int | None:
    """Return the number of the checkpoint or savepoint whose folder has this name; None for other folders."""
    if name := CheckpointName.of(folder):
        return name.id
    match = _SAVEPOINT.fullmatch(folder)
    return match and int(match[1])


def _folders(folder: str) -> list[str]:
    return [entry.base_name for entry in listed(folder) if entry.type == fs.FileType.Directory]


def _folder_name(job: str) -> str:
    """Return a folder name for a job that any filesystem accepts; different jobs get different names."""
    safe = _safe(job)[:_LONGEST_NAME]
    if safe == job and not _rank(job):
        return safe
    return f"{safe}-{xxhash.xxh3_64_hexdigest(job.encode())[:8]}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("._-") or "job"
