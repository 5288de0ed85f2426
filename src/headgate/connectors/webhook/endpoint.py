"""`Endpoint`: the service that gets the rows, the headers of requests, and how errors name them without secrets."""

from __future__ import annotations

import logging
import re
import ssl
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from headgate.errors import ConfigError, printable

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection

#: A name and a value of a header, as RFC 9110 allows them.
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
#: Headers that the sink sets itself, or that change how a request is framed.
_RESERVED: Final = frozenset(("connection", "content-length", "expect", "host", "te", "transfer-encoding", "upgrade"))
#: Errors hide header values of at least so many characters, and parts of a value or of the path of at least so many. A
#: shorter text is no secret, and hiding it would spoil the error.
_LEAST_VALUE: Final = 4
_LEAST_PART: Final = 8
_ADDRESS: Final = re.compile(r"https?://[^\s/?#]+")


def is_header_name(name: str) -> bool:
    """Return whether this is a valid name of a header that the sink does not set itself."""
    return _NAME.fullmatch(name) is not None and name.lower() not in {*_RESERVED, "content-type", "user-agent"}


def http_library() -> Any:
    """Return the module `urllib3`. Raises ConfigError if it is not installed."""
    try:
        return import_module("urllib3")
    except ImportError as error:
        raise ConfigError(f"webhook needs the package urllib3 ({error}): pip install 'headgate[webhook]'") from None


def connection_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a connection that cannot be opened, or that ends before the whole answer."""
    return OSError, HTTPException, http_library().exceptions.HTTPError


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address of a service, and the headers that each request has.

    `repr` and `str` show the server only: headers have tokens, and the path of a webhook often is a secret itself.
    """

    is_tls: bool
    host: str
    port: int
    #: The path and the query.
    target: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    #: Seconds of a wait for the service.
    timeout: float

    @staticmethod
    def checked(url: object, headers: object, timeout: float, own: Iterable[str]) -> Endpoint:
        """Check an address and headers of the user. `own` are headers that the sink sets.

        Raises ConfigError, which shows neither the address nor the value of a header.
        """
        wanted = ConfigError("webhook: url= must be an address such as 'https://service.example.com/rows'")
        if not isinstance(url, str):
            raise wanted
        try:
            parsed = http_library().util.parse_url(url)
            written = urlsplit(url)
        except (http_library().exceptions.LocationParseError, ValueError):
            raise wanted from None
        if parsed.scheme not in ("http", "https") or not parsed.host or re.search(r"\s", url):
            raise wanted
        if parsed.auth is not None or written.username is not None:
            raise ConfigError("webhook: url= has a user or a password; give them as the header Authorization")
        return Endpoint(
            is_tls=parsed.scheme == "https",
            host=parsed.host.strip("[]"),
            port=parsed.port or (443 if parsed.scheme == "https" else 80),
            target=parsed.request_uri,
            headers=_checked_headers({} if headers is None else headers, own),
            timeout=timeout,
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = "" if self.target == "/" else "/***"
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{path}"

    def connection(self) -> HTTPConnection:
        """Return a connection, which the first request opens."""
        library = import_module("urllib3.connection")
        _hide_paths()
        made: HTTPConnection
        if self.is_tls:
            context = ssl.create_default_context()
            made = library.HTTPSConnection(self.host, self.port, timeout=self.timeout, ssl_context=context)
        else:
            made = library.HTTPConnection(self.host, self.port, timeout=self.timeout)
        return made

    def without_secrets(self, text: str) -> str:
        """Return a text of the service or of the library without values of headers, and without parts of the path."""
        for secret in sorted(set(self._secrets()), key=len, reverse=True):
            text = text.replace(secret, "***")
        return printable(text)

    def _secrets(self) -> Iterator[str]:
        query = urlsplit(self.target).query
        parts = re.split(r"[/?&=]", self.target)
        parts += [*map(unquote, parts), *(value for _, value in parse_qsl(query))]
        for value in self.headers.values():
            parts += value.split()
            if value.startswith("Basic "):
                with suppress(ValueError):
                    parts += b64decode(value.removeprefix("Basic ")).decode(errors="replace").split(":", 1)
        yield from (value for value in (self.target, *self.headers.values()) if len(value) >= _LEAST_VALUE)
        yield from (part for part in parts if len(part) >= _LEAST_PART)


def _checked_headers(headers: object, own: Iterable[str]) -> Mapping[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigError("webhook: headers= must be a dict, such as {'Authorization': 'Bearer ...'}")
    taken = _RESERVED | {name.lower() for name in own}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError("webhook: headers= has a name that is not one of a header")
        if name.lower() in taken:
            raise ConfigError(f"webhook: headers= has {name!r}, which the sink sets itself; leave it out")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ConfigError(f"webhook: the value of the header {name!r} must be ASCII text on one line")
    return dict(headers)


@cache
def _hide_paths() -> None:
    """Shorten addresses in log records of urllib3's connections: a warning about a bad answer has the whole address."""

    def shorten(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_server_only(value) for value in record.args)
        return True

    logging.getLogger("urllib3.connection").addFilter(shorten)


def _server_only(value: object) -> object:
    found = _ADDRESS.match(value) if isinstance(value, str) else None
    return value if found is None else f"{found[0]}/***"
