"""The SSH tunnel through which another machine reaches a page that listens only on loopback."""

from __future__ import annotations

from urllib.parse import urlsplit

from headgate.option_kinds import is_loopback


def tunnel(page: str, host: str) -> str | None:
    """Return the command that makes a page's address work on another machine: an SSH tunnel to the driver on `host`.

    Returns None if the page does not listen on loopback. The page's address then works without a tunnel.

    >>> tunnel("http://127.0.0.1:40317/#2f1c-9a41d0c3", "driver-host")
    'ssh -N -L 40317:127.0.0.1:40317 driver-host'
    """
    address = urlsplit(page)
    name = address.hostname or ""
    if not is_loopback(name):
        return None
    return f"ssh -N -L {address.port}:{f'[{name}]' if ':' in name else name}:{address.port} {host}"
