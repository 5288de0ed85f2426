"""The programs on the page about databases run with SQLite and a real PostgreSQL, and print what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.page_blocks import read, run
from tests.postgres_server import Postgres

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "databases.md"
ON_THE_PAGE = "postgresql://headgate:from-your-secret-store@db.example.com:5432/shop"


def test_the_code_of_the_page_runs(postgres: Postgres, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text().replace(ON_THE_PAGE, postgres.uri)
    assert postgres.uri in text
    run(read(text), tmp_path, capfd)
