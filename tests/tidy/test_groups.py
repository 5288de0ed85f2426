"""Groups of tests that share a Spark session: each group runs in one process, which starts one session."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all tests")
def test_the_tests_of_a_group_are_sent_to_one_process(request: pytest.FixtureRequest) -> None:
    """xdist finds the group of a test behind the last `@` of its id."""
    of_groups = [(item, mark.args[0]) for item in request.session.items for mark in item.iter_markers("xdist_group")]
    assert [item.nodeid for item, group in of_groups if not item.nodeid.endswith(f"@{group}")] == []
