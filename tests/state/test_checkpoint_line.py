"""Which checkpoints of a job count if several programs have owned its folder."""

from __future__ import annotations

import pytest

from headgate.state.checkpoint_line import NONE, CheckpointName, Start, line


def names(*folders: str) -> list[CheckpointName]:
    found = [CheckpointName.of(folder) for folder in folders]
    assert None not in found
    return [name for name in found if name is not None]


def counting(starts: dict[int, Start], *folders: str) -> list[str]:
    return [each if isinstance(each, str) else each.folder for each in line(names(*folders), starts)]


@pytest.mark.parametrize("folder", ["chk-1", "chk-9007199254740991", "chk-7-2", "chk-7-31"])
def test_a_name_is_its_folder(folder: str) -> None:
    name = CheckpointName.of(folder)
    assert name is not None
    assert name.folder == folder


@pytest.mark.parametrize(
    "folder", ["chk-", "chk-0", "chk-01", "chk-1-0", "chk-1-", "chk-1-2-3", "xchk-1", "owners", ""]
)
def test_other_folders_are_no_checkpoints(folder: str) -> None:
    assert CheckpointName.of(folder) is None


def test_all_checkpoints_of_a_single_owner_count() -> None:
    assert counting({}, "chk-1", "chk-3", "chk-2") == ["chk-3", "chk-2", "chk-1"]


def test_what_an_older_owner_completes_later_never_counts() -> None:
    starts = {1: Start(), 2: Start(CheckpointName(1, 5))}
    assert counting(starts, "chk-4", "chk-5", "chk-6") == ["chk-5", "chk-4"]
    assert counting(starts, "chk-4", "chk-5", "chk-6", "chk-6-2") == ["chk-6-2", "chk-5", "chk-4"]


def test_a_claim_without_a_start_changes_nothing() -> None:
    assert counting({1: Start()}, "chk-5", "chk-6") == ["chk-6", "chk-5"]


def test_the_line_goes_back_through_all_owners() -> None:
    starts = {2: Start(CheckpointName(1, 3)), 3: Start(CheckpointName(2, 5)), 4: Start(CheckpointName(2, 4))}
    folders = ["chk-3", "chk-4", "chk-4-2", "chk-5-2", "chk-6-2", "chk-6-3", "chk-7-4"]
    assert counting(starts, *folders) == ["chk-7-4", "chk-4-2", "chk-3"]


def test_a_fresh_start_cuts_off_what_comes_later() -> None:
    assert counting({2: Start(NONE)}, "chk-1") == []
    assert counting({2: Start(CheckpointName(1, 1))}, "chk-1", "chk-2") == ["chk-1"]


def test_a_start_from_elsewhere_ends_the_line() -> None:
    starts = {2: Start(uri="s3://bucket/kept/sp-7-ab")}
    assert counting(starts, "chk-3", "chk-8-2") == ["chk-8-2", "s3://bucket/kept/sp-7-ab"]


@pytest.mark.parametrize("start", [Start(), Start(CheckpointName(2, 9)), Start(uri="/a/b")])
def test_a_start_is_plain_json(start: Start) -> None:
    assert Start.from_json(start.to_json()) == start


@pytest.mark.parametrize("values", [None, [], {}, {"after": [1], "uri": None}, {"after": ["1", 2], "uri": None}, 5])
def test_a_note_of_another_form_is_refused(values: object) -> None:
    with pytest.raises(ValueError, match="a note of an owner's start has the wrong form"):
        Start.from_json(values)
