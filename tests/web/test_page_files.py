"""The files of the page, without a browser."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from pathlib import Path

from tests.web.conftest import Serve
from tests.web.fake_job import slow_job

PAGE = Path(str(files("headgate.web") / "page"))


def test_libraries_are_unchanged_and_have_their_licences() -> None:
    noted = re.findall(
        r"^([0-9a-f]{64})  (\S+) .* \((\S+)\)$", (PAGE / "vendor/VENDORED.txt").read_text(), re.MULTILINE
    )
    assert {name for _, name, _ in noted} == {
        path.name for path in (PAGE / "vendor").iterdir() if path.suffix in {".js", ".css"}
    }
    for checksum, name, licence in noted:
        assert hashlib.sha256((PAGE / "vendor" / name).read_bytes()).hexdigest() == checksum
        assert "Permission is hereby granted" in (PAGE / "vendor" / licence).read_text()


def test_every_file_that_the_page_names_is_served(serve: Serve) -> None:
    served = serve(slow_job())
    html = served.get("/").body.decode()
    named = set(re.findall(r'(?:src|href)="(/[^"]+)"', html))
    for path in PAGE.glob("*.js"):
        named |= {f"/page/{name}" for name in re.findall(r'from "\./([\w.]+)"', path.read_text())}
    assert len(named) > 10
    for path in named:
        assert served.get(path).status == 200, path


def test_nothing_is_fetched_from_elsewhere_or_read_as_html() -> None:
    for path in [*PAGE.glob("*.js"), *PAGE.glob("*.css"), PAGE / "index.html"]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|outerHTML|\beval\b|style=\"", text), path.name
