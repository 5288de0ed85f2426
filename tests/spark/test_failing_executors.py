"""Executors that end before they register, on a machine with a name that Spark cannot use."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.spark.session import _private_home
from tests.ending import END
from tests.spark.conftest import clean_environment

pytestmark = [pytest.mark.ends, pytest.mark.timeout(300)]

#: Runs a command with a host name and addresses of its own, in namespaces that end with it. Spark takes the host name
#: for the driver's address. It refuses the underscore in that name on an executor, but not on the driver.
MACHINE = """
ip link set lo up
ip address add 10.9.8.7/32 dev lo
printf '127.0.0.1 localhost\\n10.9.8.7 odd_host\\n' >hosts
mount --bind hosts /etc/hosts
printf odd_host >/proc/sys/kernel/hostname
exec "$@"
"""

PROGRAM = """
import os, time
from pyspark.sql import SparkSession
import headgate as hg

spark = SparkSession.builder.master("local-cluster[2,1,512]").config("spark.executor.memory", "512m").getOrCreate()
env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(slots_timeout="200 s"))
rows = env.from_source(hg.sources.iterable([[{"n": 1}]]))
started = time.time()
try:
    rows.collect()
except hg.NotEnoughSlots as error:
    print(started, time.time(), error, flush=True)
os._exit(0)  # otherwise Spark would wait for executors that it still starts
"""


#: How long the check may take to notice, seconds. It needs two looks, one second apart.
NOTICED_WITHIN = 5.0 + END


def test_failing_executors_are_noticed_and_the_error_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    machine = ["unshare", "--map-root-user", "--mount", "--uts", "--net", "sh", "-ec", MACHINE, "sh"]
    done = subprocess.run(
        [*machine, sys.executable, "program.py"],
        env={**clean_environment(tmp_path), "SPARK_HOME": str(_private_home(tmp_path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    started, noticed, error = [*done.stdout.split(" ", 2), "", ""][:3]
    assert re.match(
        r"executors of local-cluster\[2,1,512\] end before they register, \d+ so far; the last one said: "
        r".*Invalid Spark URL: spark://CoarseGrainedScheduler@odd_host:\d+ \(/.*/stderr\)\. They may not reach the "
        r"driver at odd_host, .*: set SPARK_LOCAL_IP=127\.0\.0\.1 in the environment before Spark starts$",
        error,
    ), done.stdout + done.stderr[-3000:]
    first = [folder / name / "stderr" for folder in tmp_path.glob("home/work/app-*") for name in ("0", "1")]
    deaths = [log.stat().st_mtime for log in first]  # an executor's last line says why it ends
    assert float(noticed) - max(float(started), *deaths) < NOTICED_WITHIN
