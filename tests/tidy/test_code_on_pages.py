"""Every `python` and `console` block of a hand-written page runs, and prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.page_blocks import Page, read, run

ROOT = Path(__file__).parents[2]
#: Signatures, not programs.
GENERATED = {"docs/reference/api.md"}
#: Their programs need a server: tests/kafka/test_kafka_page.py, tests/connectors/test_file_sinks_on_s3.py and
#: tests/adbc/test_databases_page.py run them.
WITH_SERVER = {"docs/how-to/kafka.md", "docs/how-to/write-files-to-s3.md", "docs/how-to/databases.md"}
PAGES = {
    str(path.relative_to(ROOT)): read(path.read_text()) for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
}
WITH_CODE = sorted(name for name, page in PAGES.items() if page.program or page.commands)


@pytest.mark.timeout(600)  # some start Spark
@pytest.mark.parametrize("name", sorted({*WITH_CODE} - GENERATED - WITH_SERVER))
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(PAGES[name], tmp_path, capfd)


def test_a_program_keeps_the_lines_of_its_page() -> None:
    page = read(
        "# Title\n\n```python\nx = 1\n```\n\ntext\n\n<!-- hidden:\ny = 2\n-->\n"
        "```python\nprint(x + y)\n```\n\n```text\n3\n```\n"
    )
    assert page.program.splitlines()[3] == "x = 1"
    assert page.program.splitlines()[12] == "print(x + y)"
    assert page.printed == [None, None, "3\n"]


def test_what_a_block_prints_is_compared(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the page says"):
        run(Page(program="print(1)\nprint('\\0', end='')", printed=["2\n"]), tmp_path)


def test_what_a_command_prints_is_compared(tmp_path: Path) -> None:
    page = read(
        "<!-- file: a.py -->\n```python\nprint('one two')\n```\n\n"
        "```console\n$ python a.py\none ...\n$ cat a.py\nother\n```\n"
    )
    assert page.commands == [("python a.py", "one ...\n"), ("cat a.py", "other\n")]
    with pytest.raises(AssertionError, match=r"cat a\.py"):
        run(page, tmp_path)


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(read("```python\n1 / 0\n```\n"), tmp_path)
