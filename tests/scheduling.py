"""Which tests may run beside others when there are several processes for them, as `make test` has it."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests give the same verdict however busy the machine is, as far as they know no clock and no socket:
#: they run beside others. Whatever is new and not named here has the machine for itself.
BESIDE_OTHERS = {
    *("exchange", "memory", "operators", "plan", "protocol", "records", "state"),  # only compute
    *("api", "connectors", "demo", "pipelines"),  # run jobs, and look at the answer
}

#: Modules in other folders that only compute, or run jobs and look at the answer.
ALSO_BESIDE = {
    *("runtime/test_checkpoint_coordinator.py", "runtime/test_coordinator_machine.py", "runtime/test_restart.py"),
    *("runtime/test_bad_checkpoints.py", "runtime/test_unaligned.py"),
    *("runtime/test_in_flight.py", "runtime/test_routing.py", "runtime/test_user_modules.py"),
    *("spark/test_dataframe.py", "spark/test_large_dataframe.py", "spark/test_plain_session.py"),
    *("spark/test_restarts.py", "spark/test_session.py"),
}

#: Modules in these folders that do look at a clock or a socket.
ALONE = {
    "connectors/test_socket_source.py",
    "connectors/test_source_positions.py",
    "pipelines/test_flow_control.py",
    "pipelines/test_idle_sources.py",
    "state/test_s3.py",
}

ORDER = ["spark", "beside others", "alone"]


def kind_of(nodeid: str) -> str:
    """One of `ORDER`."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    folder = path.partition("/")[0]
    if path not in ALSO_BESIDE and (folder not in BESIDE_OTHERS or path in ALONE):
        return "alone"
    return "spark" if folder == "demo" or "spark" in nodeid else "beside others"


class Scheduling(LoadScopeScheduling):
    """A scope runs in one process, test by test. Tests on Spark are one, for they share a session; those that have
    to be alone are the last; and each of the others is one of its own."""

    def _split_scope(self, nodeid: str) -> str:
        kind = kind_of(nodeid)
        return nodeid if kind == "beside others" else kind


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.index(kind_of(item.nodeid)))
