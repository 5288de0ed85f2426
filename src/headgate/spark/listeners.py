"""Who can listen to Spark's own connections can take the job's key: it travels in the task closure."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Either makes Spark encrypt what it sends.
_ENCRYPTING = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
#: Applications of which it has been said.
_warned: set[str] = set()


def warn_of_listeners(application: str, driver_host: str, setting: Callable[[str, str], str]) -> None:
    """Log a warning, once for each Spark application, unless Spark encrypts its connections or they do not leave the
    machine. `setting(name, default)` is the application's configuration."""
    is_encrypted = any(setting(name, "false").lower() == "true" for name in _ENCRYPTING)
    if is_encrypted or _is_loopback(driver_host) or application in _warned:
        return
    _warned.add(application)
    log.warning(
        "Spark's own connections are not encrypted. Who can listen to them can take the key of a job, and then read "
        "and change its rows. Build the session with spark.network.crypto.enabled=true and spark.authenticate=true, or "
        "with spark.ssl.rpc.enabled=true (Spark 4)"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
