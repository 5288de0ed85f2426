"""The table in docs/configuration.md says what the Config dataclass says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from headgate.config import Config
from headgate.errors import ConfigError
from headgate.quantities import seconds, size

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
PARSERS = {"size": size, "int": int, "duration": seconds, "bool": lambda text: text == "True", "text": str}


def rows() -> dict[str, dict[str, str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    header, _, *body = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert header == ["name", "type", "unit", "default", "meaning"]
    return {cells[0].strip("`"): dict(zip(header, cells, strict=True)) for cells in body}


def test_every_option_is_listed_in_its_order() -> None:
    assert list(rows()) == [field.name for field in dataclasses.fields(Config)]


def test_the_defaults_are_those_of_the_code() -> None:
    for name, row in rows().items():
        documented = None if row["default"] == "none" else PARSERS[row["type"]](row["default"])
        assert documented == getattr(Config(), name), name


def test_every_option_has_a_meaning() -> None:
    assert all(row["meaning"].endswith(".") for row in rows().values())


def test_a_folder_is_the_drivers_wherever_it_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    given = ("spill", "~/spill", "hdfs://host/spill", None)
    found = [Config(spill_dir=folder).spill_dir for folder in given]
    assert found == [str(tmp_path / "spill"), "/home/me/spill", "hdfs://host/spill", None]


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
def test_an_option_that_would_do_nothing_is_refused(mode: dict[str, str], option: dict[str, object]) -> None:
    ((name, value),) = option.items()
    assert getattr(Config(**option), name) == value and Config(**mode)
    with pytest.raises(ConfigError, match=f"^{name}={value} has no effect with .*: leave it out"):
        Config(**mode, **option)


@pytest.mark.parametrize(
    "option", [{"debloat_target": 2.0}, {"debloat_samples": 3}, {"min_segment_size": 1024}], ids=str
)
def test_options_of_debloating_need_it(option: dict[str, object]) -> None:
    assert Config(debloat=True, **option)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"^{next(iter(option))} has no effect without debloat=True"):
        Config(**option)  # type: ignore[arg-type]


def test_debloating_that_could_make_no_buffer_smaller_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_segment_size=65536 is above segment_size=32768"):
        Config(debloat=True, min_segment_size="64 kb")


def test_a_buffer_timeout_that_is_none_says_what_may_be() -> None:
    with pytest.raises(ConfigError, match="buffer_timeout: 'adaptiv' is not a duration.* or \"adaptive\", 0 .* or -1"):
        Config(buffer_timeout="adaptiv")
