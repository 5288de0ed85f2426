"""S3 through boto3, for what `pyarrow.fs` cannot do: create an object only if it does not exist.

It needs the extra `headgate[s3]`. Both libraries must reach the same service:

- Both take credentials from the variables `AWS_*`, from the files in `~/.aws`, or from the machine's role.
- The endpoint comes from the environment alone, since `pyarrow.fs` does not read it from `~/.aws/config`.
- The region is the one that `pyarrow.fs` found for the bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from headgate.errors import ConfigError

#: Codes for an object that exists already.
_EXISTS = ("PreconditionFailed", "412")
#: Codes for an object that another program writes at this moment. Only a new attempt shows whether that program
#: succeeded.
_CONFLICT = ("ConditionalRequestConflict", "409")
_ATTEMPTS = 5
#: Seconds. With three attempts, a service that accepts connections and never answers fails the call after 33 s.
_CONNECT_TIMEOUT, _READ_TIMEOUT = 3, 10
_NO_BOTO = "checkpoints and results on S3 need boto3: pip install 'headgate[s3]'"


def put_new(path: str, content: bytes, region: str) -> bool:
    """Create the object at `path` (`bucket/key`) unless it exists. Return whether this call created it.

    If the answer to the first attempt is lost, the call may return False for an object that it did create. Raises
    OSError, and ConfigError without boto3.
    """
    bucket, _, key = path.partition("/")
    for _ in range(_ATTEMPTS):
        with service_errors(bucket, *_EXISTS, *_CONFLICT) as refused:
            client(region).put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
            return True
        if refused[0] in _EXISTS:
            return False
    raise OSError(
        f"bucket {bucket!r}: the service answered 409 (conflict) to {_ATTEMPTS} attempts to create {key!r}: other "
        "programs write this object"
    )


def client(region: str) -> Any:
    """Return the client for a region. Raises ConfigError without boto3."""
    return _client(region, os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))


@contextmanager
def service_errors(bucket: str, *expected: str) -> Iterator[list[str]]:
    """Turn errors of the service and of the connection into an OSError that names the bucket.

    An error whose code is `expected` ends the block without an exception. Its code is then in the list.
    """
    client_error, connection_error = _errors()
    met: list[str] = []
    try:
        yield met
    except client_error as error:
        code = str(error.response.get("Error", {}).get("Code"))
        if code not in expected:
            raise OSError(f"bucket {bucket!r}: {error}") from error
        met.append(code)
    except connection_error as error:
        raise OSError(f"bucket {bucket!r}: {error}") from error


def _errors() -> tuple[type[Any], type[Any]]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise ConfigError(_NO_BOTO) from None
    return ClientError, BotoCoreError


@cache
def _client(region: str, endpoint: str | None) -> Any:
    """Return the client of a region and endpoint. It lives as long as the process, and all threads share it."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise ConfigError(_NO_BOTO) from None
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": 3},
        ignore_configured_endpoint_urls=True,
        request_checksum_calculation="when_required",  # services other than Amazon's may not know checksums
        s3={"addressing_style": "path"} if endpoint else None,  # as pyarrow.fs does
    )
    # Make a new session, not boto3's default one: two threads must not make clients of one session at the same time.
    return boto3.Session().client("s3", region_name=region, endpoint_url=endpoint, config=config)
