"""Files on S3: created once however many try, and what goes wrong is known soon and said clearly."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from headgate.errors import CheckpointError, ConfigError
from headgate.filesystems import write_new
from headgate.ownership import Program
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.ending import END, within
from tests.s3_service import S3Service
from tests.state.checkpoints import make_checkpoint

#: No service that is not there may take longer, seconds: 30 if nothing runs beside the test. `pyarrow.fs` tries for six
#: of them.
SOON = 25.0 + END


PassedOn = Callable[[], Iterable[bytes]]


def refuse(status: str, code: str, times: int) -> Any:
    """A fault: the first conditional puts are answered so."""
    left = [times]

    def fault(environ: dict[str, Any], passed_on: PassedOn, start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ or not left[0]:
            return passed_on()
        left[0] -= 1
        start_response(status, [("Content-Type", "application/xml")])
        return [f"<Error><Code>{code}</Code><Message>as planned</Message></Error>".encode()]

    return fault


def test_of_many_that_create_an_object_at_once_one_does(s3: S3Service) -> None:
    path = f"{s3.bucket()}/x"
    created: list[bool] = []
    threads = [threading.Thread(target=lambda: created.append(write_new(path, b""))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(created) == [False] * 15 + [True]


def test_a_conflict_with_another_program_is_tried_again(s3: S3Service) -> None:
    path = f"{s3.bucket()}/x"
    with s3.failing(refuse("409 Conflict", "ConditionalRequestConflict", 4)):
        assert write_new(path, b"")
    failing = s3.failing(refuse("409 Conflict", "ConditionalRequestConflict", 5))
    with failing, pytest.raises(OSError, match="409 .conflict. to 5 attempts to create "):
        write_new(path, b"")


def test_a_service_with_too_much_to_do_is_asked_again(s3: S3Service) -> None:
    path = f"{s3.bucket()}/x"
    with s3.failing(refuse("503 Slow Down", "SlowDown", 2)):
        assert write_new(path, b"")


def test_an_answer_that_is_lost_leaves_no_owner_in_doubt(s3: S3Service) -> None:
    """The first attempt creates the object, and the second one finds it. It must not look as if there were none."""
    path = f"{s3.bucket()}/x"
    lost: list[bool] = []

    def fault(environ: dict[str, Any], passed_on: PassedOn, _start_response: Any) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ or lost:
            return passed_on()
        lost.append(True)
        list(passed_on())
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return []

    with s3.failing(fault):
        assert not write_new(path, b"")
    assert s3.keys(path) == ["x"]


def test_a_service_that_ignores_the_condition_is_refused(s3: S3Service) -> None:
    """It would let two programs own a folder."""

    def fault(environ: dict[str, Any], passed_on: PassedOn, _start_response: Any) -> Iterable[bytes]:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return passed_on()

    bucket = s3.bucket()
    with s3.failing(fault), pytest.raises(ConfigError, match=r"/job: the service replaced .*ignores If-None-Match"):
        CheckpointStorage(bucket, "job").check()
    assert [key for key in s3.keys(bucket) if "probe" in key] == []


def test_a_service_that_knows_no_condition_is_named(s3: S3Service) -> None:
    said = r"cannot be written: bucket 'bucket-.*NotImplemented.*as planned"
    storage = CheckpointStorage(s3.bucket(), "job")
    with s3.failing(refuse("501 Not Implemented", "NotImplemented", 9)), pytest.raises(CheckpointError, match=said):
        storage.check()


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_not_there_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"cannot be written: bucket 'nobodys': .*NoSuchBucket.*does not exist"):
        CheckpointStorage("s3://nobodys/x", "job").check()


def test_rights_that_are_missing_are_named(s3: S3Service) -> None:
    said = r"cannot be written: bucket 'bucket-.*AccessDenied"
    storage = CheckpointStorage(s3.bucket(), "job")
    with s3.failing(refuse("403 Forbidden", "AccessDenied", 9)), pytest.raises(CheckpointError, match=said):
        storage.check()


def test_what_older_programs_noted_is_read_once(s3: S3Service) -> None:
    """A job that was started a thousand times takes checkpoints as quickly as one that was started twice."""
    read: list[str] = []

    def fault(environ: dict[str, Any], passed_on: PassedOn, _start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith(".note"):
            read.append(environ["PATH_INFO"].rpartition("/")[2])
        return passed_on()

    bucket = s3.bucket()
    with s3.failing(fault):
        for run in "abc":
            storage = CheckpointStorage(bucket, "job")
            storage.claim(Program.this(run))
            storage.start(None)
            make_checkpoint(storage, storage.next_id())
        read.clear()
        for _ in range(3):
            make_checkpoint(storage, storage.next_id())
            storage.retain()
            assert len(storage.completed()) == 3
    assert read == ["3.note"], "its own; it knew the others when it started"


#: A program that prints the result of a check of a folder on S3.
CHECK = """
import sys
from headgate.errors import HeadgateError
from headgate.state.checkpoint_storage import CheckpointStorage
{first}
try:
    CheckpointStorage(sys.argv[1], "job").check()
except HeadgateError as error:
    print(type(error).__name__, error)
"""


def checked_folder(first: str = "", bucket: str = "s3://bucket", **environ: str) -> str:
    """Of a program with only this in its environment that has to do with S3."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    whole = {**others, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path), **environ}
    with within(SOON):
        done = subprocess.run(
            [sys.executable, "-c", CHECK.format(first=first), f"{bucket}/x"],
            env=whole, capture_output=True, text=True, check=True,
        )  # fmt: skip
    return done.stdout


@pytest.mark.ends
def test_credentials_that_are_missing_are_named(s3: S3Service) -> None:
    said = checked_folder(AWS_ENDPOINT_URL=s3.endpoint, AWS_EC2_METADATA_DISABLED="true")
    assert "StorageError s3://bucket/x/job" in said
    assert "Unable to locate credentials" in said


@pytest.mark.ends
def test_an_endpoint_that_is_not_there_is_named(s3: S3Service) -> None:
    said = checked_folder(**{**s3.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    assert "StorageError s3://bucket/x/job" in said
    assert "Could not connect to the endpoint URL" in said


@pytest.mark.ends
def test_the_endpoint_for_s3_alone_comes_first_for_both_libraries(s3: S3Service) -> None:
    both = {"AWS_ENDPOINT_URL_S3": s3.endpoint, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    assert checked_folder(bucket=s3.bucket(), **{**s3.environ, **both}) == ""


@pytest.mark.ends
def test_without_boto3_the_error_names_the_extra(s3: S3Service) -> None:
    said = checked_folder(first="sys.modules['boto3'] = None", **s3.environ)
    assert said == "ConfigError checkpoints and results on S3 need boto3: pip install 'headgate[s3]'\n"


@pytest.mark.parametrize("uri", ["gs://bucket/x", "gcs://bucket/x", "abfs://container@account.dfs.core.windows.net/x"])
def test_other_object_stores_are_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="cannot create a file only if it does not exist"):
        CheckpointStorage(uri, "job").check()
