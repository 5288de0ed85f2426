from __future__ import annotations

import pickle
import signal
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.connectors.connector import Source
from headgate.errors import ConfigError
from headgate.spark.dataframe import new_folder, read_folder, remove_folder, spark_columns, spill, spill_folder
from headgate.testing import check_source
from tests.spark.conftest import run_script
from tests.spark_session import to_arrow

pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("master", ["local[2]"], indirect=True)]


def test_a_spilled_dataframe_is_read_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    rows = "(1, timestamp '9999-12-31 23:59:59.999999', 'a', decimal(1.50)), (null, timestamp '1600-01-01', null, null)"
    dataframe = spark.sql(f"select * from values {rows} as t(id, at, name, price)").repartition(3)
    table = pickle.loads(pickle.dumps(spill(dataframe, str(tmp_path))))
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table().schema == table.schema
    assert table().sort_by("at").to_pylist() == to_arrow(dataframe.orderBy("at")).cast(table.schema).to_pylist()
    assert spill(dataframe.where("false"), str(tmp_path))().num_rows == 0


def test_a_folder_of_files_is_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "name": pa.string()})
    folder = Path(spill_folder(spark, str(tmp_path)))
    assert read_folder(spark, str(folder), spark_columns("a test", schema)).collect() == []
    table = pa.table({"id": [1, 2], "at": [0, 10**15], "name": ["a", None]}, schema)
    for number in range(2):
        pa.parquet.write_table(table.slice(number, 1), folder / f"part-{number}.parquet")
    dataframe = read_folder(spark, str(folder), spark_columns("a test", schema))
    assert dataframe.count() == 2
    assert to_arrow(dataframe.orderBy("id")).cast(schema) == table


@pytest.mark.parametrize("named", [False, True])
def test_other_users_cannot_read_spilled_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """With the usual umask all users of the machine could read new files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = spill(spark.range(3), str(tmp_path / "chosen") if named else None)
    source = hg.sources.dataframe(spark.range(3))
    source.configure(hg.Config(spill_dir=tmp_path / "chosen" if named else None))
    source.prepare()
    folders = [path for path in tmp_path.rglob("headgate-rows-*") if path.is_dir()]
    assert len(folders) == 2
    assert table().num_rows == 3
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert not any(folder.stat().st_mode & 0o077 for folder in tmp_path.glob("chosen"))
    source.release()


def test_the_source_keeps_the_contract(spark: SparkSession, tmp_path: Path) -> None:
    """Each run of the kit has rows of its own."""

    def prepared() -> Source:
        source = hg.sources.dataframe(spark.range(0, 30, 1, 3))
        source.configure(hg.Config(spill_dir=tmp_path))
        source.prepare()
        return source

    check_source(prepared, [{"id": n} for n in range(30)])


def test_executors_on_other_machines_need_a_shared_folder(spark: SparkSession) -> None:
    running = spark.sparkContext._jsc
    elsewhere: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=running, master="spark://host:7077"))
    with pytest.raises(ConfigError, match=r"executors of spark://host:7077 .* set the option spill_dir to a folder"):
        spill_folder(elsewhere, None)


KILLED = """
import os, signal
from pathlib import Path
from headgate.spark.scratch import hold
Path("headgate-rows-0123456789ab").mkdir()
hold(Path("headgate-rows-0123456789ab").absolute())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_new_folder_for_rows_removes_those_of_killed_programs(spark: SparkSession, tmp_path: Path) -> None:
    assert run_script(tmp_path, KILLED).returncode == -signal.SIGKILL
    in_use = Path(spill_folder(spark, str(tmp_path)))
    assert list(tmp_path.iterdir()) == [in_use]
    new_folder(spark, str(tmp_path))
    assert list(tmp_path.iterdir()) == [in_use]
    remove_folder(str(in_use))
    assert list(tmp_path.iterdir()) == []


def test_iterable_refuses_a_dataframe(spark: SparkSession) -> None:
    for given in (spark.range(3), [spark.range(3)]):
        with pytest.raises(hg.HeadgateError, match=r"read a Spark DataFrame with hg.sources.dataframe\(df\)"):
            hg.sources.iterable(given)


def test_texts_of_a_dataframe_come_with_the_dictionaries_that_spark_writes(spark: SparkSession) -> None:
    cities = "case when id % 3 = 0 then 'Bern' when id % 3 = 1 then 'Wien' end as city"
    source = hg.sources.dataframe(spark.range(1000).selectExpr("id", cities))
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(source).select("id", x="coalesce(upper(city), 'none')").collect().sort_by("id")
    assert rows["x"].to_pylist()[:4] == ["BERN", "WIEN", "none", "BERN"]
    assert rows.num_rows == 1000
    encoded = source.with_dictionaries(["city"]).schema
    assert encoded.types == [pa.int64(), pa.dictionary(pa.int32(), pa.string())]
