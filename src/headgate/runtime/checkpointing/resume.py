"""Finds the checkpoint that a job resumes from."""

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

#: The value of `resume` for the newest of the job's own checkpoints that can be used.
LATEST: Final = "latest"
#: The value for the same checkpoint, or for a fresh start if the job has no checkpoint yet.
LATEST_IF_ANY: Final = "latest-if-any"


#: The path or URI of a checkpoint, and its metadata.
Found = tuple[str, CheckpointMetadata]


def find_checkpoint(resume: str, storage: CheckpointStorage | None) -> Found | None:
    """Return the checkpoint to resume from, or None for a fresh start. Raises CheckpointError.

    `storage` holds the job's own checkpoints, if it takes any.
    """
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
        if similar := difflib.get_close_matches(resume, (LATEST, LATEST_IF_ANY), 1):
            error.message += f"; did you mean resume={similar[0]!r}?"
        raise


def newest(storage: CheckpointStorage, completed: Sequence[str]) -> Found:
    """Return the first of these checkpoints that is not damaged.

    A damaged checkpoint is skipped only if sinks committed nothing with it. Otherwise the job would write the committed
    rows a second time. Raises CheckpointError, or StorageError if the storage does not answer.
    """
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
            passed = f"job {storage.job!r}: skips {checkpoint}, with which nothing was committed"
            log.warning("%s: %s", passed, error)
    if unreadable is not None:
        raise unreadable
    usable = storage.latest_usable()
    older = "" if usable is None else f"; to resume from an older one, give resume={usable!r} "
    again = older and "and allow_duplicates=True, and remove the rows committed since, or they will be there twice"
    raise CheckpointError(f"{checkpoint}: is damaged, see the warnings{older}{again}")
