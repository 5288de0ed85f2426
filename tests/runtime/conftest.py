"""Every rule of how jobs end holds in threads and in processes."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["threads", "processes"])
def processes(request: pytest.FixtureRequest) -> bool:
    """Whether TaskManagers are processes."""
    return bool(request.param)
