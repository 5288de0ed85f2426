"""Refuse requests that do not come from the reader of the page, and protect the page in the browser."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from headgate.option_kinds import is_loopback
from headgate.web.answers import Fault
from headgate.web.refusal import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

#: The most bytes of a path with its query.
_LONGEST: Final = 4096
#: The most bytes of all headers together.
_HEADERS_SIZE: Final = 16 << 10
#: A `Host` header: a name or an IPv4 address, or an IPv6 address in brackets, and perhaps a port (RFC 3986, 3.2.2).
_HOST: Final = re.compile(r"(?:\[([^\[\]]*:[^\[\]]*)\]|([\w.-]+))(?::[0-9]*)?", re.ASCII)
#: The headers of every answer: the page loads nothing from elsewhere, no other page may frame or read it, and no cache
#: keeps it. An answer may have a policy of its own.
_HEADERS: Final = (
    (b"content-security-policy",
     b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)  # fmt: skip


class Guard:
    """An ASGI application in front of another. `host` is the address on which the server listens.

    Make it before the event loop runs: for a server on all addresses, it asks DNS for the machine's name.

    - The guard accepts only GET without a body, and limits the length of the path.
    - The `Host` header must name loopback or `host`. A page of another site can therefore not reach the server under
      the site's own name (DNS rebinding). A server on all addresses also accepts any IP address and its machine's name.
    - A server with a token needs `Authorization: Bearer TOKEN` in each request, or `?token=TOKEN` in the first request.
      The guard answers the first request with a cookie that replaces the token.
    """

    def __init__(self, app: App, host: str, port: int, token: str | None) -> None:
        self._app = app
        self._host = host.strip("[]").lower()
        self._is_everywhere = self._host in {"0.0.0.0", "::"}
        #: The machine's names, if the server is on all addresses. DNS may take seconds, so no request looks them up.
        self._names = {socket.gethostname().lower(), socket.getfqdn().lower()} if self._is_everywhere else set()
        self._token = token
        #: A browser sends a cookie to all ports of a host. The name of the cookie therefore contains the port.
        self._cookie = f"headgate_{port}"
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name for name, _ in own}
                message["headers"] = [*own, *(each for each in _HEADERS if each[0] not in names)]
            await send(message)

        try:
            self._check(scope, headers)
            location = self._entered(scope)
            if location is not None:
                await self._redirect(send_guarded, location)
                return
            self._check_token(headers)
        except Refusal as refusal:
            await refuse(send_guarded, refusal)
            return
        await self._app(scope, receive, send_guarded)

    def _check(self, scope: Message, headers: dict[bytes, str]) -> None:
        if not self._is_own(headers.get(b"host", "")):
            raise Refusal(421, "this server is not known by that name: use its address, or localhost and an SSH tunnel")
        if scope["method"] != "GET":
            raise Refusal(405, "only GET is allowed")
        if headers.get(b"content-length", "0") != "0" or b"transfer-encoding" in headers:
            raise Refusal(413, "a request must not have a body")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST:
            raise Refusal(414, f"the path and query may have at most {_LONGEST} bytes")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _HEADERS_SIZE:
            raise Refusal(431, f"the headers may have at most {_HEADERS_SIZE} bytes")

    def _is_own(self, header: str) -> bool:
        name = _host_of(header).lower()
        if is_loopback(name) or name == self._host:
            return True
        return self._is_everywhere and (_is_address(name) or name in self._names)

    def _entered(self, scope: Message) -> str | None:
        """Return the path and query without the token if the query has the token, otherwise None.

        Raises Refusal for a wrong token.
        """
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if self._token is None or not given:
            return None
        if not _same(given[-1], self._token):
            raise Refusal(401, "the token is wrong")
        rest = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope["path"].lstrip("/")  # "//name" would lead to another server
        return f"{path}?{rest}" if rest else path

    def _check_token(self, headers: dict[bytes, str]) -> None:
        if self._token is None:
            return
        kind, _, given = headers.get(b"authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), self._token):
            return
        if not self._has_session(headers.get(b"cookie", "")):
            raise Refusal(401, "give the token: Authorization: Bearer TOKEN, or ?token=TOKEN once in a browser")

    def _has_session(self, header: str) -> bool:
        """Return whether one of the cookies is this server's, with the right value.

        Other programs on the host may set cookies that no parser accepts, so the header is not parsed as a whole.
        """
        cookies = (each.strip().partition("=") for each in header.split(";"))
        return any(name == self._cookie and _same(value, self._session) for name, _, value in cookies)

    async def _redirect(self, send: Send, location: str) -> None:
        cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", location.encode("latin-1", "replace")), (b"set-cookie", cookie.encode())]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def refuse(send: Send, refusal: Refusal) -> None:
    """Answer a refused request with its status and the reason."""
    body = msgspec.json.encode(Fault(errors=[refusal.message]))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    headers += [(b"allow", b"GET")] if refusal.status == 405 else []
    headers += [(b"www-authenticate", b"Bearer")] if refusal.status == 401 else []
    headers += [(b"retry-after", b"5")] if refusal.status == 503 else []
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _host_of(header: str) -> str:
    """Return the host of a `Host` header without a port: "[::1]:80" is "::1". Raises Refusal for a malformed header."""
    parts = _HOST.fullmatch(header)
    if parts is None:
        raise Refusal(400, "the Host header is not a name or an address, with or without a port")
    return parts[1] or parts[2]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
