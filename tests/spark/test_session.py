from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.spark.session import build_session, prepare
from headgate.spark.spark_deployment import SparkDeployment
from tests.spark.conftest import SOURCES, run_script
from tests.spark_session import SharedSpark

pytestmark = pytest.mark.timeout(300)


def test_a_built_session_is_silent_and_leaves_no_files(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
from headgate.spark.dataframe import spill
from headgate.spark.gang import SparkGang, barrier_tasks
from headgate.spark.session import build_session, prepare
import queue

spark = build_session("local[2]", "quiet")
ended = queue.Queue()

def main(payload, index, host):
    import headgate.config
    if index == 1:
        raise ValueError("what Spark would log on many pages")

SparkGang(spark, barrier_tasks(spark, main, b"", 2, None), 2, lambda *reason: ended.put(reason))
print(ended.get()[1].splitlines()[-1])
print(spill(spark.range(3), None)().num_rows)
""",
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ValueError: what Spark would log on many pages\n3\n", "", 0)
    assert list(tmp_path.iterdir()) == []


#: A job in a session that the user built, and one in a session of ours. The JVM keeps the settings of its first one.
BOTH = """
import headgate as hg
from headgate.spark.session import build_session
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
env = hg.StreamEnvironment(spark, parallelism=1)
print([row["n"] + 1 for row in env.from_source(hg.sources.iterable([[{"n": 1}]])).collect().to_pylist()])
assert "PYTHONSAFEPATH" not in spark.sparkContext.environment, "it is for our functions alone"
spark.stop()
spark = build_session("local[1]", "planted")
print(spark.sparkContext.parallelize([1], 1).map(lambda n: n + 1).collect())
"""


def test_nothing_is_imported_from_the_working_folder(tmp_path: Path) -> None:
    """Spark starts its Python workers in the working folder with `-m`, which puts that folder first on `sys.path`."""
    working, program = tmp_path / "working", tmp_path / "program"
    for folder in (working, program):
        folder.mkdir()
    for name in ("random", "json", "pyspark", "headgate"):
        (working / f"{name}.py").write_text(f"open({str(tmp_path / 'told')!r}, 'a').write(__name__)")
    (program / "script.py").write_text(f"import sys; sys.path.append({str(SOURCES)!r})\n{BOTH}")
    done = subprocess.run([sys.executable, program / "script.py"], capture_output=True, text=True, timeout=280,
                          check=False, cwd=working, env={**os.environ, "TMPDIR": str(tmp_path)})  # fmt: skip
    told = tmp_path / "told"
    assert not told.exists(), told.read_text()
    assert (done.stdout, done.returncode) == ("[2]\n[2]\n", 0), done.stderr


#: A program that prints why Spark does not start.
BROKEN = """
from headgate.errors import ConfigError
from headgate.spark.session import build_session
try:
    build_session("local[1]", "broken")
except ConfigError as error:
    print(error)
"""


def test_a_java_that_does_not_start_is_explained(tmp_path: Path) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'no Java today' >&2\nexit 1\n")
    java.chmod(0o755)
    done = run_script(tmp_path, BROKEN, JAVA_HOME=str(tmp_path / "java"))
    assert "Spark's JVM did not start; it needs Java 17 or newer. It said:" in done.stdout
    assert "no Java today" in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["java"]


@pytest.mark.parametrize(
    ("home", "where"),
    [
        ("", "JAVA_HOME is not set, and PATH has no java"),
        ("/no/such/folder", "JAVA_HOME=/no/such/folder has no bin/java"),
    ],
)
def test_a_machine_without_java_is_explained(tmp_path: Path, home: str, where: str) -> None:
    done = run_script(tmp_path, BROKEN, JAVA_HOME=home, PATH="/no/such/path" if not home else os.environ["PATH"])
    assert done.stdout == (
        f"Spark needs Java, and none was found: {where}; install Java 17 (Debian and Ubuntu: "
        "openjdk-17-jre-headless, Homebrew: openjdk@17), or set JAVA_HOME to the folder that it is in\n"
    ), done.stderr
    assert list(tmp_path.iterdir()) == []


class ConnectSession:
    """A session whose context raises, as that of Spark Connect does."""

    @property
    def sparkContext(self) -> Any:
        from pyspark.errors import PySparkAttributeError

        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sc"})


def test_sessions_without_a_context_are_refused() -> None:
    connect: Any = ConnectSession()
    with pytest.raises(ConfigError, match=r"Spark Connect session cannot run jobs: .* Use a classic session"):
        SparkDeployment(connect)
    stopped: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(ConfigError, match="has been stopped; build a new one"):
        SparkDeployment(stopped)


def test_the_users_interpreter_for_a_cluster_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    running = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    for master, expected in {"spark://host:7077": "/opt/python", "local-cluster[2,1,1024]": sys.executable}.items():
        context = SimpleNamespace(_jsc=running, master=master, pythonExec="/opt/python", environment={})
        session: Any = SimpleNamespace(sparkContext=context)
        prepare(session)
        assert context.pythonExec == expected


def test_a_second_session_can_follow_the_first(shared_spark: SharedSpark) -> None:
    shared_spark.stop()
    for master in ("local[1]", "local[2]"):
        spark = build_session(master, "headgate tests")
        assert spark.sparkContext.master == master
        assert spark.range(5).count() == 5
        spark.stop()
