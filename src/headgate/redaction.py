"""Find credentials in URIs, and remove them from text that is shown."""

from __future__ import annotations

import re
from typing import Final

_SHOWN: Final = "***"
#: `user:password@`. A number and a slash after the colon are a port. The lengths are bounded, because otherwise some
#: texts would take quadratic time.
_USERINFO: Final = re.compile(r"(?<=://)[^\s@/:?#]{0,300}:(?!\d{1,5}(?:[^\w%]|$))[^\s@]{0,300}(?=@)")
#: A parameter of a query whose name says that its value is a secret.
_QUERY: Final = re.compile(
    r"(?i)(?<=[?&;])([\w.%-]{0,60}(?:secret|password|passwd|token|signature|credential|access_?key|account_?key)"
    r"[\w.%-]{0,60}|sig|sas|auth)=[^&;\s'\"]{1,4000}"
)


def has_credentials(uri: str) -> bool:
    """Tell whether a URI holds a password, a key or a token."""
    return "://" in uri and (_USERINFO.search(uri) or _QUERY.search(uri)) is not None


def redacted(text: str) -> str:
    """Return the text with `***` in place of the credentials of the URIs in it.

    >>> redacted("cannot read s3://key:secret@bucket/folder")
    'cannot read s3://***@bucket/folder'
    """
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1={_SHOWN}", _USERINFO.sub(_SHOWN, text))
