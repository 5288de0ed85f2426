"""The files of the page, without a browser."""

from __future__ import annotations

import colorsys
import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

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


def palettes() -> list[dict[str, tuple[float, float, float]]]:
    """Return the colours of the page by name, red, green and blue from 0 to 1: in the light and in the dark scheme."""
    blocks = re.findall(r":root \{(.*?)\}", (PAGE / "style.css").read_text(), re.DOTALL)
    found = [re.findall(r"--([\w-]+): #(\w\w)(\w\w)(\w\w);", block) for block in blocks]
    return [{name: (int(r, 16) / 255, int(g, 16) / 255, int(b, 16) / 255) for name, r, g, b in each} for each in found]


def luminance(colour: tuple[float, float, float]) -> float:
    """Return the relative luminance of WCAG 2."""
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("share", ["busy", "wait", "hard", "idle", "throttle", "cpu"])
def test_a_share_of_time_is_seen_and_not_taken_for_the_cause(scheme: int, share: str) -> None:
    colours = palettes()[scheme]
    away = abs(colorsys.rgb_to_hsv(*colours[share])[0] - colorsys.rgb_to_hsv(*colours["cause"])[0])
    assert 360 * min(away, 1 - away) > 20
    for behind in ("background", "raised", "cause-tint"):
        darker, lighter = sorted((luminance(colours[share]), luminance(colours[behind])))
        assert (lighter + 0.05) / (darker + 0.05) >= 3, behind
