"""A PostgreSQL server for tests, on a free port of loopback, with its data in a temporary folder.

Tests take the server that is installed. If there is none, they fetch Debian's packages and unpack them into the cache
of Headgate's downloads, which needs no rights. Where neither works, the tests of PostgreSQL are skipped, and say so.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from headgate.demo.data import cache_folder

#: The ports of the running servers.
PORTS: set[int] = set()
#: The processes of the running servers.
PIDS: set[int] = set()
PASSWORD: Final = "very-secret-9"
#: Seconds that the server may take to start or to end, and apt to fetch the packages.
_PATIENCE: Final = 120.0
#: Libraries that the server loads only to compile queries, or that take the place of others.
_NEEDLESS: Final = ("libllvm", "libelogind")
#: Tests check what a crash of the server does, and none of them cuts its power.
_OPTIONS: Final = ("fsync=off", "shared_buffers=16MB", "max_connections=50", "listen_addresses=127.0.0.1")


class NoPostgres(Exception):
    """The server cannot run on this machine."""


def programs() -> Path:
    """Return the folder of the programs `postgres` and `initdb`. Raises NoPostgres."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "postgres").exists():
            return folder
    if (found := shutil.which("postgres")) is not None:
        return Path(found).resolve().parent
    if os.getuid() == 0:
        raise NoPostgres("it is not installed; scripts/test-tools installs it")  # unpacked files are of no use to root
    return _unpacked()


def _unpacked() -> Path:
    root = cache_folder() / "postgresql"
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests
        if not root.exists():
            _fetch(root)
    return next(root.glob("usr/lib/postgresql/*/bin"))


def _fetch(root: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoPostgres("it is not installed, and there is no apt to fetch it")
    with tempfile.TemporaryDirectory(dir=root.parent) as unfinished:
        _lines("apt-get", "download", *_packages(), folder=unfinished)
        for package in Path(unfinished).glob("*.deb"):
            _lines("dpkg-deb", "-x", str(package), f"{unfinished}/root")
        Path(unfinished, "root").rename(root)


def _packages() -> list[str]:
    """Return the package of the newest server that apt knows, and of its libraries that are not installed."""
    servers = [name for name in _lines("apt-cache", "pkgnames", "postgresql-") if re.fullmatch(r"postgresql-\d+", name)]
    if not servers:
        raise NoPostgres("apt knows no server; `apt-get update` may help")
    server = max(servers, key=lambda name: int(name.rpartition("-")[2]))
    libraries = _libraries_of(server)
    libraries |= _libraries_of(*libraries)
    installed = set(_lines("dpkg-query", "-W", "-f", "${Package}\\n"))
    return [server, *sorted(libraries - installed)]


def _libraries_of(*packages: str) -> set[str]:
    depends = [line.split()[-1] for line in _lines("apt-cache", "depends", *packages) if " Depends:" in line]
    return {name for name in depends if name.startswith("lib") and not name.startswith(_NEEDLESS)}


def _lines(*command: str, folder: str | None = None) -> list[str]:
    """Run a command, and return the lines that it prints. Raises NoPostgres if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=True,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise NoPostgres(f"{' '.join(command[:2])} failed: {getattr(error, 'stderr', None) or error}") from None
    return done.stdout.splitlines()


class Postgres:
    """A running server. `kill`, `stop` and `start` keep its data and its port."""

    def __init__(self) -> None:
        self._programs = programs()
        # PostgreSQL refuses to run as root.
        self._user: dict[str, Any] = {"user": "nobody", "group": "nogroup"} if os.getuid() == 0 else {}
        self._folder = tempfile.TemporaryDirectory(prefix="headgate-postgres-")
        self._data = Path(self._folder.name, "data")
        self._data.mkdir()
        if self._user:
            for path in (Path(self._folder.name), self._data):
                shutil.chown(path, **self._user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        PORTS.add(self.port)
        password = Path(self._folder.name, "password")
        password.write_text(PASSWORD)
        self._run("initdb", "-D", str(self._data), "-U", "headgate", "-A", "password", f"--pwfile={password}",
                  "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def uri(self) -> str:
        """The URI of the superuser, with its password."""
        return self.uri_of("headgate")

    def uri_of(self, user: str) -> str:
        return f"postgresql://{user}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it takes statements."""
        options = [f"-c{option}" for option in (*_OPTIONS, f"unix_socket_directories={self._folder.name}")]
        with Path(self._folder.name, "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port), *options],
                cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environ(), **self._user,
            )  # fmt: skip
        PIDS.add(self._process.pid)
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = Path(self._folder.name, "log").read_text()
                raise NoPostgres(f"the server does not start: {log_text[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, as an administrator does: it ends all connections."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End the server without any clean-up. When it starts, it recovers from its log."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_PATIENCE)
            PIDS.discard(self._process.pid)
            self._process = None

    def close(self) -> None:
        """End the server, and remove its data."""
        self.crash()
        PORTS.discard(self.port)
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def execute(self, *statements: str) -> None:
        """Execute statements, each in a transaction of its own."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
        return found

    def table(self, columns: str) -> str:
        """Create a table with a name of its own."""
        name = f"table_{uuid.uuid4().hex[:10]}"
        self.execute(f"create table {name} ({columns})")
        return name

    def _answers(self) -> bool:
        from adbc_driver_postgresql import dbapi

        try:
            self.rows("select 1 as one")
        except dbapi.Error:
            return False
        return True

    def _environ(self) -> dict[str, str]:
        root = self._programs.parents[4]  # of usr/lib/postgresql/15/bin
        is_unpacked = str(self._programs).count("/usr/lib/postgresql/") and root != Path("/")
        found = [str(path) for path in root.glob("**/lib/*-linux-gnu")] if is_unpacked else []
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return {**environ, "LD_LIBRARY_PATH": os.pathsep.join(found)} if found else environ

    def _run(self, program: str, *arguments: str) -> None:
        command: Sequence[str] = [str(self._programs / program), *arguments]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=_PATIENCE, check=False,
                              env=self._environ(), **self._user)  # fmt: skip
        if done.returncode:
            raise NoPostgres(f"{program}: {done.stderr[-500:]}")


def postgres_or_skip() -> Postgres:
    """Start a server. Skip the test, aloud, where none can run."""
    try:
        pytest.importorskip("adbc_driver_postgresql")
        return Postgres()
    except NoPostgres as error:
        pytest.skip(f"no PostgreSQL on this machine, so this is not tested: {error}")
