"""The rules of the deployment file: each table row is one mistake and the setting that the error names."""

from pathlib import Path

import pytest

from orchestrator.config import schema as schema_file
from orchestrator.config.rules.every_rule import RULES, run_rules
from orchestrator.config.schema import json_schema, property_of
from orchestrator.config.setting_types import settings
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.level import Level
from orchestrator.domain.text.units import Duration
from tests.planning.planning_kit import a_spec

FLEX = {"tpu__request": "flex-start", "tpu__spot": False, "tpu__zones": ["us-west4-a"]}
RESERVED = {"tpu__reservation": "mine", "tpu__request": "queued", "tpu__spot": False}
MISTAKES = [
    ({"name": "Bad"}, "name", "cannot name"),
    ({"name": "a" * 41}, "name", "cannot name"),
    ({"name": "a-"}, "name", "cannot name"),
    ({"name": "my-google-model"}, "name", "refuses"),
    ({"project": "My Project"}, "project", "not a project id"),
    ({"service_account": "me"}, "service_account", "not an e-mail"),
    ({"tpu__type": "v9-8"}, "tpu.type", 'unknown type "v9-8"'),
    ({"tpu__type": "tpu7x-2x2x1"}, "tpu.type", "Compute Engine and GKE only"),
    ({"tpu__zones": []}, "tpu.zones", "names no zone"),
    ({"tpu__zones": ["europe-west4-z"]}, "tpu.zones[0]", "unknown TPU zone"),
    ({"tpu__zones": ["europe-west4-b", "europe-west4-b"]}, "tpu.zones[1]", "twice"),
    ({"tpu__zones": ["europe-west4-b", "us-west4-a"]}, "tpu.zones[1]", "not in the same region"),
    ({"tpu__zones": ["us-central2-b"]}, "tpu.zones[0]", "has no v5litepod-16"),
    ({**RESERVED, "tpu__reservation": "a b"}, "tpu.reservation", "neither a name nor projects"),
    ({**RESERVED, "tpu__spot": True}, "tpu.reservation", "not spot"),
    ({**RESERVED, "tpu__request": "node"}, "tpu.reservation", "for queued resources only"),
    ({**RESERVED, "tpu__zones": ["europe-west4-b", "europe-west4-a"]}, "tpu.zones", "is in one zone"),
    (
        {**RESERVED, "tpu__reservation": "projects/p/locations/us-west4-a/reservations/mine"},
        "tpu.zones",
        "is in us-west4-a",
    ),
    ({"watch__last_resort": "flex-start"}, "watch.last_resort", "needs watch.deadline"),
    ({"tpu__disks": ["My_Disk"]}, "tpu.disks[0]", "neither the name of a disk"),
    ({"tpu__disks": ["d:rw"]}, "tpu.disks[0]", "neither the name of a disk"),
    ({"tpu__disks": ["d", "d:read-only"]}, "tpu.disks[1]", "twice"),
    ({"tpu__disks": ["d:read-write"]}, "tpu.disks[0]", "4 machines, and only one"),
    (
        {"tpu__disks": ["d:read-write"], "tpu__type": "v5litepod-8", "tpu__strategy": "race"},
        "tpu.disks[0]",
        "several TPUs are requested at once",
    ),
    ({**FLEX, "tpu__spot": True}, "tpu.request", "not spot"),
    ({**FLEX, "tpu__max_run_duration": Duration(604801)}, "tpu.max_run_duration", "is not between 1s and 7d"),
    ({"tpu__max_run_duration": Duration(60)}, "tpu.max_run_duration", "only to flex-start"),
    ({"vm__zone": "us-west4-a"}, "vm.zone", "outside the TPU's region europe-west4"),
    ({"vm__zone": "here"}, "vm.zone", "not a zone"),
    ({"vm__disk_gb": 9}, "vm.disk_gb", "too small"),
    ({"bucket__prefix": "runs/a"}, "bucket.prefix", "only a folder of an adopted bucket"),
    (
        {"bucket__prefix": "/runs", "bucket__adopt": True, "bucket__name": "theirs"},
        "bucket.prefix",
        "cannot be",
    ),
    (
        {"bucket__prefix": "a/checkpoints", "bucket__adopt": True, "bucket__name": "theirs"},
        "bucket.prefix",
        "itself",
    ),
    ({"bucket__location": "us-west4"}, "bucket.location", "not the TPU's region europe-west4"),
    ({"bucket__location": "EU"}, "bucket.location", "not the TPU's region europe-west4"),
    ({"network": "global/networks/x"}, "network", "projects/P/global/networks/NAME"),
    ({"network": "Lab"}, "network", "neither the name of a network"),
    ({"subnetwork": "west/4"}, "subnetwork", "projects/P/regions/R/subnetworks/NAME"),
    ({"tags": ["ok", "No"]}, "tags[1]", "is not a network tag"),
    ({"vm": {"image": "debian-13"}}, "vm.image", "is not the path of an image"),
    ({"bucket__soft_delete": Duration(86400)}, "bucket.soft_delete", "1d is not between 7d and 90d"),
    (
        {"bucket__soft_delete": Duration(604800), "bucket__name": "bbb", "bucket__adopt": True},
        "bucket.soft_delete",
        "never changed",
    ),
    ({"vm__service_account": "me"}, "vm.service_account", "not an e-mail"),
    ({"bucket__name": "No_Caps"}, "bucket.name", "cannot name a bucket"),
    ({"bucket__name": "ab"}, "bucket.name", "cannot name a bucket"),
    ({"bucket__name": "goog-1"}, "bucket.name", "refuses"),
    ({"bucket__adopt": True}, "bucket.adopt", "name of the bucket"),
    ({"job__command": " "}, "job.command", "is empty"),
    ({"job__run_on": "vm", "vm": "none"}, "job.run_on", "vm is none"),
    ({"job__image": "Train:1"}, "job.image", "not the name of a container image"),
    ({"job__image": "-v/:/host"}, "job.image", "not the name of a container image"),
    ({"job__image": "gcr.io/p/train:1", "job__run_on": "vm"}, "job.image", "the VM has no docker"),
    ({"job__image": "gcr.io/p/train:1", "job__python": "3.12"}, "job.python", "has its own Python"),
    (
        {"job__image": "a/b:1", "job__env": {"DOCKER_HOST": "x"}},
        "job.env.DOCKER_HOST",
        "read by docker itself",
    ),
    ({"job__env": {"1A": "x"}}, "job.env.1A", "not a name"),
    ({"job__env": {"TPUCTL_X": "x"}}, "job.env.TPUCTL_X", "set by tpuctl"),
    ({"job__env": {"TPU_NAME": "x"}}, "job.env.TPU_NAME", "set by tpuctl"),
    ({"job__env": {"A": "x\0y"}}, "job.env.A", "zero byte"),
    ({"job__checkpoint": {"format": "hf", "dir": "bucket"}}, "job.checkpoint.dir", "uploads hf"),
    (
        {"job__checkpoint": {"format": "tf", "dir": "gs://b/x"}},
        "job.checkpoint.dir",
        "has one bucket",
    ),
    ({"job__checkpoint": {"format": "torch", "dir": "gs://b/x"}}, "job.checkpoint.dir", "local folder"),
    ({"job__checkpoint": {"dir": "gs://b/x"}}, "job.checkpoint.dir", "has one bucket"),
    ({"job__checkpoint": {"dir": "out"}}, "job.checkpoint.dir", "relative"),
    ({"job__checkpoint": {"keep": 1}}, "job.checkpoint.keep", "too few"),
    ({"job__checkpoint": {"marker": "a/b"}}, "job.checkpoint.marker", "plain file name"),
    ({"job__failures": 0}, "job.failures", "no start"),
    ({"job__target_steps": 0}, "job.target_steps", "must be at least 1, got 0"),
    ({"watch__poll": "0.5s"}, "watch.poll", "too often"),
    ({"watch__ttl": "10s"}, "watch.ttl", "second pass"),
    ({"watch__budget_usd": 0}, "watch.budget_usd", "not a budget"),
    ({"watch__budget_usd": float("nan")}, "watch.budget_usd", "not a budget"),
    ({"watch__budget_usd": float("inf")}, "watch.budget_usd", "not a budget"),
    ({"watch__budget_usd": 5, "vm__machine_type": "e9-huge"}, "watch.budget_usd", "cannot be kept"),
]


