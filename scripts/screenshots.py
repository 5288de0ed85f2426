#!/usr/bin/env python3
"""Make the pictures of docs/how-to/watch-a-stall.md from a real run of `headgate demo --stall`, in a real Chromium.

    .venv/bin/python scripts/screenshots.py

It needs Chromium (`scripts/test-tools` installs it) and takes some minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "how-to" / "pictures"
#: Seconds of the stall, as in the command on the page.
STALL = 20
#: Milliseconds until the page must show what is awaited.
IN_TIME = 120_000


def main() -> int:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        print("there is no Chromium here: run scripts/test-tools as root", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "headgate.cli", "demo", "--stall", str(STALL)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as demo:
        assert demo.stderr is not None
        address = next(found[1] for line in demo.stderr if (found := re.search(r"its page: (\S+)", line)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            wide = browser.new_page(viewport={"width": 1200, "height": 800})
            narrow = browser.new_page(viewport={"width": 380, "height": 700})
            for page in (wide, narrow):
                page.goto(address)
            shoot(wide, narrow)
            browser.close()
        for line in demo.stderr:
            print(line, end="", file=sys.stderr)
    return demo.returncode


def shoot(wide: Page, narrow: Page) -> None:
    """Take a picture before the stall, two within it, and one after it."""
    expect(wide.locator(".headline").first).to_contain_text("The job has no bottleneck", timeout=IN_TIME)
    save(wide, "stall-before")
    expect(wide.locator(".vertex.cause .operator.cause")).to_contain_text("gate_agents", timeout=IN_TIME)
    said = re.compile("Falls behind.*with_seats.*waits for", re.DOTALL)
    expect(wide.locator(".headline").first).to_contain_text(said, timeout=IN_TIME)
    save(wide, "stall-cause")
    narrow.bring_to_front()
    expect(narrow.locator(".headline").first).to_contain_text(said, timeout=IN_TIME)
    save(narrow, "stall-phone")
    wide.bring_to_front()
    expect(wide.locator(".headline").first).to_contain_text("The job has no bottleneck", timeout=IN_TIME)
    save(wide, "stall-after")


def save(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
