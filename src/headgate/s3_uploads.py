"""Multipart uploads to S3: nobody sees the object until its upload is completed, and that happens at most once.

Completing and aborting both end an upload. So a program that was paused and replaced cannot complete an upload that its
successor has ended. Paths are `bucket/key`. Functions raise OSError, and ConfigError without boto3.
"""

from __future__ import annotations

from headgate.s3 import client, service_errors

#: The code for an upload that was completed or aborted.
_ENDED = "NoSuchUpload"


def begin_upload(path: str, region: str) -> str:
    """Begin an upload, and return its id."""
    bucket, _, key = path.partition("/")
    with service_errors(bucket):
        return str(client(region).create_multipart_upload(Bucket=bucket, Key=key)["UploadId"])


def upload_part(path: str, region: str, upload: str, number: int, content: bytes) -> None:
    """Send a part. Numbers start at 1. All parts but the last one need at least 5 MiB."""
    bucket, _, key = path.partition("/")
    with service_errors(bucket):
        client(region).upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=content)


def complete_upload(path: str, region: str, upload: str) -> bool:
    """Make the object visible with all parts that were sent. Returns False if the upload has ended already."""
    bucket, _, key = path.partition("/")
    with service_errors(bucket, _ENDED) as ended:
        place = {"Bucket": bucket, "Key": key, "UploadId": upload}
        pages = client(region).get_paginator("list_parts").paginate(**place)
        parts = [
            {"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for page in pages for part in page.get("Parts", [])
        ]
        client(region).complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    return not ended


def abort_upload(path: str, region: str, upload: str) -> None:
    """Drop an upload and its parts. Does nothing if the upload has ended already."""
    bucket, _, key = path.partition("/")
    with service_errors(bucket, _ENDED):
        client(region).abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


def open_uploads(folder: str, region: str) -> list[tuple[str, str]]:
    """Return the path and the id of each open upload (neither completed nor aborted) below a folder."""
    bucket, _, prefix = f"{folder.rstrip('/')}/".partition("/")
    with service_errors(bucket):
        pages = client(region).get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
        return [(f"{bucket}/{each['Key']}", each["UploadId"]) for page in pages for each in page.get("Uploads", [])]
    return []
