"""A blob store of Azure on loopback: Azurite, Microsoft's emulator, which npm installs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from pyarrow import fs

from headgate.demo.data import cache_folder

#: The ports of the servers that ran. Connections to them stay open in pools of Azure's library.
PORTS: set[int] = set()
#: The processes of the running servers.
PIDS: set[int] = set()
ACCOUNT: Final = "devstoreaccount1"
#: The key that Azurite publishes for its only account.
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
#: Seconds that the server may take to start or to end.
_PATIENCE: Final = 120.0


def _program() -> str | None:
    installed = cache_folder() / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return shutil.which("azurite-blob") or (str(installed) if installed.exists() else None)


class AzureService:
    """A running server, with an empty account."""

    def __init__(self, program: str, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        PORTS.add(port)
        command = [program, "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", str(folder)]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)], stdout=log, stderr=log
            )
        PIDS.add(self._process.pid)
        self._wait_for(port)
        authority = f"127.0.0.1:{port}"
        self.filesystem = fs.AzureFileSystem(
            ACCOUNT, account_key=_KEY, blob_storage_authority=authority, blob_storage_scheme="http",
            dfs_storage_authority=authority, dfs_storage_scheme="http",
        )  # fmt: skip

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(_PATIENCE)
        PIDS.remove(self._process.pid)

    def _wait_for(self, port: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def azure_or_skip(folder: Path) -> AzureService:
    """Start a server. Skip the test, aloud, where none can run."""
    pytest.importorskip("pyarrow._azurefs")
    if (program := _program()) is None:
        where = os.path.join("$HEADGATE_CACHE or ~/.cache/headgate", "azurite")
        pytest.skip(f"no Azurite, so abfs:// is not tested: `npm install azurite` in {where}, or scripts/test-tools")
    return AzureService(program, folder)
