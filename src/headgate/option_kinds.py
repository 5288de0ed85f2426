"""The kinds of options: how a value of each kind is read, and how the documentation shows it."""

from __future__ import annotations

import enum
import ipaddress
import os
import re
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError
from headgate.options import Kind
from headgate.quantities import seconds, size
from headgate.redaction import has_credentials, redacted
from headgate.restart import RestartStrategy
from headgate.throttle.mechanism import Mechanism

#: A token has only characters that a URL may contain, and is long enough not to be guessed.
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~-]{16,200}")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{value!r} is not a whole number")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{value!r} must be True or False")
    return value


def _size_text(value: int) -> str:
    for power, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value and value % (1 << power) == 0:
            return f"{value >> power} {name}"
    return f"{value} B"


def _duration_text(value: float) -> str:
    for length, name in ((3600.0, "h"), (60.0, "min")):
        if value >= length and value % length == 0 and value != length:
            return f"{value / length:g} {name}"
    if 0 < value < 1:
        return f"{value * 1000:g} ms"
    return f"{value:g} s" if value else "0"


def one_of(*names: str) -> Kind:
    """Return the kind of an option whose value is one of these words."""

    def parse(value: object) -> object:
        if value not in names:
            *first, last = (f'"{name}"' for name in names)
            raise ConfigError(f"{value!r} is unknown: it must be {', '.join(first)} or {last}")
        return value

    return Kind("text", parse)


def member_of(members: type[enum.StrEnum]) -> Kind:
    """Return the kind of an option whose value is a member of an enumeration. Users give it as a word."""
    words = one_of(*members)
    return Kind("text", lambda value: members(words.parse(value)))


def or_none(kind: Kind) -> Kind:
    """Return a kind that also accepts None."""
    return Kind(
        kind.name,
        lambda value: None if value is None else kind.parse(value),
        kind.unit,
        lambda value: "none" if value is None else kind.show(value),
    )


def _buffer_timeout(value: object) -> float | str:
    others = '"adaptive" (when the reader has nothing left), 0 (after every batch) or -1 (only when full)'
    if value == "adaptive":
        return "adaptive"
    try:
        timeout = seconds(value)
    except ConfigError as error:
        raise ConfigError(f"{error.message}; or {others}") from None
    if timeout < 0 and timeout != -1:
        raise ConfigError(f"{value!r} is impossible: it must be a duration, {others}")
    return timeout


def _strategy(value: object) -> RestartStrategy:
    if not isinstance(value, RestartStrategy):
        raise ConfigError(f"{value!r} is no restart strategy; see hg.restart, for example hg.restart.fixed(3)")
    return value


def _path(value: object) -> str:
    if not isinstance(value, (str, Path)) or value == "":
        raise ConfigError(f"{value!r} is not a path; give a path or URI: a non-empty string or a pathlib.Path")
    if "://" in str(value):
        return refuse_credentials(str(value))
    return os.path.abspath(os.path.expanduser(value))  # resolve it here: other processes have other working folders


def refuse_credentials(uri: str) -> str:
    """Return the URI. Raises ConfigError if it holds a password, a key or a token.

    The job stores URIs in checkpoints, sends them to all machines, and shows them in errors and reports.
    """
    if has_credentials(uri):
        raise ConfigError(
            f"{redacted(uri)}: holds credentials, which would be stored in checkpoints and shown in errors; leave them "
            "out, and set them in the environment of all machines (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "GOOGLE_APPLICATION_CREDENTIALS, a Kerberos ticket), or rely on the provider's role for them"
        )
    return uri


def _host(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{value!r} is not the name or address of a machine, which is a string that is not empty")
    return value


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address or name."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _token(value: object) -> str:
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise ConfigError(
            "a token has 16 to 200 letters, digits, `-`, `_`, `.` and `~`; secrets.token_urlsafe() makes one"
        )
    return value


def _ports(value: object) -> tuple[int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ConfigError(f"{value!r} must be (first, last), two port numbers")
    first, last = _whole(value[0]), _whole(value[1])
    if not 0 < first <= last < 65536:
        raise ConfigError(
            f"{(first, last)} is impossible: it must be (first, last), 1 to 65535, and last not below first"
        )
    return first, last


def _throttle(value: object) -> Mechanism:
    if not isinstance(value, Mechanism):
        raise ConfigError(f"{value!r} is no throttle; see hg.throttle, for example hg.throttle.FixedRate(1000)")
    return value


SIZE = Kind("size", size, "bytes", _size_text)
DURATION = Kind("duration", seconds, "seconds", _duration_text)
WHOLE = Kind("int", _whole)
FLAG = Kind("bool", _flag)
BUFFER_TIMEOUT = Kind("duration", _buffer_timeout, "seconds", _duration_text)
PATH = Kind("path", _path)
HOST = Kind("text", _host)
TOKEN = Kind("text", _token)
PORTS = Kind("(int, int)", _ports)
STRATEGY = Kind("strategy", _strategy)
THROTTLE = Kind("throttle", _throttle)
