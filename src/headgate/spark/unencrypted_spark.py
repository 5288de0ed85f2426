"""Warns about unencrypted Spark connections. Spark sends the job's key in the task closure over these connections."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Settings of Spark. If any of them is on, Spark encrypts its connections.
_ENCRYPTING = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
#: The applications for which the warning was logged.
_warned: set[str] = set()


def warn_if_unencrypted(application: str, driver_host: str, setting: Callable[[str, str], str]) -> None:
    """Log a warning if Spark's connections leave the machine unencrypted, once for each Spark application.

    `setting(name, default)` returns a setting of the application.
    """
    is_encrypted = any(setting(name, "false").lower() == "true" for name in _ENCRYPTING)
    if is_encrypted or _is_loopback(driver_host) or application in _warned:
        return
    _warned.add(application)
    log.warning(
        "Spark's own connections are not encrypted. An attacker who listens to them can take the key of a job, and "
        "then read and change its rows. Build the session with spark.network.crypto.enabled=true and "
        "spark.authenticate=true, or with spark.ssl.rpc.enabled=true (Spark 4)"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
