from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.config import Config
from headgate.errors import ConfigError, NotEnoughSlots
from headgate.spark.deployment import SparkDeployment
from headgate.spark.slots import count_slots, wait_for_slots

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_a_local_master_has_what_it_has(spark: SparkSession) -> None:
    deployment = SparkDeployment(spark)
    config = Config(slots_timeout="1 h")
    assert count_slots(spark.sparkContext) == 3
    deployment.check(3, config, 0, threading.Event())
    began = time.monotonic()
    with pytest.raises(NotEnoughSlots, match=r"needs 4 Spark task slots .* has 3; set parallelism to 3 or less"):
        deployment.check(4, config, 0, threading.Event())
    assert time.monotonic() - began < 60  # and not an hour


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]"], indirect=True)
def test_executors_on_their_way_are_awaited_but_not_for_ever(spark: SparkSession) -> None:
    wait_for_slots(spark.sparkContext, 2, timeout=150)
    assert count_slots(spark.sparkContext) == 2
    with pytest.raises(NotEnoughSlots, match=r"has 2 after waiting 0\.2 s \(slots_timeout\); set parallelism to 2"):
        wait_for_slots(spark.sparkContext, 3, timeout=0.2)
    cancelled = threading.Event()
    cancelled.set()
    wait_for_slots(spark.sparkContext, 3, 3600, cancelled=cancelled)  # returns


@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_the_shape_of_a_deployment(spark: SparkSession) -> None:
    deployment = SparkDeployment(spark)
    assert deployment.name == "Spark local[2]"
    assert deployment.bind_hosts() == "127.0.0.1"
    assert [deployment.taskmanagers(p, Config(slots_per_task=2)) for p in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


def test_dynamic_allocation_is_refused() -> None:
    settings = {"spark.dynamicAllocation.enabled": "true"}
    context: Any = SimpleNamespace(master="yarn", getConf=lambda: settings)
    with pytest.raises(ConfigError, match=r"cannot run barrier jobs .*dynamicAllocation\.enabled=false"):
        wait_for_slots(context, 1, timeout=0)
