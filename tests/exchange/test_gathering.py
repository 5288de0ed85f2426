"""Where long messages are gathered: counted against one budget, in nameless files beyond it, and nothing left."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.errors import ExchangeError, SpillError
from headgate.exchange.gathering import SPILL_THRESHOLD, Gathering
from headgate.exchange.nameless_files import local_folder, nameless_file
from headgate.exchange.pending import PendingBudget
from headgate.records.arrow import BatchCodec
from headgate.records.spanning import SpanningDeserializer, serialize

MB = 1 << 20
LONG = pa.record_batch({"x": np.arange(SPILL_THRESHOLD // 8 + 1)})
SHORT = pa.record_batch({"x": np.arange(1000)})


def stream_of(batch: pa.RecordBatch) -> bytes:
    return b"".join(map(bytes, serialize(batch, BatchCodec(batch.schema))))


def mapped_files() -> int:
    """Mappings of files that have no name any more."""
    with open("/proc/self/maps") as maps:
        return sum("(deleted)" in line and "/#" in line for line in maps)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A file that grows beyond it is an error, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_message_above_the_threshold_is_gathered_and_decoded_in_a_file_without_a_name(tmp_path: Path) -> None:
    gathering = Gathering(PendingBudget(), str(tmp_path))
    deserializer = SpanningDeserializer(BatchCodec(LONG.schema), gathering)
    before, stream = mapped_files(), stream_of(LONG)
    assert deserializer.feed([memoryview(stream)[:-1]]) == []
    assert SPILL_THRESHOLD < gathering.file_bytes < len(stream)
    assert (gathering.memory_bytes, gathering.messages_spilled) == (0, 1)
    gathering.validate()
    assert mapped_files() == before + 1
    assert os.listdir(tmp_path) == []
    (batch,) = deserializer.feed([memoryview(stream)[-1:]])
    assert isinstance(batch, pa.RecordBatch)
    assert batch.equals(LONG)
    assert gathering.file_bytes == 0
    assert mapped_files() == before + 1, "the batch uses the file in place"
    del batch
    assert mapped_files() == before


def test_short_messages_share_the_budget_with_writers(tmp_path: Path) -> None:
    size = BatchCodec(SHORT.schema).encode(SHORT)[1].size
    budget = PendingBudget(limit=3 * size)
    writer = budget.add_count()
    gathering = Gathering(budget, str(tmp_path))
    deserializers = [SpanningDeserializer(BatchCodec(SHORT.schema), gathering) for _ in range(3)]
    writer.bytes = size
    for deserializer in deserializers:
        deserializer.feed([memoryview(stream_of(SHORT))[:100]])
    assert gathering.memory_bytes == 2 * size
    assert gathering.file_bytes == size
    assert budget.used == 3 * size
    gathering.validate()
    for deserializer in deserializers:
        assert deserializer.feed([memoryview(stream_of(SHORT))[100:]]) == [SHORT]
    assert gathering.memory_bytes == 0
    assert gathering.file_bytes == 0
    assert budget.used == size


def test_a_message_that_never_ends_leaves_nothing(tmp_path: Path) -> None:
    before = mapped_files()
    gathering = Gathering(PendingBudget(), str(tmp_path))
    deserializer = SpanningDeserializer(BatchCodec(LONG.schema), gathering)
    deserializer.feed([memoryview(stream_of(LONG))[:1000]])
    assert mapped_files() == before + 1
    del deserializer
    assert mapped_files() == before
    assert os.listdir(tmp_path) == []


def test_damage_in_a_long_message_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    before, stream = mapped_files(), bytearray(stream_of(LONG))
    stream[-9] ^= 1
    deserializer = SpanningDeserializer(BatchCodec(LONG.schema), Gathering(PendingBudget(), str(tmp_path)))
    with pytest.raises(ExchangeError, match="checksum mismatch"):
        deserializer.feed([memoryview(stream)])
    del deserializer
    assert mapped_files() == before
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_before_a_byte_is_written(tmp_path: Path) -> None:
    before, open_files = mapped_files(), len(os.listdir("/proc/self/fd"))
    gathering = Gathering(PendingBudget(), str(tmp_path))
    with file_size_limit(MB), pytest.raises(SpillError, match=f"a file in {tmp_path} cannot be used: .*spill_dir"):
        gathering.allocate(SPILL_THRESHOLD + 1)
    assert (mapped_files(), len(os.listdir("/proc/self/fd")), gathering.file_bytes) == (before, open_files, 0)


def test_a_full_temporary_folder_fails_only_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks for a temporary folder by writing a file there."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    with file_size_limit(0):
        gathering = Gathering(PendingBudget(), None)
        gathering.complete(gathering.allocate(1000))
        with pytest.raises(SpillError, match=r"a file in /\S+ cannot be used: .*spill_dir"):
            gathering.allocate(SPILL_THRESHOLD + 1)


def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SpillError, match="nowhere cannot be used: No such file or directory; set the option spill_dir"):
        Gathering(PendingBudget(), str(tmp_path / "nowhere")).allocate(SPILL_THRESHOLD + 1)


@pytest.mark.parametrize("folder", ["/dev/shm", None])
def test_files_have_no_name_wherever_they_are(folder: str | None) -> None:
    """On file systems with and without files that never had a name."""
    folder = folder or local_folder(None)
    before = set(os.listdir(folder))
    descriptor = nameless_file(folder)
    try:
        os.write(descriptor, b"abc")
        assert os.pread(descriptor, 3, 0) == b"abc"
        assert os.fstat(descriptor).st_nlink == 0
        assert {name for name in set(os.listdir(folder)) - before if name.startswith("headgate")} == set()
    finally:
        os.close(descriptor)


def test_only_a_local_folder_takes_files_of_the_exchange() -> None:
    assert local_folder("/some/where") == "/some/where"
    assert local_folder("hdfs://host/rows") == local_folder(None)
