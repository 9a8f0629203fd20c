"""All that is wrong with a deployment file is reported at once, whatever else is wrong with it."""

import json
from itertools import combinations

import pytest

from orchestrator.config.config_error import ConfigError
from orchestrator.config.load import read

GOOD = {
    "name": "demo", "tpu": {"type": "v2-8", "zones": ["us-central1-b"]}, "vm": {"disk_gb": 20},
    "job": {"command": "true"}, "watch": {"poll": "15s"},
}  # fmt: skip
STRUCTURE = (
    ("project", 12), ("tpu.spot", "maybe"), ("tpu.zon", "x"), ("tpu.strategy", "x"), ("vm.disk_gb", "big"),
    ("job.comand", "x"), ("job.env", 3), ("job.checkpoint.format", "pickle"), ("job.checkpoint.keep", "x"),
    ("job.grace", "400x"), ("watch.deadline", "yesterday"), ("sidecars.jupyter", {"port": "x"}),
    ("secure_boot", 3),
)  # fmt: skip
VALUES = (
    ("name", "Bad!"), ("tpu.type", "v9-8"), ("tpu.zones", []), ("vm.zone", "nowhere-1a"), ("bucket.name", "A"),
    ("job.command", ""), ("job.secrets", {"A": "plain"}), ("job.checkpoint.dir", "rel/.."),
    ("job.checkpoint.marker", "a/b"), ("job.target_steps", -3), ("job.failures", 0), ("job.python", "2"),
    ("watch.budget_usd", -1), ("network", "bad net"), ("tags", ["UPPER"]), ("impersonate", "x"),
    ("notify.webhooks", ["ftp://x"]), ("sidecars.tensorboard", {"port": 80}),
)  # fmt: skip


def reported(*mistakes):
    """Return the keys that are reported in a file with these mistakes, each with a place."""
    file = json.loads(json.dumps(GOOD))
    for key, value in mistakes:
        *sections, name = key.split(".")
        place = file
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    with pytest.raises(ConfigError) as caught:
        read(json.dumps(file).encode(), "tpuctl.yaml", {}, {})
    assert all(one.line == 1 and one.col and one.hint for one in caught.value.findings)
    return {one.setting for one in caught.value.findings}


def test_no_mistake_hides_another_one():
    """
    Each pair of mistakes gives the findings of both, of whatever kind they are.

    A wrong zone of the VM is judged by the TPU's zones, which a mistyped key may mean: that pair is left out.
    """
    alone = {mistake[0]: reported(mistake) for mistake in STRUCTURE + VALUES}
    hidden = {
        (one[0], other[0]): (alone[one[0]] | alone[other[0]]) - reported(one, other)
        for one, other in combinations(STRUCTURE + VALUES, 2)
    }
    assert len(hidden) == 465
    del hidden["tpu.zon", "vm.zone"]
    assert {pair: keys for pair, keys in hidden.items() if keys} == {}


def test_all_mistakes_together_are_reported_together():
    """One file with all of them: nobody corrects it twice."""
    alone = set().union(*(reported(mistake) for mistake in STRUCTURE + VALUES))
    # Without its section's right keys nothing is known of what they say.
    assert alone - reported(*STRUCTURE, *VALUES) <= {"vm.zone"}


def test_a_list_where_names_belong_is_answered_with_the_names():
    """The names of a mapping are no other form of its value."""
    file = json.dumps({"name": "m", "notify": {"hooks": ["./after.sh"]}})
    with pytest.raises(ConfigError) as caught:
        read(file.encode(), "tpuctl.yaml", {}, {})
    (one,) = (found for found in caught.value.findings if found.setting == "notify.hooks")
    assert one.message == 'expected settings, got ["./after.sh"]'
    assert one.hint.startswith("write NAME: value, where NAME is one of up, preempted")
