"""Warn of a job that fails with the same error of a function or of data again and again."""

from __future__ import annotations

import logging
from typing import Final

from headgate.errors import DataError, HeadgateError, UserFunctionError

log = logging.getLogger(__name__)

#: The failures in a row after which a warning comes: these, and each so many after them.
_TIMES: Final = 3


class RepeatedFailures:
    """Counts the failures of a job that have the same text, in a row."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._text = ""
        self._times = 0

    def note(self, error: HeadgateError | None) -> None:
        """Count a failure. Warns of each third one with the same text."""
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
