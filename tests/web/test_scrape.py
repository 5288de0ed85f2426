"""Prometheus itself scrapes a server, and answers the queries of the dashboard."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.jobs import eventually
from tests.web.conftest import TOKEN, Serve
from tests.web.test_prometheus import paced

CONFIG = """
global: {{ scrape_interval: 1s }}
scrape_configs:
  - job_name: headgate
    static_configs: [{{ targets: ["127.0.0.1:{port}"] }}]
    authorization: {{ credentials: {token} }}
"""


class Prometheus:
    """A running Prometheus."""

    def __init__(self, folder: Path, target: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        (folder / "prometheus.yml").write_text(CONFIG.format(port=target, token=TOKEN))
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, query: str) -> list[Any]:
        """Return the samples that a query has now; none while Prometheus starts."""
        path = f"query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}", timeout=30) as reply:
                found: list[Any] = json.load(reply)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except urllib.error.URLError:
            return []

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def panel_queries() -> list[tuple[str, str]]:
    """Return the title of each panel of the dashboard, and its query for all jobs over the last ten seconds."""
    dashboard = json.loads((files("headgate.web") / "grafana.json").read_text())
    return [
        (panel["title"], target["expr"].replace("$__rate_interval", "10s").replace("$job", ".*"))
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def has_prometheus() -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("there is no Prometheus here; Debian's package is `prometheus`")


@pytest.fixture
def prometheus(serve: Serve, tmp_path: Path) -> Iterator[Prometheus]:
    has_prometheus()
    started = Prometheus(tmp_path, serve(paced(), token=TOKEN).server.port)
    yield started
    started.stop()


def test_every_panel_of_the_dashboard_has_data(prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.ask('rate(headgate_task_busy_seconds_total{vertex="out"}[10s])'), 90)
    queries = panel_queries()
    assert len(queries) >= 12
    for _, query in queries:
        assert prometheus.ask(query), query


def test_the_labels_are_those_of_the_job(prometheus: Prometheus) -> None:
    (sample, *_) = eventually(lambda: prometheus.ask("headgate_job_state_info"), 90)
    assert sample["metric"]["job_name"] == "orders"
    assert sample["metric"]["job"] == "headgate", "a label of Prometheus, which no metric of ours has"
