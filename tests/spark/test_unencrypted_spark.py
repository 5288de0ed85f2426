"""The warning if Spark does not protect the job's key on its way to the executors."""

from __future__ import annotations

import itertools
import logging

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

import headgate as hg
from headgate.spark.unencrypted_spark import warn_if_unencrypted
from tests.spark.test_deployment import PATIENT, numbers

_applications = itertools.count()


def said(caplog: pytest.LogCaptureFixture, host: str, times: int = 1, **settings: str) -> list[str]:
    """Return the warnings that are logged when an application of that driver starts jobs, `times` of them."""
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name.replace("_", "."), value)
    application = f"application-{next(_applications)}"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(times):
            warn_if_unencrypted(application, host, lambda name, default: str(conf.get(name, default)))
    return [record.getMessage() for record in caplog.records]


@pytest.mark.usefixtures("shared_spark")
@pytest.mark.parametrize("host", ["10.0.0.5", "driver.example.org", "fd00::2", "[fd00::2]"])
def test_unencrypted_connections_are_warned_of_once(caplog: pytest.LogCaptureFixture, host: str) -> None:
    [message] = said(caplog, host, times=3)
    assert "spark.network.crypto.enabled=true" in message
    assert "spark.ssl.rpc.enabled=true" in message
    assert len(said(caplog, host, spark_network_crypto_enabled="false", spark_ssl_enabled="true")) == 1


@pytest.mark.parametrize("name", ["spark_network_crypto_enabled", "spark_ssl_rpc_enabled"])
def test_no_warning_if_spark_encrypts(caplog: pytest.LogCaptureFixture, name: str) -> None:
    assert said(caplog, "10.0.0.5", times=1, **{name: "True"}) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_no_warning_if_connections_stay_on_the_machine(caplog: pytest.LogCaptureFixture, host: str) -> None:
    assert said(caplog, host) == []


@pytest.mark.turns(2)
@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_job_under_tls_warns_once_if_connections_leave_the_machine(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Its certificates travel in the task closure. If the driver's address is not loopback, the start warns once."""
    monkeypatch.setattr("headgate.spark.spark_deployment.driver_host", lambda context: host)
    monkeypatch.setattr("headgate.spark.unencrypted_spark._warned", set())
    config = {"slots_timeout": PATIENT.slots_timeout, "bind_host": "127.0.0.1"}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(tls="on", **config))
            stream = env.from_source(hg.sources.generate(numbers(), rows=10_000))
            table = stream.key_by("key").aggregate(total=hg.sum("value"), final=True).collect()
            assert sum(table["total"].to_pylist()) == sum(range(10_000))
    is_far = host != "127.0.0.1" and not str(spark.sparkContext.master).startswith("local")
    assert [record.name for record in caplog.records] == ["headgate.spark.unencrypted_spark"] * is_far
