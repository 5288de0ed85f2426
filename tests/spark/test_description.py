"""What Spark's own page says of a job: its name, and where its page is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.web.job_pages import SWITCH, pages
from headgate.web.tunnel import tunnel

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def has_a_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH)
    yield
    pages.close()


def test_the_address_is_in_the_description_with_a_tunnel_if_executors_are_elsewhere(
    spark: SparkSession, master: str
) -> None:
    env = hg.StreamEnvironment(spark, parallelism=1, config=hg.Config(slots_timeout="90 s"))
    env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.null())
    job = env.execute_async("sums")
    job.wait()
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    descriptions = [jobs.apply(at).description() for at in range(jobs.size())]
    texts = [str(each.get()) for each in descriptions if each.isDefined()]
    [said] = [text for text in texts if job.web_url is not None and job.web_url in text]
    assert said.startswith(f"Headgate job 'sums', its page: {job.web_url}")
    has_tunnel = re.search(r" \(from another machine, first: ssh -N -L (\d+):127\.0\.0\.1:\1 127\.0\.0\.1\)$", said)
    assert bool(has_tunnel) == master.startswith("spark://")


def test_a_page_that_other_machines_reach_needs_no_tunnel() -> None:
    assert tunnel("http://[::1]:81/#a", "far") == "ssh -N -L 81:[::1]:81 far"
    assert tunnel("http://driver-host:8081/#a", "driver-host") is None
