"""Where the checkpoints of a job are: a folder by path or URI, `<uri>/<job>/chk-<id>` for each, `chk-<id>-<owner>` for
those of all owners but the first (see `headgate.ownership`); `<uri>/<job>/owners` says who they were.

Tasks write files into a checkpoint's folder; each has a name of its own, so no task writes over what another one wrote
- not a task of an older attempt, nor another run of the job. The driver writes `_metadata`, which names those that
count, last and at once: a checkpoint is complete when it is there, and nothing without it is one.

Only the owner stores and removes checkpoints, and removes none of a newer owner.
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

#: How many completed checkpoints are kept.
KEEP: Final = 3
_SAVEPOINT: Final = re.compile(r"sp-([1-9][0-9]*)-[0-9a-f]+")
_LONGEST_NAME: Final = 80


class CheckpointStorage:
    """The checkpoints of one job. It holds no connection. Everything that it does raises CheckpointError, which names
    the file and says what to do; what only the owner may do raises Superseded in a program that is not."""

    def __init__(self, uri: str | os.PathLike[str], job: str) -> None:
        self.job = job
        self.folder = f"{absolute(uri).rstrip('/')}/{_folder_name(job)}"
        self._owners = f"{self.folder}/owners"
        self._ownership: Ownership | None = None
        #: What owners started from: each notes it once, and on S3 each one that is read costs two requests.
        self._known: dict[int, Start] = {}
        self._newest_at_claim = NONE
        #: Whether all checkpoints that are kept are this owner's, and what older ones noted is still there.
        self._is_alone = self._has_been_alone = False

    def folder_of(self, checkpoint: int) -> str:
        """The path or URI of one of this owner's checkpoints, which `load_checkpoint` understands."""
        return self._path(CheckpointName(self.owner, checkpoint))

    def _path(self, name: CheckpointName) -> str:
        return f"{self.folder}/{name.folder}"

    def check(self) -> None:
        """Before a job starts: it can be written to, and what is written can be read and removed. Raises ConfigError
        for a filesystem that cannot tell which of two programs owns the folder."""
        make_folder(self.folder)
        probe(f"{self.folder}/.probe-{uuid.uuid4().hex}")

    # --- whose it is

    @property
    def owner(self) -> int:
        """This program's epoch; 1, that of the first owner, where it has claimed nothing."""
        return 1 if self._ownership is None else self._ownership.epoch

    def newest_owner(self) -> int:
        """The epoch of the newest owner there is; 0 for none."""
        with storage_errors(self._owners, "listed"):
            return Ownership(self._owners, Program.this("")).newest()

    def claim(self, program: Program, least: int = 1, known: int | None = None) -> int:
        """Take over, with an epoch of `least` or more, which is returned. Until `start` nothing of an older owner may
        be touched. Raises CheckpointError if there is a newer owner than the one that is `known`."""
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
        # An older owner may complete another one from now on, which must not count for a job that starts afresh.
        self._newest_at_claim = next((name for name in self._line() if isinstance(name, CheckpointName)), NONE)
        return epoch

    def start(self, resumed: str | None, replaces: bool = False) -> None:
        """The owner starts from the checkpoint in this folder, None: from nothing. From now on a checkpoint of an older
        owner does not count if it completes only now; if the owner `replaces` their results, none of them does."""
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
        """Raise Superseded if another program has taken over."""
        if self._ownership is not None:
            with storage_errors(self._owners, "listed"):
                self._ownership.check()

    # --- writing

    def next_id(self) -> int:
        """For the first checkpoint of a run: above those of all runs before."""
        return 1 + max((name.id for name in self._begun()), default=0)

    def complete(self, metadata: CheckpointMetadata) -> str:
        """All tasks have written: from now on the checkpoint counts. Returns its path or URI."""
        self.require_owner()
        return store(self.folder_of(metadata.id), metadata)

    def retain(self, keep: int = KEEP) -> None:
        """Remove all but the newest `keep` checkpoints that count, and what is left of given-up ones before the newest.
        Savepoints do not count: they may be moved or removed. What cannot be removed is named in a warning, and tried
        again the next time."""
        self._remove(lambda: self._take_stock(keep))
        if self._is_alone and self._ownership is not None:
            try:
                self._forget_older(self._ownership)
            except CheckpointError as error:
                log.warning("job %r: what older owners noted is left: %s", self.job, error)

    def _forget_older(self, ownership: Ownership) -> None:
        """What older owners started from decides which of their checkpoints count. From now on none does, also of those
        that they may still complete. That is on record before their notes are removed: who reads notes meanwhile, in
        order, finds the older ones or this."""
        with storage_errors(self._owners, "written"):
            if self._starts().get(self.owner, Start()).uri is None:
                self._known[self.owner] = Start(NONE)
                ownership.note(Start(NONE).to_json())
            ownership.forget(self.owner - 1)
        self._known = {owner: start for owner, start in self._known.items() if owner >= self.owner}
        self._is_alone = False

    def remove_incomplete(self, last: int) -> None:
        """Remove what given-up checkpoints have left: this owner's up to the number `last`, and all of older owners."""
        self._remove(lambda: [name for name in self._incomplete() if name <= (self.owner, last)])

    def _remove(self, find: Callable[[], list[CheckpointName]]) -> None:
        self.require_owner()
        try:
            found = find()
        except CheckpointError as error:
            log.warning("job %r: old checkpoints are left: %s", self.job, error)
            return
        for name in found:
            try:
                discard(self._path(name))
            except CheckpointError as error:
                log.warning("job %r: an old checkpoint is left: %s", self.job, error)

    def _take_stock(self, keep: int) -> list[CheckpointName]:
        """Find what `retain` removes, and note whether all that is kept is this owner's."""
        counting = [name for name in self._line() if isinstance(name, CheckpointName)]
        kept = list(islice(filter(self._has_files, counting), keep))
        first = kept[-1] if len(kept) == keep else NONE
        newest = counting[0] if counting else NONE
        if first.owner == self.owner and not self._has_been_alone:
            self._is_alone = self._has_been_alone = True
        return [name for name in self._begun() if name < first or (name < newest and not self._is_complete(name))]

    def _incomplete(self) -> list[CheckpointName]:
        return [name for name in self._begun() if not self._is_complete(name)]

    def _has_files(self, name: CheckpointName) -> bool:
        """Whether it has files of its own, as far as can be told: it does not only name a savepoint."""
        try:
            return self.load(self._path(name)).kind == "checkpoint"
        except CheckpointError:
            return False

    # --- reading

    def completed(self) -> list[str]:
        """The folders of those that count, the newest first. The last may be that of a savepoint or of another job's
        checkpoint, which this job was started from."""
        return [name if isinstance(name, str) else self._path(name) for name in self._line()]

    def completed_by_owner(self) -> list[str]:
        """Those among them that this program has taken."""
        return [self._path(name) for name in self._line() if isinstance(name, CheckpointName) and name[0] == self.owner]

    def load(self, folder: str) -> CheckpointMetadata:
        """What a completed checkpoint consists of; its files are not looked at."""
        metadata = load_checkpoint(folder)
        if metadata.job != self.job and folder.startswith(f"{self.folder}/"):
            raise CheckpointError(f"{folder}/{METADATA_FILE}: is of job {metadata.job!r}, not {self.job!r}; {OTHER}")
        return metadata

    def prepared(self) -> list[Any] | None:
        """What sources and sinks were prepared with, in all checkpoints that count; None if one cannot be read."""
        try:
            return [each for folder in self.completed() for each in self.load(folder).prepared.values()]
        except CheckpointError:
            return None

    def latest_usable(self) -> str | None:
        """The newest completed checkpoint whose files are all as they were written; None if there is none. Those that
        are passed over are named in a warning."""
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
        """All there are, complete or not; no job gives a number that is too large."""
        names = [name for name in map(CheckpointName.of, _folders(self.folder)) if name is not None]
        return [name for name in names if name.id <= LAST_ID]


