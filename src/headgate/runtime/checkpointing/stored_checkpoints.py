"""What is done with a checkpoint where it may take long: in storage, and by the sinks."""

from __future__ import annotations

import dataclasses

from headgate.runtime.checkpointing.checkpoint_events import Request, StoreMetadata
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors, Pending
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.state.checkpoint_storage import CheckpointStorage, savepoint_folder, store


class StoredCheckpoints:
    """Where a job's checkpoints lie, and the errands that store, commit and take back: they run on the errands' thread,
    and look first whether the job still is this program's. Without `storage` only savepoints are stored."""

    def __init__(self, job: str, run: str, storage: CheckpointStorage | None, ends: DriverConnectors) -> None:
        self._job = job
        self._run = run
        self._storage = storage
        self._connectors = ends

    # --- where

    def savepoint(self, checkpoint: int, request: Request | None) -> str | None:
        """The folder it is stored in, if it is one."""
        if request is None or request.uri is None:
            return None
        return savepoint_folder(request.uri, self._job, checkpoint, self._run)

    def own_folder(self, checkpoint: int) -> str | None:
        """The one among the job's own checkpoints."""
        return None if self._storage is None else self._storage.folder_of(checkpoint)

    def place(self, complete: StoreMetadata) -> str:
        """Its path or URI, once it is stored."""
        place = self.savepoint(complete.checkpoint, complete.request) or self.own_folder(complete.checkpoint)
        assert place is not None
        return place

    # --- errands

    def require_owner(self) -> None:
        """Raises Superseded when another program has taken over the job."""
        if self._storage is not None:
            self._storage.require_owner()

    def store(self, metadata: CheckpointMetadata, savepoint: str | None) -> None:
        """A savepoint is named among the job's own checkpoints, too: what sinks commit with it must not come again when
        the job resumes from its latest."""
        self.require_owner()
        if savepoint is not None:
            metadata = dataclasses.replace(metadata, folder=store(savepoint, metadata))
        if self._storage is not None:
            self._storage.complete(metadata)

    def commit(self, pending: Pending, checkpoint: int) -> None:
        """Sinks look whether their results are still this program's; that does not say whether the checkpoint is one
        that its successor resumes from."""
        self.require_owner()
        self._connectors.commit(pending, checkpoint)

    def roll_back(self, pending: Pending, checkpoint: int, last: int) -> None:
        """Take back what sinks wrote after `checkpoint`, and make room for those behind number `last`."""
        self.require_owner()
        self._connectors.rollback(pending, checkpoint)
        if self._storage is not None:
            self._storage.remove_incomplete(last)
