"""Peers are installed from wheels that match known hashes; no code of a source archive runs."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from headgate.bench.conversation import ChildFailed
from headgate.bench.peers.bytewax import BYTEWAX
from headgate.bench.peers.flink import FLINK
from headgate.bench.peers.peer_environment import PeerEnvironment, install


@pytest.mark.parametrize(("peer", "package"), [(FLINK, "apache-flink"), (BYTEWAX, "bytewax")], ids=["flink", "bytewax"])
def test_every_package_of_a_peer_is_pinned_by_hashes(peer: PeerEnvironment, package: str) -> None:
    lines = [line for line in peer.requirements.read_text().splitlines() if not line.startswith("#")]
    packages = re.findall(r"^([a-z0-9-]+)==(\S+)((?:\s*\\\n\s+--hash=sha256:[0-9a-f]{64})+)$", "\n".join(lines), re.M)
    assert len(packages) == sum("==" in line for line in lines) > 2
    assert (package, peer.version) in [found[:2] for found in packages]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip searches for packages, and the folder into which it installs."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "TARGET": str(tmp_path / "installed")}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


def wheel(folder: Path, name: str) -> str:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_wheel_is_installed_by_its_hash_alone(index: Path, tmp_path: Path) -> None:
    digest = wheel(index, "known")
    wanted = tmp_path / "wanted.txt"
    wanted.write_text(f"known==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ChildFailed, match="someone may have tampered with them"):
        install(sys.executable, wanted)
    wanted.write_text("known==1.0\n")
    with pytest.raises(ChildFailed, match="Hashes are required in --require-hashes mode"):
        install(sys.executable, wanted)
    assert not (tmp_path / "installed").exists()
    wanted.write_text(f"known==1.0 --hash=sha256:{digest}\n")
    install(sys.executable, wanted)
    assert (tmp_path / "installed" / "known.py").exists()


def test_a_source_archive_is_not_built(index: Path, tmp_path: Path) -> None:
    ran = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()
    path = index / "evil-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("evil-1.0/setup.py")
        member.size = len(ran)
        archive.addfile(member, io.BytesIO(ran))
    wanted = tmp_path / "wanted.txt"
    wanted.write_text(f"evil==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    with pytest.raises(ChildFailed, match="No matching distribution found for evil"):
        install(sys.executable, wanted)
    assert not (tmp_path / "ran").exists()
