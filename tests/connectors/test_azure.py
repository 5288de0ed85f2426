"""Files of Azure: sources read them from Azurite; sinks and checkpoints refuse them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import headgate as hg
from headgate import filesystems
from tests.azure_service import ACCOUNT, AzureService, azure_or_skip
from tests.runtime.jobs import eventually

#: The forms of a URI that `pyarrow.fs` knows, for the folder `trips` in the container `data`.
FORMS = [
    f"abfs://data@{ACCOUNT}.dfs.core.windows.net/trips",
    f"abfss://data@{ACCOUNT}.dfs.core.windows.net/trips",
    f"abfs://{ACCOUNT}.blob.core.windows.net/data/trips",
    f"abfs://{ACCOUNT}@data/trips",
]
N = pa.schema({"n": pa.int64()})


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureService]:
    service = azure_or_skip(tmp_path_factory.mktemp("azurite"))
    service.filesystem.create_dir("data")
    yield service
    service.close()


@pytest.fixture
def azure(service: AzureService, monkeypatch: pytest.MonkeyPatch) -> AzureService:
    """The server, to which all URIs of Azure lead. It takes a key: the login of URIs needs Microsoft's servers."""

    def from_uri(uri: str) -> tuple[fs.FileSystem, str]:
        filesystem, root = fs.FileSystem.from_uri(uri)
        return service.filesystem if isinstance(filesystem, fs.AzureFileSystem) else filesystem, root

    shim = SimpleNamespace(**{**vars(fs), "FileSystem": SimpleNamespace(from_uri=from_uri)})
    monkeypatch.setattr(filesystems, "fs", shim)
    return service


def put(azure: AzureService, path: str, text: str) -> None:
    with azure.filesystem.open_output_stream(path) as stream:
        stream.write(text.encode())


def environment() -> hg.StreamEnvironment:
    return hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))


def numbers(source: hg.Source) -> list[Any]:
    return sorted(environment().from_source(source).collect().column("n").to_pylist())


def test_sources_read_files_of_azure(azure: AzureService) -> None:
    for number in range(3):
        pq.write_table(
            pa.table({"n": [number, number + 10]}), f"data/trips/{number}.parquet", filesystem=azure.filesystem
        )
        put(azure, f"data/trips/{number}.jsonl", f'{{"n": {number}}}\n')
    for form in FORMS:
        assert numbers(hg.sources.parquet(f"{form}/*.parquet")) == [0, 1, 2, 10, 11, 12]
        assert numbers(hg.sources.json_lines(f"{form}/2.jsonl", schema=N)) == [2]
    with pytest.raises(hg.SourceError, match="trips/none.parquet"):
        hg.sources.parquet(f"{FORMS[0]}/none.parquet")


def test_a_watched_folder_of_azure(azure: AzureService) -> None:
    put(azure, "data/live/1.jsonl", '{"n": 1}\n')
    seen, env = hg.sinks.collect(), environment()
    env.from_source(
        hg.sources.files(
            f"abfs://data@{ACCOUNT}.dfs.core.windows.net/live/*.jsonl",
            format="json_lines",
            schema=N,
            watch=True,
            interval="10 ms",
        )
    ).sink_to(seen)
    job = env.execute_async()
    eventually(lambda: seen.to_table().num_rows == 1)
    put(azure, "data/live/2.jsonl", '{"n": 2}\n')
    eventually(lambda: seen.to_table().num_rows == 2)
    job.cancel()


@pytest.mark.parametrize("form", FORMS)
def test_sinks_and_checkpoints_refuse_azure(form: str) -> None:
    with pytest.raises(hg.SinkError, match="each file visible in one step, which it cannot do with abfs"):
        hg.sinks.parquet(form)
    env = hg.StreamEnvironment(config=hg.Config(checkpoint_dir=form))
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.null())
    with pytest.raises(hg.ConfigError, match="abfs cannot create a file only if it does not exist"):
        env.execute()
