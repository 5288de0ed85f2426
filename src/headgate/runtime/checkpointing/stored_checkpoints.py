"""The slow calls to storage and sinks for checkpoints, which run on the background thread."""

from __future__ import annotations

import dataclasses

from headgate.runtime.checkpointing.checkpoint_events import Request, StoreMetadata
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors, Pending
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.state.checkpoint_storage import CheckpointStorage, savepoint_folder, store


class StoredCheckpoints:
    """Stores a job's checkpoints, lets sinks commit and roll back, and returns the checkpoints' folders.

    `store`, `commit` and `roll_back` run on the background thread. They first check that this program still owns the
    job. Without `storage` only savepoints are stored.
    """

    def __init__(self, job: str, run: str, storage: CheckpointStorage | None, ends: DriverConnectors) -> None:
        self._job = job
        self._run = run
        self._storage = storage
        self._connectors = ends

    # --- folders

    def savepoint(self, checkpoint: int, request: Request | None) -> str | None:
        """Return the folder of a savepoint, or None for any other checkpoint."""
        if request is None or request.uri is None:
            return None
        return savepoint_folder(request.uri, self._job, checkpoint, self._run)

    def own_folder(self, checkpoint: int) -> str | None:
        """Return the checkpoint's folder among the job's own checkpoints, or None if the job takes none."""
        return None if self._storage is None else self._storage.folder_of(checkpoint)

    def place(self, complete: StoreMetadata) -> str:
        """Return the path or URI of a stored checkpoint."""
        place = self.savepoint(complete.checkpoint, complete.request) or self.own_folder(complete.checkpoint)
        assert place is not None
        return place

    # --- on the background thread

    def require_owner(self) -> None:
        """Raise Superseded if another program has taken over the job."""
        if self._storage is not None:
            self._storage.require_owner()

    def store(self, metadata: CheckpointMetadata, savepoint: str | None) -> None:
        """Store a checkpoint's metadata. A savepoint is also listed among the job's own checkpoints.

        `savepoint` is a savepoint's folder, or None. Without the entry in the list, a job that resumes from its latest
        checkpoint would repeat what sinks commit with the savepoint.
        """
        self.require_owner()
        if savepoint is not None:
            metadata = dataclasses.replace(metadata, folder=store(savepoint, metadata))
        if self._storage is not None:
            self._storage.complete(metadata)

    def commit(self, pending: Pending, checkpoint: int) -> None:
        """Let sinks commit, if this program still owns the job. Raises Superseded if it does not.

        The check of the sinks is not enough: a sink does not know whether a newer owner resumes from this checkpoint.
        """
        self.require_owner()
        self._connectors.commit(pending, checkpoint)

    def roll_back(self, pending: Pending, checkpoint: int, last: int) -> None:
        """Remove what sinks wrote after `checkpoint`, and incomplete checkpoints up to the number `last`."""
        self.require_owner()
        self._connectors.rollback(pending, checkpoint)
        if self._storage is not None:
            self._storage.remove_incomplete(last)
