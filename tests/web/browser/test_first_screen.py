"""The first screen of a phone answers who, why and what to do, whatever the cause: for recordings of real jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from headgate.observe.diagnosis import LATEST
from headgate.observe.recording import read_recording
from tests.web.browser.conftest import Open
from tests.web.conftest import Serve
from tests.web.fake_job import FakeJob

pytestmark = pytest.mark.xdist_group("browser")

RECORDINGS = Path(__file__).parents[2] / "observe" / "recordings"
#: A recording of each cause, by the cause.
CAUSES = {
    "burst": "seldom-first-swells-2", "checkpoint": "committed-out-lingers-1",
    "credit_round_trip": "two_rooms-far-processes-2801", "data_skew": "skewed-first-computes-901",
    "disk": "fork-other-writes-0", "few_splits": "one_split-numbers-waits-2",
    "garbage_collection": "line-first-litters-0", "interpreter_lock": "line-out-computes-1600",
    "large_rows": "large-opened-pours-2", "machine_taken": "loaded-other-programs-1",
    "nearly_empty_buffers": "scattered-numbers-pours-2800", "network": "wide-narrow-network-2",
    "out_of_cpu": "joined-right-computes-1", "processor_quota": "loaded-small-quota-1",
    "slow_function": "chain-first-computes-0", "slow_instance": "to_all-first-waits-in-one-subtask-2",
    "slow_lookup": "looked_up-names-waits-2500", "slow_sink": "joined-out-waits-1",
    "slow_source": "union-others-waits-0", "standing_watermark": "two_in_time-others-falls_silent-2",
    "throttle": "throttled-numbers-pours-1", "waiting_function": "windows-first-waits-2600",
}  # fmt: skip
#: Runs in the page: the facts of the first finding that are whole on the first screen, by name.
FACTS = """() => Object.fromEntries([...document.querySelectorAll("#verdict .facts")[0].querySelectorAll("dd")]
    .filter((node) => {
        const box = node.getBoundingClientRect();
        return box.top >= 0 && box.left >= 0 && box.right <= innerWidth && box.bottom <= innerHeight
            && node.scrollWidth <= node.clientWidth;
    }).map((node) => [node.previousElementSibling.innerText, node.innerText]))"""


@pytest.mark.turns(4)
@pytest.mark.parametrize("cause", CAUSES)
def test_the_first_screen_of_a_phone_answers_for_each_cause(serve: Serve, show: Open, cause: str) -> None:
    recording = read_recording(RECORDINGS / f"{CAUSES[cause]}.gz")
    job = FakeJob(topology=recording.topology, taken=list(recording.snapshots[-LATEST:]), name=recording.topology.job)
    served = serve(job)
    finding = served.get(f"/jobs/{job.id}/diagnosis").json["findings"][0]
    assert finding["cause"] == cause
    page = show(served, job, width=380, height=700)
    expect(page.locator("#verdict .facts").first).to_be_visible()
    facts = page.evaluate(FACTS)
    operator, subtasks = ("Operator", "Subtask") if finding["operator"] is not None else ("Place", "Producers")
    assert facts.keys() >= {operator, subtasks, "Cause", "Remedy", "Gain"}
    assert facts[operator] == (finding["operator"] or finding["place"])
    assert facts[subtasks].startswith("all ") or str(finding["subtasks"][0]) in facts[subtasks]
    assert (facts["Cause"], facts["Remedy"]) == (finding["why"], finding["remedy"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
