"""Options of the Java programs in tests, and an archive of the classes that Spark loads.

With the archive a Spark program starts with 60 % of the CPU seconds. `python -m tests.java_classes` writes it once for
each version of Java and PySpark; `make test` runs that. Without the archive tests start Java more slowly.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import zlib
from importlib import metadata
from pathlib import Path

#: Java programs in tests live for seconds: optimized code, a parallel garbage collector and the verification of Spark's
#: code cost more than they gain.
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
#: Seconds that Java may take to write the archive.
PATIENCE = 120


def options() -> str:
    """Return the value of JDK_JAVA_OPTIONS, with the archive if it is there.

    Java does without it where other jars are loaded. It would say so on standard output, which Spark's scripts read.
    """
    archive = _archive()
    return f"{OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else OPTIONS


def _archive() -> Path:
    """Return the path of the archive, which depends on the versions of Java and PySpark."""
    home = os.environ.get("JAVA_HOME")
    java = Path((f"{home}/bin/java" if home else shutil.which("java")) or "java").resolve()
    changed = java.stat().st_mtime_ns if java.exists() else 0
    key = zlib.crc32(f"{java} {changed} {metadata.version('pyspark')}".encode())
    return Path(sys.prefix) / f"spark-{key:08x}.jsa"


def _write(archive: Path) -> None:
    """Run a small Spark program; Java writes the classes that it has loaded when it ends."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        unfinished = Path(folder, "classes.jsa")
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["JDK_JAVA_OPTIONS"] = f"{OPTIONS} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        rows = spark.range(0, 100, 1, 2).repartition(2).mapInArrow(lambda batches: batches, "id long")
        rows.groupBy("id").count().write.parquet(f"{folder}/rows")
        java = spark.sparkContext._gateway.proc
        spark.stop()
        java.stdin.close()
        java.wait(PATIENCE)
        unfinished.rename(archive)


if __name__ == "__main__":
    if not _archive().exists():
        _write(_archive())
