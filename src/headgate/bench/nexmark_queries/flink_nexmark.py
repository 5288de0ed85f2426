"""Nexmark on Flink SQL, for comparison. Flink, and the jars that read Parquet, are installed on first use."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from headgate.bench.conversation import ChildFailed, ChildProcess
from headgate.bench.nexmark_queries.flink_nexmark_job import QUERIES
from headgate.bench.peers.flink import FLINK, QUERY_TIMEOUT
from headgate.bench.peers.maven import UnknownJars, check
from headgate.bench.peers.peer_environment import cache

#: Seconds that Maven may take to fetch a jar.
_PATIENCE = 180.0


class FlinkNexmark:
    """A running Flink that has Nexmark's queries. Use it as a context manager. Raises ChildFailed if it cannot run."""

    queries = frozenset(QUERIES)

    def __init__(self, parallelism: int, say: Callable[[str], None]) -> None:
        job = Path(__file__).with_name("flink_nexmark_job.py")
        jars = ":".join(map(str, [_parquet_jar(), *_hadoop_jars()]))
        self._process = ChildProcess("Flink", [str(FLINK.python(say)), str(job), str(parallelism), jars])

    @property
    def pid(self) -> int:
        """The number of the process; the JVM is its child."""
        return self._process.pid

    def seconds(self, query: str, folder: Path) -> float:
        """Return the seconds that `query` takes for the files in `folder`, start-up included. Raises ChildFailed."""
        return float(self._process.ask({"query": query, "folder": str(folder)}, QUERY_TIMEOUT)["seconds"])

    def __enter__(self) -> FlinkNexmark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.close()


def _parquet_jar() -> Path:
    name = f"flink-sql-parquet-{FLINK.version}.jar"
    jar = cache() / name
    if jar.exists():
        return jar
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise ChildFailed(f"Flink reads Parquet with {name}; to fetch it, put mvn (Maven) and java in PATH")
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        artifact = f"-Dartifact=org.apache.flink:flink-sql-parquet:{FLINK.version}"
        command = ["mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        if done.returncode:
            raise ChildFailed(f"Maven cannot fetch {name}: {(done.stdout + done.stderr)[-500:]}")
        try:
            check(Path(folder), f"flink-sql-parquet-{FLINK.version}")
        except UnknownJars as error:
            raise ChildFailed(error.message) from None
        Path(folder, name).rename(jar)
    return jar


def _hadoop_jars() -> list[Path]:
    """Return Hadoop's classes, which Flink needs to read Parquet. PySpark has them."""
    spec = importlib.util.find_spec("pyspark")
    folders = [] if spec is None else spec.submodule_search_locations or []
    found = [jar for folder in folders for jar in sorted(Path(folder, "jars").glob("hadoop-client-*.jar"))]
    if not found:
        raise ChildFailed("Flink reads Parquet with Hadoop's classes, and there is no PySpark that has them")
    return found
