"""Jars of other engines, which Maven fetches into the cache of Headgate's downloads, on first use.

The file `jars.sha256` has the SHA-256 sums of all jars, as `sha256sum` prints them. Jars with other sums are not used.
For a new version, compare the jars' sums with those that Maven Central publishes, and write them into the file:
`cd ~/.cache/headgate && sha256sum NAME/*.jar`.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from headgate.bench.peers.peer_environment import cache
from headgate.errors import HeadgateError

_SUMS: Final = Path(__file__).with_name("jars.sha256")
_EXCLUSION: Final = "<exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion>"
#: Seconds that Maven may take.
_PATIENCE: Final = 180.0
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>headgate</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions>{}</exclusions>
  </dependency></dependencies>
</project>
"""


class NoJars(HeadgateError):
    """This machine cannot fetch the jars. The message says why."""


class UnknownJars(HeadgateError):
    """The jars that Maven has fetched are not exactly those of `jars.sha256`. They are removed, and do not run."""


def jars(name: str, coordinates: str, without: str = "") -> Path:
    """Return the folder `name` with the jars of an artifact, and of all that it needs. Raises NoJars and UnknownJars.

    `coordinates` are "group:artifact:version". `without` names groups, separated by commas. They are left out, with all
    that only they need.
    """
    folder = cache() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests
        if not folder.exists():
            _fetch(folder, coordinates, without)
    return folder


def _fetch(folder: Path, coordinates: str, without: str) -> None:
    if shutil.which("mvn") is None:
        raise NoJars(f"there is no Maven (mvn) to fetch {coordinates} into {folder}")
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        exclusions = "".join(_EXCLUSION.format(group) for group in without.split(",") if group)
        Path(unfinished, "pom.xml").write_text(_POM.format(*coordinates.split(":"), exclusions))
        chosen = ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}/jars"]
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", *chosen]
        done = subprocess.run(command, cwd=unfinished, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        if done.returncode:
            raise NoJars(f"Maven cannot fetch {coordinates}: {(done.stdout + done.stderr)[-500:]}")
        check(Path(unfinished, "jars"), name=folder.name)
        Path(unfinished, "jars").rename(folder)


def check(folder: Path, name: str, sums: Path = _SUMS) -> None:
    """Check that a folder has the jars of the set `name`, and no other file. `sums` has the sums of all sets.

    Raises UnknownJars.
    """
    expected = _expected(name, sums)
    if not expected:
        raise UnknownJars(f"{sums.name} has no sums for {name}, so its jars are not used; {sums} is the file to add to")
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
    for jar in sorted({*expected, *found}):
        if jar not in found:
            raise UnknownJars(f"{name}: Maven has not fetched {jar}, which {sums.name} lists; no jar is used")
        if jar not in expected:
            raise UnknownJars(f"{name}: Maven has fetched {jar}, which {sums.name} does not list; no jar is used")
        if found[jar] != expected[jar]:
            raise UnknownJars(
                f"{name}: {jar} has the SHA-256 {found[jar]}, and {sums.name} has {expected[jar]}: the jar is another "
                "one than before; no jar is used. If Maven's own cache has it (~/.m2/repository), remove it there"
            )


def are_known(name: str) -> bool:
    """Return whether `jars.sha256` has the sums of the jars with this name."""
    return bool(_expected(name, _SUMS))


def _expected(name: str, sums: Path) -> dict[str, str]:
    """Return the sums of a set of jars by their file names."""
    lines = (line.split(maxsplit=1) for line in sums.read_text().splitlines())
    return {Path(path).name: digest for digest, path in lines if path.partition("/")[0] == name}