def savepoint_folder(uri: str | os.PathLike[str], job: str, checkpoint: int, run: str) -> str:
    """Where a savepoint goes below a folder that is given: `<uri>/<job>/sp-<id>-<run>`, for several runs may give one
    the same number; `run` is hexadecimal."""
    return f"{CheckpointStorage(uri, job).folder}/sp-{checkpoint}-{run}"


def write_part(
    folder: str, attempt: int, task: str, payload: Payload, kind: Literal["state", "in-flight"] = "state"
) -> StateFile:
    """Write a task's part into the folder of a checkpoint or savepoint. Called where the task runs."""
    name = f"{attempt}-{_safe(task)[:_LONGEST_NAME]}-{uuid.uuid4().hex[:12]}.{kind}"
    return write_file(f"{folder}/{name}", payload)


def store(folder: str, metadata: CheckpointMetadata) -> str:
    """Make the checkpoint or savepoint in a folder complete: all its files must be there. Returns the folder."""
    require_files(metadata.files)
    make_folder(folder)
    write_at_once(f"{folder}/{METADATA_FILE}", metadata.to_bytes())
    return folder


def discard(folder: str) -> None:
    """Remove a checkpoint or savepoint, also one that is not complete. It stops to count first. Of a link nothing but
    the link goes."""
    if not remove_link(folder):
        remove_file(f"{folder}/{METADATA_FILE}")
        remove_folder(folder)


def load_checkpoint(uri: str | os.PathLike[str]) -> CheckpointMetadata:
    """The checkpoint or savepoint in a folder, by path or URI; its files are not looked at. Raises CheckpointError."""
    folder = absolute(uri).rstrip("/").removesuffix(f"/{METADATA_FILE}")
    path = f"{folder}/{METADATA_FILE}"
    if not is_there(path):
        raise CheckpointError(
            f"{folder}: is no completed checkpoint, it has no {METADATA_FILE}; `headgate checkpoints list` with the "
            "folder that checkpoints are written to shows those there are"
        )
    metadata = CheckpointMetadata.from_bytes(read_file(path, MOST_JSON), folder)
    own = CheckpointName.of(folder.rpartition("/")[2])
    if own and own.id != metadata.id:
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
    if _rank(folder.rpartition("/")[2]) or is_there(f"{folder}/{METADATA_FILE}"):
        return [folder]
    names = _folders(folder)
    own = {name: rank for name in names if (rank := _rank(name))}
    if own:
        return [f"{folder}/{name}" for name in sorted(own, key=lambda name: (own[name], name), reverse=True)]
    jobs = [f"{folder}/{name}" for name in sorted(names)]
    return [each for job in jobs if any(map(_rank, _folders(job))) for each in find_checkpoints(job)]


def _rank(folder: str) -> int | None:
    """The number of a checkpoint or savepoint by its folder's name; None for any other folder."""
    if name := CheckpointName.of(folder):
        return name.id
    found = _SAVEPOINT.fullmatch(folder)
    return found and int(found[1])


def _folders(folder: str) -> list[str]:
    return [entry.base_name for entry in listed(folder) if entry.type == fs.FileType.Directory]


def _folder_name(job: str) -> str:
    """A job's name, as any filesystem takes it; different names stay different."""
    safe = _safe(job)[:_LONGEST_NAME]
    if safe == job and not _rank(job):
        return safe
    return f"{safe}-{xxhash.xxh3_64_hexdigest(job.encode())[:8]}"


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("._-") or "job"
