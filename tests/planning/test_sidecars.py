"""Sidecars: which settings are refused, and when new ones are sent to running machines."""

from dataclasses import replace

import pytest

from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.observation import NodeState, Present, VmState
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.spec import JupyterSpec, SidecarsSpec, TensorboardSpec
from orchestrator.planning.decide import decide
from orchestrator.planning.sidecars import log_folder, sidecars, with_settings
from orchestrator.planning.whole_plan import plan_from_nothing
from tests.kit.records import changed
from tests.planning import worlds
from tests.planning.planning_kit import a_spec

BOTH = SidecarsSpec(TensorboardSpec(), JupyterSpec(on="tpu"))


def about_sidecars(spec, world, record):
    """Return the machines to which a pass sends settings."""
    return [c.name for c in decide(spec, world, record).changes if c.kind is Kind.SIDECARS]


def settled(spec, **more):
    """Return a record in which both machines have the settings of *spec*."""
    record = worlds.record(**more)
    record = changed(record, sidecars=with_settings(record, spec, "vm"))
    return changed(record, sidecars=with_settings(record, spec, "tpu"))


def test_without_sidecars_no_machine_is_notified():
    """Deployments of before have no note of sidecars, and need none."""
    assert about_sidecars(worlds.spec(), worlds.world(), worlds.record()) == []


def test_a_changed_setting_reaches_its_machine_only():
    """The other machine and the job are left alone; once sent, there is nothing more to do."""
    spec = worlds.spec(sidecars=BOTH)
    record = settled(spec)
    assert decide(spec, worlds.world(), record).empty
    moved = replace(spec, sidecars=replace(BOTH, jupyter=JupyterSpec(on="tpu", port=9999)))
    (change,) = decide(moved, worlds.world(), record).changes
    assert (change.kind, change.verb, change.name) == (Kind.SIDECARS, Verb.UPDATE, "demo-tpu-g1")
    assert decide(moved, worlds.world(), settled(moved)).empty


def test_a_sidecar_that_is_not_wanted_any_more_is_stopped():
    """The settings go to its machine, too; after a move, to both."""
    record = settled(worlds.spec(sidecars=BOTH))
    gone = worlds.spec(sidecars=replace(BOTH, tensorboard="none"))
    assert about_sidecars(gone, worlds.world(), record) == ["demo-vm"]
    moved = worlds.spec(sidecars=replace(BOTH, tensorboard=TensorboardSpec(on="tpu")))
    assert about_sidecars(moved, worlds.world(), record) == ["demo-vm", "demo-tpu-g1"]


def test_only_machines_that_run_are_notified():
    """What is down learns it when it is made or started again."""
    spec, record = worlds.spec(sidecars=BOTH), worlds.record()
    stopped = Present(worlds.vm(state=VmState.STOPPING))
    creating = Present((worlds.node(state=NodeState.CREATING),))
    assert about_sidecars(spec, worlds.world(vm=stopped, nodes=creating), record) == []


def test_a_plan_from_nothing_has_no_extra_step():
    """New machines are made with their sidecars."""
    spec = worlds.spec(sidecars=BOTH)
    kinds = {
        c.kind for c in plan_from_nothing(spec, load_catalog().accelerator(spec.tpu.type), "b", "a").changes
    }
    assert kinds == {Kind.BUCKET, Kind.VM, Kind.NODE, Kind.BUNDLE, Kind.JOB}


def test_the_folder_of_the_logs():
    """Below the deployment's bucket, unless it names one; known to the job also without a TensorBoard."""
    spec = worlds.spec()
    assert log_folder(spec, "b") == "gs://b/tensorboard"
    own = replace(spec, sidecars=SidecarsSpec(TensorboardSpec(logdir="runs/a/")))
    assert log_folder(own, "b") == sidecars(own, "b")[0].logdir == "gs://b/runs/a"
    other = replace(spec, sidecars=SidecarsSpec(TensorboardSpec(logdir="gs://mine/runs")))
    assert log_folder(other, "b") == "gs://mine/runs"


@pytest.mark.parametrize(
    ("settings", "key", "hint"),
    [
        ({"vm": "none", "sidecars": {"tensorboard": {}}}, "sidecars.tensorboard.on", "on: tpu"),
        ({"sidecars": {"jupyter": {"port": 80}}}, "sidecars.jupyter.port", "1024"),
        ({"sidecars": {"jupyter": {"port": 70000}}}, "sidecars.jupyter.port", "65535"),
        (
            {"sidecars": {"tensorboard": {"port": 7000}, "jupyter": {"port": 7000}}},
            "sidecars.jupyter.port",
            "another",
        ),
        ({"sidecars": {"tensorboard": {"logdir": "/var/log"}}}, "sidecars.tensorboard.logdir", "first /"),
        (
            {"sidecars": {"tensorboard": {"logdir": "a/../../x"}}},
            "sidecars.tensorboard.logdir",
            "for example",
        ),
        ({"sidecars": {"tensorboard": {"logdir": ""}}}, "sidecars.tensorboard.logdir", "for example"),
        ({"sidecars": {"tensorboard": {"logdir": "s3://b/x"}}}, "sidecars.tensorboard.logdir", "gs://"),
        ({"sidecars": {"tensorboard": {"logdir": "a\nb"}}}, "sidecars.tensorboard.logdir", "for example"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings, key, hint):
    """Each finding names its key and a way out."""
    (problem,) = run_rules(a_spec(**settings), load_catalog())
    assert problem.setting == key
    assert hint in problem.hint


def test_two_sidecars_may_have_one_port_on_two_machines():
    """Each machine has its own loopback address."""
    both = {"tensorboard": {"port": 7000}, "jupyter": {"port": 7000, "on": "tpu"}}
    assert run_rules(a_spec(sidecars=both), load_catalog()) == []
