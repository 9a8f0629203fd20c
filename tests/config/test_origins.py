"""Each setting says where it comes from: flag over variable over file over default."""

import json

import pytest

from orchestrator.config.origins import DEFAULT, origins_of
from tests.cli.cli_kit import here

TEXT = """\
name: demo
tpu:
  type: v5litepod-8
  zones: [europe-west4-b]
vm: none
job:
  command: python3 train.py
  env: {STEPS: "5"}
watch: {poll: 30s}
"""
FLAG, VARIABLE = {"watch.poll": "5s"}, {"TPUCTL_WATCH__POLL": "9s"}


@pytest.fixture
def path(tmp_path):
    """Write the file."""
    (tmp_path / "tpuctl.yaml").write_text(TEXT)
    return tmp_path / "tpuctl.yaml"


@pytest.mark.parametrize(
    ("flags", "variables", "value", "origin"),
    [
        (FLAG, VARIABLE, "5s", "--set watch.poll"),
        ({}, VARIABLE, "9s", "TPUCTL_WATCH__POLL"),
        ({}, {}, "30s", ":9:9"),
    ],
)
def test_the_stronger_one_wins_and_is_named(path, flags, variables, value, origin):
    """One row for each source that a user may set."""
    found = {one.setting: one for one in origins_of(path, flags, variables)}["watch.poll"]
    assert found.value == value
    assert found.origin.endswith(origin)


def test_places_are_those_of_the_keys_and_the_rest_is_default(path):
    """A word for a section and an entry of a mapping have their lines too."""
    found = {one.setting: one.origin for one in origins_of(path, {}, {})}
    assert found["name"].endswith("tpuctl.yaml:1:1")
    assert found["tpu.zones"].endswith(":4:3")
    assert found["vm"].endswith(":5:1")
    assert found["job.env.STEPS"].endswith(":8:9")
    assert found["tpu.spot"] == DEFAULT


def test_every_setting_has_one_row(path):
    """None is forgotten, none twice."""
    keys = [one.setting for one in origins_of(path, {}, {})]
    assert len(keys) == len(set(keys))
    assert {"watch.ttl", "job.failures", "bucket.name"} <= set(keys)


def test_the_command_shows_what_was_set_and_with_all_the_defaults_too(path, monkeypatch, capsys):
    """For people in columns, for programs as a document."""
    monkeypatch.chdir(path.parent)
    code, text, _ = here(capsys, "config", "--set", "tpu.spot=false")
    assert code == 0
    assert "(--set tpu.spot)" in text
    assert "watch.ttl" not in text
    code, text, _ = here(capsys, "config", "--all", "--json")
    settings = {one["setting"]: one for one in json.loads(text)["settings"]}
    assert (code, settings["watch.ttl"]["origin"]) == (0, DEFAULT)