def findings(**overrides):
    """Return the findings of a deployment with overrides."""
    return run_rules(a_spec(**overrides), load_catalog())


@pytest.mark.parametrize(("overrides", "key", "words"), MISTAKES, ids=lambda value: str(value)[:40])
def test_each_mistake_is_reported_once_at_its_key(overrides, key, words):
    """One mistake gives one finding that stops, at the key that has to change."""
    found = [finding for finding in findings(**overrides) if finding.level is Level.STOP]
    assert [finding.setting for finding in found] == [key]
    assert words in found[0].message


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"vm": "none"},
        {"job__run_on": "vm"},
        {"job__checkpoint": {"format": "orbax", "dir": "bucket"}},
        {"job__checkpoint": {"format": "marker", "dir": "bucket"}},
        {"job__checkpoint": {"dir": "bucket"}},
        {"job__checkpoint": {"dir": "/data/out"}},
        {"bucket__location": "europe-west4", "bucket__name": "mine.1_a", "bucket__adopt": True},
        {"bucket__location": "EUROPE-WEST4"},
        {"vm__zone": "europe-west4-c", "vm__disk_gb": 10},
        {"watch__budget_usd": 0.5, "watch__poll": "1s"},
        {"name": "a"},
        {"job__image": "europe-docker.pkg.dev/p/r/train:1"},
        {"job__image": f"localhost:5000/a__b/train@sha256:{'a' * 64}"},
        {"name": "a" * 40},
        {"tpu__runtime": "tpu-vm-tf-2.17.1-pjrt"},
    ],
    ids=str,
)
def test_what_is_right_has_no_finding(overrides):
    """The rules refuse nothing that works."""
    assert findings(**overrides) == []


