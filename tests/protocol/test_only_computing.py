"""Tests of this folder run beside others, so what depends on a busy machine's clock or on ports is refused."""

from __future__ import annotations

import socket
import time

import pytest


def test_a_sleep_is_refused() -> None:
    with pytest.raises(RuntimeError, match="only compute"):
        time.sleep(0)


def test_a_port_is_refused() -> None:
    with socket.socket() as server, pytest.raises(RuntimeError, match="only compute"):
        server.bind(("127.0.0.1", 0))
