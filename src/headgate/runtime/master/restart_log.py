"""Log the restarts of a job, and warn about a job that fails with the same error again and again."""

from __future__ import annotations

import logging
from typing import Final

from headgate.errors import DataError, HeadgateError, UserFunctionError
from headgate.state.checkpoint_metadata import CheckpointMetadata

log = logging.getLogger(__name__)

#: How many failures in a row with the same error cause a warning. As many more cause the next warning.
_TIMES: Final = 3


class RestartLog:
    """Logs the restarts of one job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._text = ""
        self._times = 0

    def restarts(self, latest: CheckpointMetadata | None, error: HeadgateError | None) -> None:
        """Log that the job starts again from `latest` after `error`.

        Warns at each third error in a row with the same text, if the error is one of a user's function or of the data.
        """
        log.warning("job %r starts again from %s, after: %s", self._job, _name(latest), error)
        is_same = isinstance(error, (UserFunctionError, DataError)) and str(error) == self._text
        self._text, self._times = str(error), self._times + 1 if is_same else 1
        if self._times % _TIMES == 0:
            log.warning(
                "job %r has failed %d times in a row with this error. If the same row causes it, the job never gets "
                'past the row: put such rows aside (side_output("bad") of a source, hg.SideOutput of a function), '
                "or limit the restarts, for example restart=hg.restart.fixed(3, '1 s')",
                self._job,
                self._times,
            )

    def drains(self, latest: CheckpointMetadata | None) -> None:
        """Log that the job restarts from the checkpoint `latest`, only to end there."""
        log.warning(
            "job %r is drained from %s: rows that it had read after that are not in its result; resume it to read them",
            self._job,
            _name(latest),
        )


def _name(latest: CheckpointMetadata | None) -> str:
    return "the beginning" if latest is None else f"checkpoint {latest.id}"