def test_the_zones_that_have_the_type_are_named():
    """A wrong zone is answered with the right ones."""
    (found,) = findings(tpu__type="v4-8", watch__budget_usd=None)
    assert found.hint == "zones with it: us-central2-b"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        ({"vm__machine_type": "e2-smal"}, "vm.machine_type"),
        ({"tpu__runtime": "v2-alpha-tpuv5-lit"}, "tpu.runtime"),
        (
            {"tpu__type": "v4-8", "tpu__zones": ["us-central2-b"], "watch__budget_usd": None},
            "vm.machine_type",
        ),
        ({"job__grace": "45s"}, "job.grace"),
        ({"job__image": "gcr.io/p/train"}, "job.image"),
        (
            {"tpu__type": "v4-8", "tpu__zones": ["us-central2-b"], "vm": "none", "watch__budget_usd": 9},
            "watch.budget_usd",
        ),
    ],
)
def test_what_may_still_work_is_a_warning(overrides, key):
    """Our tables may be old, so what they lack is reported and not refused."""
    (found,) = findings(**overrides)
    assert (found.setting, found.level) == (key, Level.WARN)


def test_a_rule_is_skipped_where_its_setting_is_broken():
    """A stand-in for a broken value must not be blamed."""
    spec = a_spec(tpu__type="v4-8")
    assert run_rules(spec, load_catalog(), {("tpu", "type")}) == []
    assert run_rules(spec, load_catalog(), {("tpu",)}) == []
    assert run_rules(spec, load_catalog(), {("tpu", "zones", 0)}) == []
    assert len(run_rules(spec, load_catalog(), {("vm",)})) == 1


def test_rules_read_settings_that_exist():
    """A rule that names a key wrongly would never be left out."""
    assert {read for rule in RULES for read in rule.reads} <= set(settings())


def test_every_problem_says_what_to_do():
    """No message stands without a next step."""
    found = [finding for overrides, _, _ in MISTAKES for finding in findings(**overrides)]
    assert [finding.setting for finding in found if not finding.hint] == []


@pytest.mark.parametrize("word", ["v5e-16", "V5E-16", "v5lite-16", "v5litepod16"])
@pytest.mark.parametrize("where", ["tpu__type", "tpu__other_types"])
def test_the_everyday_name_of_a_type_is_understood(word, where):
    """People write v5e-16; the nearest name by letters would be another generation."""
    spec = a_spec(**{where: (word,) if where.endswith("s") else word})
    (hint,) = [
        p.hint
        for p in run_rules(spec, load_catalog())
        if p.setting.startswith("tpu.") and "v5" in p.message.lower()
    ]
    assert hint == "the API calls it v5litepod-16"


def test_a_hook_that_was_written_for_a_shell_is_warned_of():
    """No shell reads it, so its pipe would be an argument of its first program, in silence."""
    hooks = {"done": "cat >> told", "failed": "sh -c 'cat >> told'"}
    found = run_rules(a_spec(notify__hooks=hooks), load_catalog())
    (finding,) = [p for p in found if p.setting.startswith("notify")]
    assert (finding.setting, finding.level) == ("notify.hooks.done", Level.WARN)
    assert ">>" in finding.message


BOUNDED = {key: one.bounds for key, one in settings().items() if one.bounds}


@pytest.mark.parametrize("key", BOUNDED)
def test_a_bound_stands_once_beside_its_field(key):
    """The rule, its words and the schema come from there; the bounds themselves are allowed."""
    bounds = BOUNDED[key]
    upper = () if bounds.maximum is None else (bounds.maximum, bounds.maximum + 1)
    for number in (bounds.minimum - 1, bounds.minimum, *upper):
        spec = a_spec(**{key.replace(".", "__"): number})
        found = [(p.message, p.hint) for p in run_rules(spec, load_catalog()) if p.setting == key]
        assert found == ([] if bounds.hold(number) else [(f"{number} {bounds.says}", bounds.hint)])
    schema = property_of(json_schema(), key)
    assert {word: schema.get(word) for word in ("minimum", "maximum")} == {
        "minimum": bounds.minimum, "maximum": bounds.maximum
    }  # fmt: skip


def test_no_other_place_has_the_bounds_of_a_number():
    """A second one would be forgotten when the first one changes."""
    assert len(BOUNDED) >= 6
    assert "minimum" not in Path(schema_file.__file__).read_text()
