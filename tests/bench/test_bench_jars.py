"""Jars from Maven are used only if their SHA-256 sums are those of Headgate's file."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.bench.conversation import ChildFailed
from headgate.bench.peers import kafka_broker, maven, spark_kafka
from headgate.bench.peers.flink import FLINK
from headgate.bench.peers.maven import UnknownJars, check
from headgate.bench.peers.peer_environment import cache
from headgate.lab.storm_originals import PAIRS

SUMS = Path(maven.__file__).with_name("jars.sha256")
JARS = {"engine-1.0.jar": b"the engine", "logging-2.0.jar": b"what it needs"}


def put_jars(folder: Path) -> Path:
    folder.mkdir()
    for name, content in JARS.items():
        (folder / name).write_bytes(content)
    return folder


def sums_of(folder: Path, name: str) -> str:
    return "".join(
        f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {name}/{jar.name}\n" for jar in sorted(folder.iterdir())
    )


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    file = tmp_path / "jars.sha256"
    file.write_text(f"{'0' * 64}  engine-0.9/engine-0.9.jar\n" + sums_of(put_jars(tmp_path / "known"), "engine-1.0"))
    return file


def test_known_jars_are_used(tmp_path: Path, sums: Path) -> None:
    check(put_jars(tmp_path / "jars"), "engine-1.0", sums)


def change(folder: Path) -> None:
    (folder / "logging-2.0.jar").write_bytes(b"something else")


def remove(folder: Path) -> None:
    (folder / "logging-2.0.jar").unlink()


def add(folder: Path) -> None:
    (folder / "more-1.0.jar").touch()


def leave(folder: Path) -> None:
    """The jars are of another version."""


@pytest.mark.parametrize(
    ("damage", "name", "says"),
    [
        (
            change,
            "engine-1.0",
            r"engine-1.0: logging-2.0.jar has the SHA-256 [0-9a-f]{64}, and jars.sha256 has [0-9a-f]",
        ),
        (remove, "engine-1.0", "Maven has not fetched logging-2.0.jar, which jars.sha256 lists"),
        (add, "engine-1.0", "Maven has fetched more-1.0.jar, which jars.sha256 does not list"),
        (leave, "engine-1.1", "jars.sha256 has no sums for engine-1.1"),
    ],
    ids=["changed", "missing", "one more", "another version"],
)
def test_other_jars_are_refused(
    tmp_path: Path, sums: Path, damage: Callable[[Path], None], name: str, says: str
) -> None:
    folder = put_jars(tmp_path / "jars")
    damage(folder)
    with pytest.raises(UnknownJars, match=says):
        check(folder, name, sums)


@pytest.fixture
def fake_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `mvn` that puts the jars of a folder where the real one would, and Headgate's cache below `tmp_path`."""
    jars, program = put_jars(tmp_path / "central"), tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nfor argument; do case $argument in -DoutputDirectory=*) to=${argument#*=} ;; esac; done\n"
        f'cp -r "{jars}" "$to"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    return jars


def test_a_changed_jar_never_comes_into_the_cache(tmp_path: Path, fake_maven: Path) -> None:
    name = f"kafka-{kafka_broker.VERSION}"
    for line in SUMS.read_text().splitlines():
        if f" {name}/" in line:
            (fake_maven / line.rpartition("/")[2]).write_bytes(b"not Kafka")
    for jar in JARS:
        (fake_maven / jar).unlink()
    with pytest.raises(UnknownJars, match=rf"{name}: .* has the SHA-256 .*; no jar is used"):
        maven.jars(name, "org.apache.kafka:kafka_2.13:4.1.0")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"{name}.lock"]


def test_the_file_has_the_sums_of_all_sets() -> None:
    """A set that Maven does not have everywhere, such as the Kafka source of a new Spark, may lack its sums."""
    lines = [re.fullmatch(r"([0-9a-f]{64})  ([^/]+)/([^/]+\.jar)", line) for line in SUMS.read_text().splitlines()]
    assert all(lines)
    sets = Counter(line[2] for line in lines if line is not None)
    storms = {f"storm-{pair.original.version}" for pair in PAIRS.values()}
    assert {f"kafka-{kafka_broker.VERSION}", f"flink-sql-parquet-{FLINK.version}", *storms} <= sets.keys()


@pytest.mark.parametrize("name", sorted({line.split()[1].partition("/")[0] for line in SUMS.read_text().splitlines()}))
def test_the_jars_of_this_machine_are_known(name: str) -> None:
    folder = cache() / name
    if not folder.exists():
        pytest.skip(f"{name} is not in the cache of downloads: nothing has needed it yet")
    check(folder, name)


@pytest.fixture
def new_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark for which Maven has no jars yet."""
    monkeypatch.setattr("importlib.metadata.version", lambda package: "9.8.7")


def put_script(root: Path, commands: str) -> Path:
    """Make a checkout with a `scripts/compat` of these commands. Return a file in its package."""
    script = root / "scripts" / "compat"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\n{commands}\n")
    script.chmod(0o755)
    return root / "src" / "headgate" / "file.py"


def test_the_installed_spark_is_taken_if_its_jars_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda package: "4.2.1")
    assert spark_kafka.installed_spark(tmp_path, print) == (sys.executable, "4.2.1")


@pytest.mark.usefixtures("new_spark")
def test_an_environment_runs_spark_if_the_installed_one_has_no_jars(tmp_path: Path) -> None:
    """The line that the environment's Python prints is the last one."""
    inside, said = put_script(tmp_path, 'echo "$1 $2 $3"; echo /the/python 4.2.1'), list[str]()
    assert spark_kafka.installed_spark(inside, said.append) == ("/the/python", "4.2.1")
    assert [line for line in said if "spark-4.2" in line] == said
    assert len(said) == 1


@pytest.mark.usefixtures("new_spark")
def test_without_an_environment_spark_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match="the jars for Spark 9.8.7 are not known, and there is no checkout"):
        spark_kafka.installed_spark(tmp_path / "file.py", print)
    inside = put_script(tmp_path, 'echo "no Python 3.11 found" >&2; exit 1')
    with pytest.raises(ChildFailed, match="scripts/compat cannot build spark-4.2: no Python 3.11 found"):
        spark_kafka.installed_spark(inside, print)
