"""A process says what tells it from the others of its machine, as far as the system knows it."""

from __future__ import annotations

import os
import sys

import pytest

from headgate.runtime import process_identity as module
from headgate.runtime.process_identity import process_identity


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")
def test_processes_of_one_namespace_have_its_number() -> None:
    namespace = int(os.readlink("/proc/self/ns/pid").removeprefix("pid:[").removesuffix("]"))
    assert process_identity() == {"pid": os.getpid(), "pid_namespace": namespace}


def test_where_a_sandbox_hides_it_the_namespace_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def hides(path: str) -> os.stat_result:
        raise PermissionError(13, "Permission denied", path)

    module._namespace.cache_clear()
    monkeypatch.setattr(os, "stat", hides)
    assert process_identity() == {"pid": os.getpid(), "pid_namespace": None}
    module._namespace.cache_clear()
