"""Which checkpoint a job resumes from."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from typing import Final

from headgate.errors import CheckpointError, StorageError
from headgate.filesystems import absolute
from headgate.state.checkpoint_metadata import METADATA_FILE, CheckpointMetadata
from headgate.state.checkpoint_storage import CheckpointStorage, load_checkpoint, verify_checkpoint

log = logging.getLogger(__name__)

#: Of the job's own checkpoints the newest that can be used.
LATEST: Final = "latest"
#: The same, or a fresh start where there is none yet.
LATEST_IF_ANY: Final = "latest-if-any"


#: Where a checkpoint is, a path or URI, and what it consists of.
Found = tuple[str, CheckpointMetadata]


def found(resume: str, storage: CheckpointStorage | None) -> Found | None:
    """The checkpoint to resume from, None for a fresh start; `storage` is that of the job's own. Raises
    CheckpointError."""
    if resume not in (LATEST, LATEST_IF_ANY):
        metadata = _load(resume)
        verify_checkpoint(metadata)
        return absolute(resume).rstrip("/").removesuffix(f"/{METADATA_FILE}"), metadata
    if storage is None:
        raise CheckpointError(
            "to resume from the latest checkpoint the job needs its checkpoint_dir; give it to the environment: "
            "config=hg.Config(checkpoint_dir='...')"
        )
    completed = storage.completed()
    if not completed and resume == LATEST:
        where = f"job {storage.job!r} has no checkpoint in {storage.folder}"
        raise CheckpointError(f'{where}: start it without one, or with resume="{LATEST_IF_ANY}"')
    return newest(storage, completed) if completed else None


def _load(resume: str) -> CheckpointMetadata:
    try:
        return load_checkpoint(resume)
    except CheckpointError as error:
        if meant := difflib.get_close_matches(resume, (LATEST, LATEST_IF_ANY), 1):
            error.message += f"; did you mean resume={meant[0]!r}?"
        raise


def newest(storage: CheckpointStorage, completed: Sequence[str]) -> Found:
    """The first of these that is as it was written. One that is not is passed over only if sinks had nothing to
    commit with it: else what they committed would come a second time. Raises CheckpointError: StorageError where
    no record is left."""
    unreadable: StorageError | None = None
    for checkpoint in completed:
        has_committed = True
        try:
            metadata = storage.load(checkpoint)
            has_committed = bool(metadata.pending)
            verify_checkpoint(metadata)
            return checkpoint, metadata
        except CheckpointError as error:
            unreadable = error if isinstance(error, StorageError) else unreadable
            if has_committed:
                break
            passed = f"job {storage.job!r}: passes over {checkpoint}, with which nothing was committed"
            log.warning("%s: %s", passed, error)
    if unreadable is not None:
        raise unreadable
    usable = storage.latest_usable()
    older = "" if usable is None else f"; to resume from an older one name {usable}, "
    again = older and "with allow_duplicates=True, and remove what was committed since, or it will be there twice"
    raise CheckpointError(f"{checkpoint}: is damaged, see the warnings{older}{again}")
