"""Values of options that are refused, and their messages."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from headgate.config import Config
from headgate.errors import ConfigError
from headgate.options import option_of


def test_the_network_has_flinks_defaults() -> None:
    config = Config()
    assert config.network_memory // config.segment_size == 2048
    assert (config.buffers_per_channel, config.floating_buffers_per_gate) == (2, 8)


def test_every_option_has_a_description() -> None:
    assert all(option_of(field).meaning.endswith(".") for field in dataclasses.fields(Config))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segment_size": 511}, "segment_size=511 is impossible: it must be at least 512 B and at most 1 MiB"),
        ({"network_memory": 1000}, "network_memory=1000 is impossible: it must be at least segment_size=32768"),
        ({"checkpoint_timeout": 0}, "checkpoint_timeout=0.0 is impossible: it must be above 0"),
        ({"max_parallelism": 0}, "max_parallelism=0 is impossible: it must be at least 1 and at most 32768"),
        ({"tls": "yes"}, 'option tls: \'yes\' is unknown: it must be "auto", "on" or "off"'),
        ({"flow_control": None}, 'option flow_control: None is unknown: it must be "credit", "tcp" or'),
        ({"flow_control": []}, "option flow_control: \\[\\] is unknown"),
        (
            {"port_range": (9, 8)},
            r"option port_range: \(9, 8\) is impossible: it must be \(first, last\), 1",
        ),
        ({"buffer_timeout": -2}, 'option buffer_timeout: -2 is impossible: it must be a duration, "adaptive"'),
        ({"checkpoint_dir": ""}, "option checkpoint_dir: '' is not a path; give a path or URI"),
        ({"spill_dir": ""}, "option spill_dir: '' is not a path; give a path or URI"),
        (
            {"debloat": True, "debloat_threshold_percentages": 101},
            "debloat_threshold_percentages=101 is impossible: it must be at least 0 and at most 100",
        ),
        ({"max_state_memory": 0}, "max_state_memory=0 is impossible: it must be above 0"),
        (
            {"unaligned": True},
            "unaligned has no effect without checkpoint_dir: set checkpoint_dir, or leave unaligned out",
        ),
        ({"slot_per_task": 1}, r"unknown option 'slot_per_task'; did you mean slots_per_task\?$"),
        ({"mode": "batch"}, r"unknown option 'mode'; did you mean .*execution_mode"),
        ({"color": 1}, "unknown option 'color'; known options: .*slots_per_task"),
    ],
    ids=str,
)
def test_an_impossible_value_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        Config(**options)


def test_none_can_be_given_where_it_is_the_default() -> None:
    assert Config(bind_host=None, port_range=None, max_state_memory=None, restart=None) == Config()


def test_a_relative_folder_becomes_an_absolute_path_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    given = ("spill", "~/spill", "hdfs://host/spill", None)
    paths = [Config(spill_dir=folder).spill_dir for folder in given]
    assert paths == [str(tmp_path / "spill"), "/home/me/spill", "hdfs://host/spill", None]


@pytest.mark.parametrize(
    ("mode", "option"),
    [
        ({"flow_control": "unbounded"}, {"max_buffers_per_channel": 20}),
        ({"flow_control": "unbounded"}, {"max_overdraft_buffers_per_gate": 0}),
        ({"execution_mode": "batch"}, {"debloat": True}),
        ({"execution_mode": "batch"}, {"checkpoint_timeout": 5.0}),
    ],
    ids=str,
)
def test_an_option_without_effect_is_refused(mode: dict[str, str], option: dict[str, object]) -> None:
    ((name, value),) = option.items()
    assert getattr(Config(**option), name) == value
    assert Config(**mode)
    with pytest.raises(ConfigError, match=f"^{name}={value} has no effect with .*: leave it out"):
        Config(**mode, **option)


@pytest.mark.parametrize(
    "option", [{"debloat_target": 2.0}, {"debloat_samples": 3}, {"min_segment_size": 1024}], ids=str
)
def test_options_of_debloating_need_debloat(option: dict[str, object]) -> None:
    assert Config(debloat=True, **option)
    with pytest.raises(ConfigError, match=f"^{next(iter(option))} has no effect without debloat=True"):
        Config(**option)


def test_debloating_that_could_make_no_buffer_smaller_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_segment_size=65536 is above segment_size=32768"):
        Config(debloat=True, min_segment_size="64 kb")


def test_a_wrong_buffer_timeout_names_the_possible_values() -> None:
    with pytest.raises(ConfigError, match="buffer_timeout: 'adaptiv' is not a duration.* or \"adaptive\" .* 0 .* -1"):
        Config(buffer_timeout="adaptiv")


@pytest.mark.parametrize(
    "value",
    ["9" * 400, 10**5000, -(10**400), (1 << 60) + 1, "1073741825 gb"],
    ids=["text", "huge", "-huge", "one more", "gb"],
)
@pytest.mark.parametrize("option", ["segment_size", "message_size", "network_memory", "max_state_memory"])
def test_a_size_that_no_machine_has_is_refused(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"option {option}: the value is impossible: a size is at most"):
        Config(**{option: value})


def test_the_largest_size_is_accepted() -> None:
    assert Config(network_memory=1 << 60, max_state_memory="1073741824 gb").network_memory == 1 << 60


def test_a_folder_whose_name_is_not_utf_8_is_shown_escaped() -> None:
    config = Config(checkpoint_dir="/tmp/caf\udce9")
    assert config.checkpoint_dir == "/tmp/caf\udce9"
    assert config.shown()["checkpoint_dir"] == r"/tmp/caf\udce9"
