"""What follows from sampled stacks: the hottest lines, the flame graph, and what is sent of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.observe.profile import (
    HEADGATE,
    HOTTEST,
    LEFT_OUT,
    Frame,
    Profile,
    Stack,
    kind_of,
    merged,
    packed,
    unpacked,
    without_headgate,
)

OURS = Frame("/lib/headgate/operators/rows.py", 209, "MapBatches.process", "headgate")
ARROW = Frame("/venv/site-packages/pyarrow/compute.py", 7, "wrapper", "library")
MAIN = Frame("/job/pipeline.py", 10, "clean", "user")
PARSE = Frame("/job/parse.py", 3, "parse", "user")
JSON = Frame("/usr/lib/python3.11/json/decoder.py", 353, "JSONDecoder.raw_decode", "library")


def profile(*stacks: Stack, samples: int = 100, left_out: int = 0) -> Profile:
    return Profile(
        operator="clean",
        subtask=1,
        ended_at=1002.0,
        seconds=1.0,
        looks=100,
        samples=samples,
        cpu_s=0.5,
        run_delay_s=None,
        stacks=stacks,
        left_out=left_out,
    )


frames = st.builds(
    Frame, st.sampled_from(["/a.py", "/b.py", ""]), st.integers(1, 3), st.sampled_from("fgh"), st.sampled_from(["user"])
)
stacks = st.builds(
    lambda frames, samples, on: Stack(tuple(frames), samples, samples * on),
    st.lists(frames, min_size=1, max_size=5),
    st.integers(1, 50),
    st.sampled_from([0.0, 0.25, 1.0]),
)


def test_a_sample_counts_for_the_users_innermost_line() -> None:
    found = profile(Stack((HEADGATE, MAIN, PARSE, JSON), 60, 60.0), Stack((HEADGATE, MAIN, ARROW), 20, 0.0))
    assert [(line.frame, line.share, line.on) for line in found.hottest] == [(PARSE, 0.75, 1.0), (MAIN, 0.25, 0.0)]
    assert (found.share, found.on) == (0.8, 0.75)


def test_without_a_line_of_the_user_a_sample_counts_for_the_innermost_line() -> None:
    [line] = profile(Stack((OURS, ARROW), 10, 5.0)).hottest
    assert line.frame == ARROW


def test_there_are_five_hottest_lines_the_hottest_first() -> None:
    many = [Stack((MAIN._replace(line=number),), number, 0.0) for number in range(1, 9)]
    assert [line.frame.line for line in profile(*many).hottest] == [8, 7, 6, 5, 4]
    assert HOTTEST == 5


def test_samples_whose_stacks_were_left_out_count_in_shares() -> None:
    found = profile(Stack((MAIN,), 30, 15.0), left_out=10, samples=80)
    assert (found.share, found.on, found.hottest[0].share) == (0.5, 0.5, 0.75)


def test_a_profile_of_an_operator_that_did_nothing_is_empty() -> None:
    idle = profile()
    assert (idle.share, idle.on, idle.hottest, idle.folded()) == (0.0, 0.0, [], "")
    assert idle.flame()["children"] == []
    assert str(idle) == (
        "'clean[1]' worked in 0% of 100 samples, 0% of them on the processor; shares are exact to within 10 points"
    )


def test_it_reads_as_a_list_of_lines() -> None:
    found = profile(Stack((HEADGATE, MAIN, PARSE), 60, 57.0), Stack((HEADGATE, MAIN), 20, 0.0))
    assert str(found).splitlines() == [
        "'clean[1]' worked in 80% of 100 samples, 71% of them on the processor; shares are exact to within 10 points",
        " 75%   95% on the processor  /job/parse.py:3 parse",
        " 25%    0% on the processor  /job/pipeline.py:10 clean",
    ]


@pytest.mark.parametrize(("looks", "margin"), [(0, 100.0), (1, 100.0), (25, 20.0), (400, 5.0)])
def test_more_looks_make_shares_more_exact(looks: int, margin: float) -> None:
    found = replace(profile(Stack((MAIN,), 60, 57.0)), looks=looks)
    assert found.margin == pytest.approx(margin)
    assert found.as_json()["margin"] == margin
    assert str(found).splitlines()[0].endswith(f"to within {margin:.0f} points")


def test_one_frame_stands_for_what_is_above_the_users_function() -> None:
    assert without_headgate([OURS, ARROW, MAIN, OURS, PARSE]) == (HEADGATE, MAIN, OURS, PARSE)
    assert without_headgate([MAIN, PARSE]) == (MAIN, PARSE)
    assert without_headgate([OURS, ARROW]) == (OURS, ARROW)
    assert without_headgate([LEFT_OUT, MAIN]) == (LEFT_OUT, MAIN)


def test_the_same_stacks_are_one() -> None:
    assert merged([Stack((MAIN,), 1, 1.0), Stack((PARSE,), 5, 0.0), Stack((MAIN,), 2, 0.5)]) == [
        Stack((PARSE,), 5, 0.0),
        Stack((MAIN,), 3, 1.5),
    ]


def test_folded_stacks_are_lines_for_other_programs() -> None:
    odd = Frame("/job/a;b.py", 1, "f\ng", "user")
    assert profile(Stack((HEADGATE, MAIN, odd), 4, 0.0)).folded() == (
        "(headgate);clean (pipeline.py:10);f g (a:b.py:1) 4\n"
    )


@given(st.lists(stacks, max_size=12).map(merged))
def test_each_node_of_the_flame_graph_has_the_samples_of_its_children(stacks: list[Stack]) -> None:
    def checked(node: dict[str, Any]) -> int:
        called = [checked(child) for child in node["children"]]
        assert called == sorted(called, reverse=True)
        assert sum(called) <= node["value"]
        assert 0 <= node["on"] <= node["value"]
        return int(node["value"])

    total = sum(stack.samples for stack in stacks)
    found = profile(*stacks, samples=total)
    assert checked(found.flame()) == total
    assert json.loads(json.dumps(found.as_json()))["flame"]["name"] == "clean[1]"
    assert sum(line.share for line in found.hottest) <= 1.0001


@given(st.lists(stacks, max_size=12).map(merged), st.integers(1, 12))
def test_a_bounded_flame_graph_has_the_nodes_with_most_samples(stacks: list[Stack], most: int) -> None:
    def values(node: dict[str, Any]) -> list[int]:
        return [node["value"], *(value for child in node["children"] for value in values(child))]

    found = profile(*stacks, samples=sum(stack.samples for stack in stacks))
    every, some = sorted(values(found.flame()), reverse=True), sorted(values(found.flame(most)), reverse=True)
    assert some == every[:most]
    assert found.as_json(most)["flame"] == found.flame(most)


@given(st.lists(stacks, max_size=12).map(merged))
def test_what_was_packed_comes_out_of_it(stacks: list[Stack]) -> None:
    (frames, numbers), left_out = packed(stacks, 100, 100_000)
    assert left_out == 0
    assert len(set(frames)) == len(frames)
    assert unpacked(frames, numbers) == tuple(stacks)


@given(st.lists(stacks, max_size=12).map(merged), st.integers(0, 12), st.integers(0, 600))
def test_what_does_not_fit_is_counted(stacks: list[Stack], most: int, characters: int) -> None:
    (frames, numbers), left_out = packed(stacks, most, characters)
    kept = unpacked(frames, numbers)
    assert sum(stack.samples for stack in kept) + left_out == sum(stack.samples for stack in stacks)
    assert len(kept) <= most
    assert sum(len(frame.file) + len(frame.function) for frame in frames) <= characters


@pytest.mark.parametrize(
    "stack",
    [([], 1, 0.0), ([0], 0, 0.0), ([0], 1, 1.5), ([0], 1, -0.5), ([0], 1, float("nan")), ([1], 1, 0.0), ([-1], 1, 0.0)],
)
def test_what_is_no_stack_is_refused(stack: tuple[list[int], int, float]) -> None:
    with pytest.raises(ValueError, match="a stack "):
        unpacked([MAIN], [stack])


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/lib/headgate/operators/rows.py", "headgate"),
        ("/usr/lib/python3.11/json/decoder.py", "library"),
        ("/venv/lib/python3.11/site-packages/pyarrow/compute.py", "library"),
        ("/usr/lib/python3/dist-packages/numpy/linalg.py", "library"),
        ("<frozen importlib._bootstrap>", "library"),
        ("/job/pipeline.py", "user"),
        ("/job/my-site-packages.py", "user"),
        ("<stdin>", "user"),
    ],
)
def test_a_files_folder_says_whose_code_it_has(file: str, kind: str) -> None:
    assert kind_of(file, "/lib/headgate/", ("/usr/lib/python3.11/",)) == kind
