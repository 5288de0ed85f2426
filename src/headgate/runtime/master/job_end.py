"""The end of a job: its last checkpoints are stored and committed, then sources and sinks clean up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from headgate.errors import CheckpointError, HeadgateError, Superseded
from headgate.runtime.background_worker import BackgroundWorker, raise_error
from headgate.runtime.checkpointing.checkpoints import Checkpoints
from headgate.runtime.checkpointing.driver_connectors import THREAD_LEFT_RUNNING, DriverConnectors

#: Seconds that a job waits for checkpoints that are being stored or committed, once its tasks have ended.
_SETTLE_TIMEOUT: Final = 1.5
#: After that, seconds that the job waits until sources and sinks have cleaned up.
_CLEAN_TIMEOUT: Final = 2.5
#: Seconds between two checks whether a job that waits for storing, committing or cleaning was cancelled.
SETTLE_POLL: Final = 0.02


class JobEnd:
    """The end of one job, on the job's thread. `cancelled` is set when the user cancels the job."""

    def __init__(self, checkpoints: Checkpoints, connectors: DriverConnectors, cancelled: threading.Event) -> None:
        self._checkpoints = checkpoints
        self._connectors = connectors
        self._cancelled = cancelled
        #: Set if another program has taken over the job: the error that names the other program, and replaces the job's
        #: error. The other program may have removed the checkpoint that the job could not read.
        self.successor: Superseded | None = None

    def settle_and_clean_up(self, run: str, error: HeadgateError | None, *, is_stopped: bool) -> list[str]:
        """Wait for the checkpoints, then clean up. Returns messages about what could not be cleaned up.

        `is_stopped` says that the job stopped with a checkpoint, before its tasks ended. The clean-up runs on a thread
        of its own: the storing thread may still hang, and the job's thread must react to cancels.
        """
        self._settle(self._checkpoints.settle, _SETTLE_TIMEOUT, error)
        problems: list[str] = []
        cleaning = BackgroundWorker(f"headgate-cleaning-{run}", lambda: None)
        cleaning.submit(lambda: problems.extend(self._leave(error, is_stopped)), raise_error)
        is_clean = self._settle(cleaning.wait_until_idle, _CLEAN_TIMEOUT, error)
        cleaning.close()
        cleaning.run_callbacks()
        if is_clean:
            return problems
        return [f"{self._connectors.current_cleanup} did not return when the job ended; {THREAD_LEFT_RUNNING}"]

    def _settle(self, settle: Callable[[float], bool], timeout: float, error: HeadgateError | None) -> bool:
        """Wait until `settle` returns true. Returns whether it did.

        A job that has failed or is cancelled waits no longer than `timeout` seconds.
        """
        give_up: float | None = None
        while not settle(SETTLE_POLL):
            now = time.monotonic()
            if give_up is None and (error is not None or self._cancelled.is_set()):
                give_up = now + timeout
            if give_up is not None and now >= give_up:
                return False
        return True

    def _leave(self, error: HeadgateError | None, is_stopped: bool) -> list[str]:
        if isinstance(error, CheckpointError):
            self.successor = self._find_successor()
        if isinstance(self.successor or error, Superseded):
            return self._connectors.superseded()
        if error is not None or is_stopped:
            return self._checkpoints.abort("" if error is None else error.message)
        return self._connectors.release()

    def _find_successor(self) -> Superseded | None:
        """Return the error that names the newer owner of the job, or None if there is none."""
        try:
            self._checkpoints.require_owner()
        except Superseded as error:
            return error
        except (HeadgateError, OSError):  # the job's own error says what is wrong with the storage
            pass
        return None
