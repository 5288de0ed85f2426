"""Code on a page, run as a reader would run it.

- `python` blocks of a page are one program, run in a folder of its own. A `text` block right below one is what that
  block prints; `...` in it stands for anything, as in doctest.
- A `python` block below `<!-- file: NAME -->` is that file.
- `console` blocks have commands behind `$ `, each with what it prints to standard output. They run after the program.
- `<!-- hidden: ... -->` is Python that the page does not show, for what its examples take for granted.
- Other blocks (`sh`, `text` elsewhere) are not run.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.programs import needs_a_process, run_here

_BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n\n?)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$|^<!-- hidden:\n(?P<hidden>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", re.MULTILINE)
#: Between what two blocks print.
_CUT = "\0"


@dataclass
class Page:
    """The code of a page: its program, what each of its blocks prints (None: anything), files and commands."""

    program: str = ""
    printed: list[str | None] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    commands: list[tuple[str, str]] = field(default_factory=list)


def read(text: str) -> Page:
    """The page's code. Lines of the program have the numbers that they have on the page."""
    page = Page()
    last_end = -1
    for block in _BLOCK.finditer(text):
        kind, code = block["kind"], block["text"]
        if block["hidden"] is not None:
            kind, code = "python", block["hidden"]
        if kind == "python" and block["file"]:
            page.files[block["file"]] = code
        elif kind == "python":
            above = text.count("\n", 0, block.start("text" if block["hidden"] is None else "hidden"))
            page.program += "\n" * (above - page.program.count("\n")) + code + f"print({_CUT!r}, end='')"
            page.printed.append(None)
            last_end = block.end()
        elif kind == "text" and page.printed and text[last_end : block.start()].strip() == "" and last_end >= 0:
            page.printed[-1] = code
        elif kind == "console":
            page.commands += _COMMAND.findall(code)
    return page


def run(page: Page, folder: Path, capture: pytest.CaptureFixture[str] | None = None) -> None:
    """Run the page's code there. Raises AssertionError where it fails, or prints something else.

    With `capture`, a program that needs no process of its own runs in this one.
    """
    for name, code in page.files.items():
        (folder / name).write_text(code)
    if page.program:
        (folder / "page.py").write_text(page.program)
        if capture is not None and not page.files and not needs_a_process(page.program):
            out, _ = run_here(folder / "page.py", folder, capture)
        else:
            done = _run([sys.executable, "page.py"], folder)
            assert done.returncode == 0, done.stderr
            out = done.stdout
        printed = out.split(_CUT)[:-1]
        for got, wanted in zip(printed, page.printed, strict=True):
            assert wanted is None or _agree(got, wanted), f"printed:\n{got}\nthe page says:\n{wanted}"
    for command, wanted in page.commands:
        done = _run(["bash", "-c", command], folder)
        assert _agree(done.stdout, wanted), (
            f"{command}\nprinted:\n{done.stdout}\nthe page says:\n{wanted}\n{done.stderr}"
        )


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[1]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(root / "src")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=220, check=False
    )


def _agree(got: str, wanted: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, got, doctest.ELLIPSIS)
