"""A service for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.webhook.webhook_service import Service, running

pytest.importorskip("urllib3")


@pytest.fixture
def service() -> Iterator[Service]:
    with running() as made:
        yield made
