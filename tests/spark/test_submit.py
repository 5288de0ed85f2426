"""A script run with `spark-submit`, which starts Spark before the script and gives it the session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.conftest import SOURCES

pytestmark = [pytest.mark.timeout(300), pytest.mark.soak]  # Spark starts twice

SCRIPT = """
from pyspark.sql import SparkSession
import headgate as hg

def halves(row):
    return {"half": row["n"] // 2}

spark = SparkSession.builder.getOrCreate()
env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(registration_timeout="150 s"))
rows = env.from_source(hg.sources.iterable([[{"n": n}, {"n": n + 1}] for n in range(0, 100, 2)]))
pairs = rows.map(halves, schema=rows.select(half="n").schema).key_by("half").aggregate(final=True, rows=hg.count())
print(spark.sparkContext.master, pairs.collect().group_by("rows").aggregate([("half", "sum")]).to_pylist())
"""


def test_a_submitted_script_runs_a_job(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    own |= {"PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    submit = str(Path(pyspark.__path__[0], "bin", "spark-submit"))
    command = [submit, "--master", "local[2]", "--conf", "spark.ui.enabled=false", str(script)]
    done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "local[2] [{'rows': 2, 'half_sum': 1225}]\n"
