"""Jars of other engines, which Maven fetches into the cache of Headgate's downloads, on first use."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from headgate.bench.peers.peer_environment import cache
from headgate.errors import HeadgateError

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


def jars(name: str, coordinates: str, without: str = "") -> Path:
    """Return the folder `name` with the jars of an artifact, and of all that it needs. Raises NoJars.

    `coordinates` are "group:artifact:version". `without` are groups that are left out, with commas, and all that only
    they need.
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
        Path(unfinished, "jars").rename(folder)
