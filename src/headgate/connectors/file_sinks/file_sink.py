"""The driver's part of file sinks: it prepares the folder, and makes the writers' files visible or removes them.

Writers make hidden files. The name of a hidden file begins with `_`, and readers skip it. A rename makes a file
visible.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

import pyarrow as pa
from pyarrow import fs

from headgate.connectors.arguments import check_texts
from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sinks.file_formats import FileFormat, check_writable
from headgate.connectors.file_sinks.file_writer import (
    FileWriter,
    HiddenFile,
    Target,
    file_bytes,
    remove_if_empty,
    writing,
)
from headgate.connectors.file_sinks.ledger import FOLDER, Ledger, abandoned
from headgate.connectors.file_sinks.partition_by import check_partitioning
from headgate.errors import ConfigError, ResultsGone, SinkError, Superseded
from headgate.filesystems import WRITABLE, absolute, listing, locate
from headgate.ownership import LAST_EPOCH, Program
from headgate.state.checkpoint_storage import is_complete_checkpoint

Mode = Literal["error", "append", "overwrite"]

#: How many times a removal looks for further hidden files. Files that appear after the last time stay until the next
#: removal.
_LOOKS = 5


class FileSink(Sink):
    """A sink of files of one format in a folder; see `hg.sinks.parquet` and `hg.sinks.csv`."""

    shows_at_commit = True
    exactly_once = True
    takes_upserts = False

    def __init__(self, path: str | os.PathLike[str], format_: FileFormat, mode: Mode,
                 partition_by: str | Sequence[str], target_file_size: int | str) -> None:  # fmt: skip
        if mode not in get_args(Mode):
            raise ConfigError(f"mode={mode!r} is unknown; it must be one of {', '.join(map(repr, get_args(Mode)))}")
        self.path = absolute(path)
        scheme, separator, _ = self.path.partition("://")
        if separator and scheme not in WRITABLE:
            raise SinkError(
                f"{self.path}: the sink makes each file visible in one step, which it cannot do with {scheme}; write "
                f"to a local path or to {', '.join(f'{name}://' for name in WRITABLE)}"
            )
        self._format = format_
        self.format_name = format_.extension
        self._mode = mode
        self.replaces = mode == "overwrite"
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        check_texts(partition_by=names)
        self._partition_by = tuple(names)
        self._file_bytes = file_bytes(target_file_size)
        self._target: Target | None = None
        self._ledger: Ledger | None = None
        self._made_root = self._empties = self._is_new = False
        #: Whether a checkpoint or savepoint may name this run, so that a program can resume it.
        self._is_named = False
        #: Whether a missing ledger means that the rows of the resumed checkpoint are gone. See `prepared`.
        self._needs_ledger = False
        #: The runs whose files and ledgers this run has removed from the folder.
        self._emptied: list[str] = []

    def file_in_it(self, files: Sequence[DataFile]) -> DataFile | None:
        """Return the first of the files that is in this sink's folder or below it, or None."""
        filesystem, root = locate(self.path)
        folder = os.path.join(os.path.realpath(root), "")
        for file in files:
            parent, name = os.path.split(file.path)  # a link in the sink's folder counts too: the sink would remove it
            places = os.path.realpath(file.path), os.path.join(os.path.realpath(parent), name)
            if file.filesystem.equals(filesystem) and any(place.startswith(folder) for place in places):
                return file
        return None

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check the schema, and check or make the folder. Raises SinkError for a wrong folder, and PlanError for a
        wrong schema."""
        self._target = self._ledger = None
        # The name of a run has a random part, because one job may have two sinks in one folder.
        target = self._target_of(schema, f"{re.sub('[^A-Za-z0-9]+', '-', job)}-{uuid.uuid4().hex[:8]}")
        with writing(self.path):
            self._made_root = self._make_root(target)
        self._empties, self._is_new, self._target = self._mode == "overwrite", True, target
        self._is_named = self._needs_ledger = False

    def prepared(self) -> Any:
        """Return the folder and the run, which is part of the names of its files. `ledger` says that the run's ledger
        stays as long as its rows: if the ledger is gone, the rows are gone too.

        From now on a checkpoint may name the run.
        """
        self._is_named = True
        return {"path": self.path, "run": self._prepared().run, "ledger": True}

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Resume a run of another program. The files of this run stay, whatever the mode is.

        Raises SinkError if the other program had another folder, or if the folder is gone.
        """
        if prepared["path"] != self.path:
            raise SinkError(
                f"{self.path}: the rows up to the checkpoint are in {prepared['path']}; give the sink that path, or "
                "start without resume"
            )
        target = self._target_of(schema, prepared["run"])
        with writing(self.path):
            if target.filesystem.get_file_info(target.root).type != fs.FileType.Directory:
                raise SinkError(
                    f"{self.path}: the folder is gone, with the rows up to the checkpoint; put it back, or start "
                    "without resume"
                )
        self._made_root = self._empties = self._is_new = False
        self._is_named, self._needs_ledger = True, prepared.get("ledger") is True
        self._target = target

    def newest_owner(self) -> int:
        """Return the highest epoch of an owner in the folder's ledger."""
        return Ledger(self.path, self._prepared().run, None, Program.this("")).newest_owner()

    def claim(self, claim: Claim) -> bool:
        """Claim the results in the ledger. Names of files contain the epoch from now on."""
        target = self._prepared()
        ledger = Ledger(self.path, target.run, claim.home, claim.program, (claim.resumed, claim.resumed_run))
        is_claimed = ledger.claim(claim.epoch)
        if is_claimed:
            self._target, self._ledger = dataclasses.replace(target, owner=claim.epoch), ledger
        return is_claimed

    def begin(self, claim: Claim) -> None:
        """Empty the folder in mode "overwrite". In mode "error", check that the folder is still empty.

        A job that resumes leaves the folder as it is. The sink also removes the files of abandoned runs.
        """
        target = self._prepared()
        if self._empties:
            self._remove_all(claim)
        elif self._is_new:
            if self._mode == "error":
                self._check_hidden(target, claim)  # before the visible ones: a file goes from hidden to visible
            with writing(self.path):
                self._check_empty(target.filesystem, target.root)
        self._remove_abandoned(claim)

    def _check_hidden(self, target: Target, claim: Claim) -> None:
        """Raise SinkError for hidden files of a run that a program can resume.

        An older program of the job may be paused while it makes these files visible. It could continue later, and mix
        its rows with the rows of this program.
        """
        hidden = [entry.base_name for entry in self._entries(target) if entry.base_name.startswith("_part-")]
        for run in _runs(claim):
            owned = dataclasses.replace(target, run=run)
            if name := next(filter(owned.owns, hidden), None):
                raise SinkError(
                    f"{self.path}: the folder is not empty: {name} may have rows of a checkpoint of this job; "
                    'resume it with resume="latest", choose another folder, or mode="append" or "overwrite"'
                )

    def _remove_all(self, claim: Claim) -> None:
        """Remove all that is in the folder, except for this run's ledger.

        A newer program may take over meanwhile. It writes its files after the listing, so they stay. An older program
        may make a hidden file visible after the listing, so look again until there was nothing to remove.
        """
        self._emptied = []
        with writing(self.path):
            for _ in range(_LOOKS):
                if not self._remove_others(claim):
                    return

    def _remove_others(self, claim: Claim) -> int:
        """Remove what is in the folder now, except for this run's ledger, and return how much there was."""
        target = self._prepared()
        entries = target.files.entries()
        claim.check()
        ledgers = posixpath.join(target.root, FOLDER)
        own = posixpath.join(ledgers, target.run)
        self._emptied += [
            entry.base_name for entry in entries if posixpath.dirname(entry.path) == ledgers and entry.path != own
        ]
        others = [entry for entry in entries if not f"{own}/".startswith(f"{entry.path}/") and
                  not entry.path.startswith(f"{own}/")]  # fmt: skip
        # The ledgers go first: while a run's ledger is there, a program may resume the run, and needs all its rows.
        for entry in sorted(others, key=lambda entry: not entry.path.startswith(f"{ledgers}/")):
            if entry.type != fs.FileType.Directory:
                with suppress(FileNotFoundError):
                    target.files.delete(entry.path)
        for folder in sorted((entry.path for entry in others if entry.type == fs.FileType.Directory), reverse=True):
            remove_if_empty(target.filesystem, folder)
        return len(others)

    def _remove_abandoned(self, claim: Claim) -> None:
        """Remove the hidden files of programs of this job that were lost before their first checkpoint."""
        if claim.home is None or claim.referenced is None:
            return
        # The start of this program is recorded now. A later program therefore never resumes a run that no checkpoint
        # names.
        claim.check()
        for run, ledger in abandoned(self.path, claim.home, {*_runs(claim), self._prepared().run}, claim.program):
            with suppress(Superseded):  # a superseded run belongs to a newer program, and is not abandoned
                if ledger.claim(claim.epoch):
                    ledger.check()
                    was_given_up = ledger.give_up()
                    self._remove_hidden(dataclasses.replace(self._prepared(), run=run))
                    if was_given_up:
                        ledger.close(keep=False)

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last visible checkpoint after `checkpoint`, from the folder's ledger.

        Raises ResultsGone if the ledger is gone.
        """
        target = self._prepared()
        ledger = Ledger(self.path, target.run, None, Program.this(""))
        if self._needs_ledger and not ledger.has_owner_besides(target.owner):
            if self._ledger is not None:
                self._ledger.remove()  # the next program must not take this program's claim for the ledger
            raise ResultsGone(
                f"{self.path}: the rows of checkpoint {checkpoint} are gone: the folder has no ledger of them "
                f'({FOLDER}/{target.run}), so another job has emptied it with mode="overwrite", or it was removed by '
                "hand. Put the folder back as it was, or start without resume"
            )
        return ledger.published_after(checkpoint, run)

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer of one subtask's hidden files."""
        return FileWriter(self._prepared(), context.attempt, context.subtask)

    def commit(self, pending: Sequence[Sequence[str] | None], checkpoint: int = 0) -> None:
        """Make the files visible.

        Raises ResultsGone for a file that is neither hidden nor visible, after it has made the other files visible.
        """
        target, ledger = self._owned()
        names = [name for group in pending for name in group or ()]
        ledger.check()
        if names:
            ledger.show(checkpoint)
        gone = [name for name in names if not _show(target, name)]
        if gone:
            ledger.check()  # a newer program that started afresh has removed them
            others = f" (and {len(gone) - 1} others)" if len(gone) > 1 else ""
            raise ResultsGone(
                f"{_shown(target.path(gone[0]))}{others}: is gone, with rows of a checkpoint; "
                "put it back and resume the job (you may copy finished files, but move or remove them only once a "
                "newer checkpoint is complete). If this path is not shared, choose a path that all machines of the job "
                "share"
            )

    def finish(self) -> None:
        """Remove the hidden files that earlier attempts left. If there are no rows, write a file with only the
        schema."""
        target, ledger = self._prepared(), self._ledger
        if ledger is None:
            return
        ledger.check()
        self._remove_hidden(target)
        for run in self._emptied:  # the program of this run may have written more files meanwhile
            self._remove_hidden(dataclasses.replace(target, run=run, owner=LAST_EPOCH))
        self._leave_schema(target)
        ledger.close(keep=self._is_named)
        self._ledger = None

    def _leave_schema(self, target: Target) -> None:
        """Write a file with only the schema if the run has no rows. If a resumed run now has rows, remove this file."""
        empty = target.empty_name.removeprefix("_")
        own = [entry.base_name for entry in self._entries(target) if target.owns(entry.base_name)]
        if not own:
            file = HiddenFile(target, target.empty_name, target.schema)
            file.close()
            _show(target, file.name)
        elif empty in own and len(own) > 1:
            with writing(self.path), suppress(FileNotFoundError):
                target.filesystem.delete_file(posixpath.join(target.root, empty))

    def rollback(self, pending: Sequence[Sequence[str] | None], checkpoint: int) -> None:
        """Make the files of the checkpoint visible, and remove all other hidden files."""
        self.commit(pending, checkpoint)
        self._remove_hidden(self._owned()[0])

    def abort(self, pending: Sequence[Sequence[str] | None] = (), checkpoint: int = 0) -> None:
        """Commit the last checkpoint. Remove the run's other files, including those of killed writers, and empty
        folders."""
        target, ledger = self._target, self._ledger
        if target is None:
            return
        if ledger is not None:
            self._check_or_clean(ledger)
            if checkpoint:
                self.commit(pending, checkpoint)
            ledger.check()
            self._remove_hidden(target)
            if not checkpoint:
                self._remove(target, "part-")
                ledger.remove()
        self._target = self._ledger = None
        # With a checkpoint, another program may resume the run.
        self._remove_empty_folders(target, keep_root=not self._made_root or checkpoint > 0)

    def _check_or_clean(self, ledger: Ledger) -> None:
        try:
            ledger.check()
        except Superseded:
            self.superseded()
            raise

    def superseded(self) -> None:
        """Remove the run's hidden files, except for files of newer programs, if no program can make them visible.

        A newer program that resumed the run, and still works, removes them at its end.
        """
        if self._target is not None and self._ledger is not None and self._ledger.is_over():
            self._remove_hidden(self._target)

    def _remove_empty_folders(self, target: Target, keep_root: bool) -> None:
        with writing(self.path):
            entries = self._entries(target) if self._partition_by else []
            folders = [entry.path for entry in entries if entry.type == fs.FileType.Directory]
            for folder in [*sorted(folders, reverse=True), *([] if keep_root else [target.root])]:
                remove_if_empty(target.filesystem, folder)

    def _entries(self, target: Target) -> list[fs.FileInfo]:
        """List everything in the folder and below it, without the ledgers."""
        with writing(self.path):
            entries = target.files.entries()
        return [entry for entry in entries if FOLDER not in entry.path[len(target.root) :].split("/")]

    def _remove_hidden(self, target: Target) -> None:
        """Remove the run's hidden files, except for files of newer programs.

        Writers of a replaced program may still make files, so look again until there are no such files.
        """
        for _ in range(_LOOKS):
            if not self._remove(target, "_part-"):
                return

    def _remove(self, target: Target, prefix: str) -> int:
        """Remove the run's files whose names begin with `prefix`, and return how many there were."""
        entries = [entry for entry in self._entries(target) if entry.type == fs.FileType.File]
        paths = [e.path for e in entries if e.base_name.startswith(prefix) and target.may_remove(e.base_name)]
        for path in paths:
            with writing(path), suppress(FileNotFoundError):
                target.files.delete(path)
        return len(paths)

    def _prepared(self) -> Target:
        if self._target is None:
            raise SinkError(f"{self.path}: the sink was not prepared: call prepare() or resume() first")
        return self._target

    def _owned(self) -> tuple[Target, Ledger]:
        target = self._prepared()
        if self._ledger is None:
            raise SinkError(f"{self.path}: the results of run {target.run} were not claimed: call claim() first")
        return target, self._ledger

    def _target_of(self, schema: pa.Schema, run: str) -> Target:
        """Return the target of a run, with owner 0. Raises PlanError for a schema that the files cannot hold."""
        check_partitioning(schema, self._partition_by)
        with writing(self.path):
            filesystem, root = locate(self.path)
            target = Target(
                filesystem=filesystem,
                root=root.rstrip("/"),
                run=run,
                owner=0,
                format=self._format,
                schema=schema,
                partition_by=self._partition_by,
                file_bytes=self._file_bytes,
                uploads=filesystem.type_name == "s3",
            )
            check_writable(self._format, target.file_schema)
        return target

    def _make_root(self, target: Target) -> bool:
        """Check the folder by the rules of the mode, or make the folder. Returns whether it made the folder."""
        filesystem, root = target.filesystem, target.root
        info = filesystem.get_file_info(root)
        if info.type == fs.FileType.File:
            raise SinkError(f"{self.path}: is a file; give the path of a folder")
        target.files.check()
        if info.type == fs.FileType.NotFound:
            return True
        self._check_empty(filesystem, root)
        self._check_removable(filesystem, root)
        return False

    def _check_removable(self, filesystem: fs.FileSystem, root: str) -> None:
        """Raise SinkError if the mode is "overwrite" and the folder has checkpoints or savepoints of any job in it."""
        paths = [entry.path for entry in listing(filesystem, root, recursive=True)] if self.replaces else []
        if found := next(filter(is_complete_checkpoint, sorted(paths)), None):
            raise SinkError(
                f'{self.path}: holds the checkpoint {posixpath.dirname(found)}, which mode="overwrite" would remove; '
                "choose another folder, or move or remove the checkpoint"
            )

    def _check_empty(self, filesystem: fs.FileSystem, root: str) -> None:
        """Raise SinkError if the mode is "error" and the folder has visible files in it."""
        if self._mode == "error" and (name := _first_visible(filesystem, root)):
            raise SinkError(
                f'{self.path}: the folder is not empty (it has {name}); choose another, or mode="append" or "overwrite"'
            )


def _show(target: Target, name: str) -> bool:
    """Make a hidden file visible, and return whether it is visible. Another program may do the same at the same
    time."""
    path = target.path(name)
    with writing(_shown(path)):
        return target.files.show(path)


def _shown(path: str) -> str:
    """Return the path that a hidden file has once it is visible."""
    folder, base = posixpath.split(path)
    return posixpath.join(folder, base.removeprefix("_").partition("#")[0])


def _runs(claim: Claim) -> list[str]:
    """Return the runs that programs can resume."""
    sinks = [sink for sink in claim.referenced or () if isinstance(sink, dict)]
    return [sink["run"] for sink in sinks if isinstance(sink.get("run"), str)]


def _first_visible(filesystem: fs.FileSystem, root: str) -> str | None:
    """Return the path, relative to `root`, of the first file that readers do not skip."""
    entries = listing(filesystem, root, recursive=True)
    names = sorted(entry.path[len(root) :].lstrip("/") for entry in entries if entry.type == fs.FileType.File)
    return next((name for name in names if not any(part.startswith(("_", ".")) for part in name.split("/"))), None)
