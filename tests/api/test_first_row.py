"""What a program loads before its first row: counted, not timed, so a busy machine gives the same verdict.

`headgate bench first-row` measures the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from headgate.bench.first_row import PROGRAM, _measured

ENVIRON = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))\n"


def lines(program: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=ENVIRON, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(modules: list[str]) -> list[str]:
    return [name for name in modules if name.partition(".")[0] == "headgate"]


def test_the_import_loads_no_other_module_of_the_package() -> None:
    [loaded] = lines("import headgate as hg\n" + LOADED)
    assert ours(loaded) == ["headgate"]
    assert "pyarrow" not in loaded
    assert "numpy" not in loaded


def test_the_fork_server_starts_before_the_runtime_is_loaded() -> None:
    """So both take their time at the same time. What only TaskManagers, Spark or SQL strings need is not loaded."""
    [loaded, server] = lines(
        "import headgate as hg\nhg.StreamEnvironment(parallelism=2)\n"
        + LOADED
        + "from headgate.runtime.launch.forks import server; print(server.pid)\n"
    )
    assert server is not None
    later = {"headgate.runtime.master.job", "headgate.runtime.taskmanager.taskmanager"}
    assert not {*later, "pandas", "pyspark", "sqlglot"} & set(loaded)
    assert len(ours(loaded)) <= 130, f"{len(ours(loaded))} modules of the package before the server starts"


def test_the_names_of_sources_and_sinks_load_neither_pandas_nor_kafka() -> None:
    """Arrow imports pandas when it makes its first array of Python values, which takes as long as all else."""
    [loaded] = lines("import headgate as hg\nhg.StreamEnvironment, hg.sources, hg.sinks\n" + LOADED)
    assert not {"pandas", "headgate.connectors.kafka.kafka_functions"} & set(loaded)


def test_a_small_job_loads_few_modules() -> None:
    *_, loaded = lines(PROGRAM.replace("print(", "(") + LOADED)
    assert not {"pyspark", "sqlglot", "headgate.cli", "headgate.spark.spark_deployment"} & set(loaded)
    assert len(ours(loaded)) <= 269, f"{len(ours(loaded))} modules of the package"


def test_threads_start_no_fork_server() -> None:
    program = "import headgate as hg\nhg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))\n"
    assert lines(program + "from headgate.runtime.launch.forks import server; print(server.pid or 0)\n") == [0]


def test_the_benchmark_measures() -> None:
    elapsed, used = _measured()
    assert elapsed > 0
    assert used > 0
