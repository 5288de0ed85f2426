"""Chooses the checkpoint that a job resumes from: at its start, when it takes over a job, and after a failure."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.config import Config
from headgate.errors import CheckpointError, StorageError
from headgate.plan.execution import ExecutionPlan
from headgate.plan.node_keys import changed_sinks, check_fits
from headgate.records.hashing import default_max_parallelism
from headgate.runtime.checkpointing.resume import LATEST, LATEST_IF_ANY, Found, find_checkpoint, newest
from headgate.state.checkpoint_metadata import LAST_ID, CheckpointMetadata
from headgate.state.checkpoint_storage import CheckpointStorage, verify_checkpoint

log = logging.getLogger(__name__)
_BOTH: Final = (
    "results written before keep their types, so a reader of old and new results must cast these columns to one type"
)


class Resumption:
    """The checkpoint that a job resumes from.

    `latest` is the checkpoint's metadata, or None for a start from the beginning. `place` is the path or URI of the
    folder with this metadata, or "". For a savepoint that this job took, that is the folder in `storage`, if `storage`
    is set. `resume` is what the user requested.
    """

    def __init__(
        self, job: str, plan: ExecutionPlan, config: Config, storage: CheckpointStorage | None, resume: str | None
    ) -> None:
        self._job = job
        self._plan = plan
        self._config = config
        self._storage = storage
        self._resume = resume
        self.latest: CheckpointMetadata | None = None
        self.place = ""
        #: For a fresh start: the epoch of the checkpoints' owner when this program looked at them. Otherwise None.
        self.known_owner: int | None = None

    @property
    def key_groups(self) -> dict[int, int]:
        """The number of key groups of each vertex."""
        most = self._config.max_parallelism
        return {vertex.id: most or default_max_parallelism(vertex.parallelism) for vertex in self._plan.job.vertices}

    @property
    def results(self) -> tuple[Mapping[str, Sequence[Any]], int]:
        """The results that sinks have pending with `latest`, by node key, and the checkpoint's number.

        The number is 0 for a start from the beginning. Sinks then keep no rows.
        """
        return ({}, 0) if self.latest is None else (self.latest.pending, self.latest.id)

    @property
    def hint(self) -> str:
        """The end of an error message, which says that the job has a checkpoint to resume from.

        The text is empty if the job has none, or already resumes from one.
        """
        if self.latest is not None or self._storage is None or not self._storage.completed():
            return ""
        return (
            f' (job {self._job!r} has checkpoints in {self._storage.folder}: resume="latest" resumes from the newest)'
        )

    def find(self) -> None:
        """Load the checkpoint that the user requested. Raises CheckpointError if the job cannot resume from it.

        If the user requested none, only set `known_owner`.
        """
        if self._resume is None:
            self.known_owner = None if self._storage is None else self._storage.newest_owner()
            return
        self.place, self.latest = "", None
        usable = find_checkpoint(self._resume, self._storage)
        if usable is not None:
            self.use(usable)
            check_fits(usable[1], self._plan.job, self.key_groups)
            require_numbers(usable[1].id + 1)
            for changed in changed_sinks(usable[1], self._plan.job):
                log.warning("job %r resumes from %s: %s; %s", self._job, usable[0], changed, _BOTH)

    def find_again(self, storage: CheckpointStorage) -> None:
        """Once this program is the owner, check for a newer checkpoint, and load it. Raises CheckpointError.

        The previous owner may have completed another checkpoint before the claim. The method sets `place` and `latest`,
        as `find` does, but only if the user asked for the newest checkpoint. If `find` has noted an owner, the method
        sets `known_owner` to this program.
        """
        if self.known_owner is not None:
            self.known_owner = storage.owner
        if self._resume in (LATEST, LATEST_IF_ANY) and next(iter(storage.completed()), "") != self.place:
            self.find()

    def find_newer(self) -> bool:
        """Load the newest checkpoint again, if the user requested the newest one. Return whether it has changed.

        Raises CheckpointError.
        """
        before = self.place
        if self._resume in (LATEST, LATEST_IF_ANY):
            self.find()
        return self.place != before

    def find_usable(self) -> Found | None:
        """Return the checkpoint to resume from after a task could not read `latest`, or None if there is none.

        The result is `latest` if a second read finds no damage, or if the storage does not answer. Otherwise the result
        is an older checkpoint, if a resume from it gives the same results. The method reads all files of one or several
        checkpoints.
        """
        if self._storage is None or self.latest is None:
            return None
        try:
            if self._resume in (LATEST, LATEST_IF_ANY):
                completed = self._storage.completed()
            else:
                completed = self._storage.completed_by_owner()
            if self.place in completed:
                usable = newest(self._storage, completed[completed.index(self.place) :])
                check_fits(usable[1], self._plan.job, self.key_groups)
                return usable
            verify_checkpoint(self.latest)
        except StorageError:
            pass
        except CheckpointError:
            return None
        return self.place, self.latest

    def use(self, usable: Found) -> None:
        """Resume from this checkpoint."""
        self.place, self.latest = usable


def require_numbers(first: int) -> None:
    """Check that enough numbers are left for checkpoints from the number `first` on. Raises CheckpointError."""
    if first > LAST_ID // 2:
        raise CheckpointError(
            f"checkpoint {first - 1} leaves no numbers for later checkpoints: start without it, in another folder"
        )
