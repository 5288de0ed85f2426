"""`headgate doctor FILE`: say from a recording where a job was slow, why, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from headgate.errors import RecordingError
from headgate.json_option import add_json_option, write_json
from headgate.observe.diagnosis import LATEST, diagnose
from headgate.observe.finding import Finding
from headgate.observe.lock_samples import lock_samples
from headgate.observe.recording import Recording, read_recording
from headgate.terminal import PlainConsole


def main(argv: Sequence[str]) -> int:
    """Run the command. Returns 0. Raises RecordingError for a file that is not a recording."""
    parser = argparse.ArgumentParser(
        prog="headgate doctor",
        description="Read a recording of a job, and say where the job was slow, why, and what to do. "
        "job.save_recording(FILE) makes one.",
    )
    parser.add_argument("file", metavar="FILE", help="a recording")
    parser.add_argument(
        "--html", metavar="OUT", help="write the job's page, as it was at the recording's end, to an HTML file"
    )
    add_json_option(parser)
    arguments = parser.parse_args(argv)
    recording = read_recording(arguments.file)
    with _damage_said(arguments.file):
        verdicts, samples = _verdicts(recording), lock_samples(recording)
        for at, _ in verdicts:
            _time(at)  # a damaged recording may have a time that no calendar has
    _show(PlainConsole(stderr=arguments.json == "-"), recording, samples, verdicts)
    write_json(arguments.json, _report(recording, samples, verdicts))
    if arguments.html is not None:
        with _damage_said(arguments.file):
            _save_page(recording, arguments.html)
    return 0


@contextmanager
def _damage_said(path: str) -> Iterator[None]:
    """Say that a recording is damaged if its values are not those of a job. Raises RecordingError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordingError(f"{path} is damaged: {type(error).__name__}: {error}") from None


def _save_page(recording: Recording, path: str) -> None:
    from headgate.web.recorded_job import RecordedJob  # the page's types are loaded only when they are used
    from headgate.web.saved_page import save_page

    save_page(RecordedJob(recording), path)


def _verdicts(recording: Recording) -> list[tuple[float, list[Finding]]]:
    """Return a pair (seconds since the epoch, findings) for each time at which the findings changed."""
    verdicts: list[tuple[float, list[Finding]]] = []
    shown: list[tuple[str, str, str]] | None = None
    for end in range(1, len(recording.snapshots) + 1):
        findings = diagnose(recording.topology, recording.snapshots[max(0, end - LATEST) : end])
        key = [(finding.severity.name, finding.place, finding.cause.name) for finding in findings]
        if key != shown:
            verdicts.append((recording.snapshots[end - 1].at, findings))
            shown = key
    return verdicts


def _show(
    console: Console, recording: Recording, samples: str, verdicts: Sequence[tuple[float, list[Finding]]]
) -> None:
    snapshots = recording.snapshots
    seconds = snapshots[-1].at - snapshots[0].at if snapshots else 0.0
    console.print(f"job {recording.topology.job!r}: {len(snapshots)} snapshots in {seconds:.0f} s")
    console.print(f"waits for the interpreter lock: {samples}")
    table = Table("time (UTC)", "severity", "bottleneck, cause, and what to do")
    for at, findings in verdicts:
        if not findings:
            table.add_row(_time(at), "", "no bottleneck")
        for number, finding in enumerate(findings):
            table.add_row("" if number else _time(at), finding.severity.name.lower(), finding.sentence)
    console.print(table)


def _report(recording: Recording, samples: str, verdicts: Sequence[tuple[float, list[Finding]]]) -> dict[str, Any]:
    return {
        "job": recording.topology.job,
        "facts": recording.facts,
        "snapshots": len(recording.snapshots),
        "lock_waits": samples,
        "verdicts": [{"at": at, "findings": [finding.as_json() for finding in findings]} for at, findings in verdicts],
    }


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
