"""What S3 is asked for through boto3, because `pyarrow.fs` cannot: to create an object only if there is none.

Needs the extra `headgate[s3]`. Both libraries find credentials, region and endpoint in the same places: the variables
`AWS_*` (`AWS_ENDPOINT_URL` for another service than Amazon's), the files in `~/.aws`, the machine's role.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from headgate.errors import ConfigError

#: The condition did not hold; 409: another program writes the same object now, and one of the two has it.
_THERE = ("PreconditionFailed", "412")
_AGAIN = ("ConditionalRequestConflict", "409")
_ATTEMPTS = 5


def put_new(path: str, content: bytes) -> bool:
    """Create the object `bucket/key` unless there is one; whether this call created it. Raises OSError, and ConfigError
    without boto3."""
    bucket, _, key = path.partition("/")
    client = _client()
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
                raise OSError(f"s3://{path}: {error}") from error
        except BotoCoreError as error:
            raise OSError(f"s3://{path}: {error}") from error
    raise OSError(f"s3://{path}: other programs wrote it {_ATTEMPTS} times in a row at the same moment")


@cache
def _client() -> Any:
    try:
        import boto3
    except ImportError:
        raise ConfigError("checkpoints on S3 need boto3: pip install 'headgate[s3]'") from None
    return boto3.client("s3")
