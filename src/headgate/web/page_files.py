"""The files of the page: fixed, and read once."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def page_files() -> dict[str, tuple[bytes, str]]:
    """Return (content, media type) of each file by its path. The path "/" is the page itself."""
    folder = files("headgate.web")
    found = dict(_read(folder / "page", "/page"))
    found["/"] = found.pop("/page/index.html")
    found["/grafana.json"] = (folder / "grafana.json").read_bytes(), _TYPES[".json"]
    return found


def _read(folder: Traversable, path: str) -> list[tuple[str, tuple[bytes, str]]]:
    found: list[tuple[str, tuple[bytes, str]]] = []
    for each in folder.iterdir():
        name = f"{path}/{each.name}"
        suffix = each.name[each.name.rfind(".") :]
        if each.is_dir():
            found += _read(each, name)
        elif suffix in _TYPES:
            found.append((name, (each.read_bytes(), _TYPES[suffix])))
    return found
