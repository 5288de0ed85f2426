"""The site builds without a warning, so links and anchors are good, and its pages fetch nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# One process of tests builds the site.
pytestmark = pytest.mark.xdist_group("site")

ROOT = Path(__file__).parents[2]
STRICT = ("--fail-on-warning", "--keep-going", "--fresh-env", "--quiet")


def _build(root: Path, built: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", *STRICT, "--conf-dir", str(root / "docs"), str(root), str(built)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    done = _build(ROOT, built)
    assert done.returncode == 0, done.stderr
    return built


def test_every_page_is_there(site: Path) -> None:
    pages = [path.relative_to(ROOT).with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 20
    assert [str(page) for page in pages if not (site / page).is_file()] == []
    assert (site / "index.html").is_file()


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']+""")
    found = {str(page.relative_to(site)): fetched.findall(page.read_text()) for page in site.rglob("*.html")}
    assert {page: links for page, links in found.items() if links} == {}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert re.findall(r"""(?:@import|url\()\s*["']?(?:https?:)?//[^)]+""", styles) == []


def test_a_broken_link_and_a_broken_anchor_fail_the_build(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    for name in ("conf.py", "_static", "_templates"):
        (root / "docs" / name).symlink_to(ROOT / "docs" / name)
    (root / "docs" / "index.md").write_text("# Index\n\n- [other](other.md)\n")
    (root / "docs" / "other.md").write_text("# Other\n\n[no page](gone.md), [no place](index.md#gone)\n")
    done = _build(root, tmp_path / "built")
    assert done.returncode == 1
    assert "'gone.md'" in done.stderr
    assert "local id not found in doc 'docs/index': 'gone'" in done.stderr


def test_links_of_the_readme_are_good() -> None:
    """It is no page of the site. The site knows the anchors of pages, so the readme has none."""
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
    local = [link for link in links if "://" not in link]
    assert len(local) > 5
    assert [link for link in local if not (ROOT / link).is_file()] == []
