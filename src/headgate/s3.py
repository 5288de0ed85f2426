"""What S3 is asked for through boto3, because `pyarrow.fs` cannot: to create an object only if there is none.

Needs the extra `headgate[s3]`. Both libraries must reach the same service. Credentials come from the same places: the
variables `AWS_*`, the files in `~/.aws`, the machine's role. The endpoint comes from the environment alone, since
`pyarrow.fs` does not read one from `~/.aws/config`, and the region is the one that `pyarrow.fs` found for the bucket.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from headgate.errors import ConfigError

#: The condition did not hold; 409: another program writes the same object now, and one of the two has it.
_THERE = ("PreconditionFailed", "412")
_AGAIN = ("ConditionalRequestConflict", "409")
_ATTEMPTS = 5
#: Seconds. With three attempts a service that accepts connections and never answers is known after 33 s.
_CONNECT_TIMEOUT, _READ_TIMEOUT = 3, 10


def put_new(path: str, content: bytes, region: str) -> bool:
    """Create the object `bucket/key` unless there is one; whether this call created it. It may say no of an object that
    it did create, if the answer to its first attempt was lost. Raises OSError, and ConfigError without boto3."""
    bucket, _, key = path.partition("/")
    client = _client(region, os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))
    from botocore.exceptions import BotoCoreError, ClientError

    for _ in range(_ATTEMPTS):
        try:
            client.put_object(Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
            return True
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in _THERE:
                return False
            if code not in _AGAIN:
                raise OSError(f"bucket {bucket!r}: {error}") from error
        except BotoCoreError as error:
            raise OSError(f"bucket {bucket!r}: {error}") from error
    raise OSError(f"bucket {bucket!r}: the service answered 409 {_ATTEMPTS} times: other programs write this object")


@cache
def _client(region: str, endpoint: str | None) -> Any:
    """One for the life of the process, which threads share."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise ConfigError("checkpoints on S3 need boto3: pip install 'headgate[s3]'") from None
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": 3},
        ignore_configured_endpoint_urls=True,
        request_checksum_calculation="when_required",  # other services than Amazon's may not know them
        s3={"addressing_style": "path"} if endpoint else None,  # as pyarrow.fs does
    )
    # Threads must not make clients of one session, as boto3's own, at the same time.
    return boto3.Session().client("s3", region_name=region, endpoint_url=endpoint, config=config)
