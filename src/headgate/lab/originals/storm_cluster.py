"""Apache Storm in local mode, under the load of `storm`. Maven fetches its jars on first use."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.bench.peers import maven
from headgate.errors import HeadgateError
from headgate.lab.originals.stop_and_go import StopAndGoLoad, Trace

_PROGRAM: Final = Path(__file__).parent / "storm"
#: Seconds that Storm may take to start and to compile, besides the load.
_STARTS: Final = 180.0
#: Options of newer versions of Java without which Storm's libraries do not run.
_JAVA: Final = (
    "-Xmx512m",
    "-Djava.net.preferIPv4Stack=true",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.util", "java.nio", "sun.nio.ch")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """A version of Storm, and how to run it: options of the topology and of the cluster, main class, Java files."""

    version: str
    artifact: str
    options: Mapping[str, Any]
    cluster: Mapping[str, Any] = field(default_factory=dict)
    main: str = "StormLoad"
    sources: tuple[str, ...] = ("StormLoad.java",)

    def run(self, load: StopAndGoLoad) -> Trace:
        """Run the load. Raises HeadgateError if Storm or Java are missing, or if Storm fails."""
        try:
            jars = maven.jars(f"storm-{self.version}", f"org.apache.storm:{self.artifact}:{self.version}", _UNUSED)
        except maven.NoJars as error:
            raise HeadgateError(error.message) from None
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}:{jars}/*"
            self._prepare(Path(folder), path)
            options = [f"{name}={_text(value)}" for name, value in self.options.items()]
            numbers = [str(number) for number in (load.rate, load.cost, load.seconds)]
            command = ["java", *_JAVA, f"-Djava.io.tmpdir={folder}", "-cp", path, self.main, folder, *numbers, *options]
            _run(command, folder, _STARTS + load.seconds)
            return Trace.read(Path(folder))

    def _prepare(self, folder: Path, path: str) -> None:
        if shutil.which("javac") is None:
            raise HeadgateError("Storm's program needs a JDK: there is no javac")
        sources = [str(_PROGRAM / source) for source in self.sources]
        _run(["javac", "-nowarn", "-Xlint:none", "-cp", path, "-d", str(folder), *sources], str(folder), _STARTS)
        (folder / "storm.yaml").write_text("".join(f"{name}: {_text(value)}\n" for name, value in self.cluster.items()))


#: A library that only Storm's user interface needs. It is not in Maven Central.
_UNUSED: Final = "ring-cors"


def _text(value: Any) -> str:
    return str(value).lower()


def _run(command: list[str], folder: str, seconds: float) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise HeadgateError(f"{command[0]} for Storm did not end within {seconds:g} s") from None
    if done.returncode:
        raise HeadgateError(
            f"{command[0]} for Storm ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        )
