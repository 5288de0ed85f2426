"""`SignalCount`: how many signals the parts of a throttle exchange."""

from __future__ import annotations

import threading


class SignalCount:
    """Counts the signals that one TaskManager sends for its throttle, and those that it gets from the driver.

    Any thread may call `note`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.signals = 0

    def note(self) -> None:
        """Count one signal."""
        with self._lock:
            self.signals += 1
