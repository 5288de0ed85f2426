"""Credentials in URIs: found, so that they can be refused, and left out of whatever is shown."""

from __future__ import annotations

import re
from typing import Final

_SHOWN: Final = "***"
#: `user:password@`; a number and a slash after the colon are a port. Bounded, so that no text takes quadratic time.
_USERINFO: Final = re.compile(r"(?<=://)[^\s@/:?#]{0,300}:(?!\d{1,5}(?:[^\w%]|$))[^\s@]{0,300}(?=@)")
#: Of a query, what names a secret.
_QUERY: Final = re.compile(
    r"(?i)(?<=[?&;])([\w.%-]{0,60}(?:secret|password|passwd|token|signature|credential|access_?key|account_?key)"
    r"[\w.%-]{0,60}|sig|sas|auth)=[^&;\s'\"]{1,4000}"
)


def has_credentials(uri: str) -> bool:
    """Whether a URI holds a password, a key or a token."""
    return "://" in uri and (_USERINFO.search(uri) or _QUERY.search(uri)) is not None


def redacted(text: str) -> str:
    """The text without the credentials of the URIs in it."""
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1={_SHOWN}", _USERINFO.sub(_SHOWN, text))
