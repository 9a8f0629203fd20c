"""TPUs that come up otherwise than they should, through to the next one that works."""

import pytest

from orchestrator.domain.bucket_grants import GRANT_SETTLES
from orchestrator.domain.observation import NodeState
from orchestrator.planning.tpu.never_reported import SILENT_TIMEOUT
from tests.engine.engine_lab import OTHER_ZONE, ZONE, one_zone_spec

CREATE = "tpu.nodes.create"
G2 = {"demo-tpu-g2": NodeState.READY}


def wanted(lab, *faults, spec=None):
    """Return a controller that has asked for a TPU; its grants are as old as they need to be."""
    controller = lab.controller(spec)
    controller.want()
    lab.cloud.fail_next(CREATE, list(faults))
    return controller


def test_a_tpu_that_never_runs_its_startup_script_is_replaced_after_six_minutes(lab):
    """Only silence shows it, and that counts when the role is older; its zone is avoided for a while."""
    controller = wanted(lab, "never-reports", spec=one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE], vm="none"))
    lab.remote.error = "no way"
    began = lab.clock.now()
    controller.run(lambda _: lab.nodes() == G2, seconds=1500)
    assert lab.nodes() == G2
    assert SILENT_TIMEOUT <= lab.clock.now() - began <= GRANT_SETTLES + 60
    assert controller.record.node.zone == OTHER_ZONE


@pytest.mark.parametrize("health", ["UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE"])
def test_a_tpu_that_is_born_unhealthy_and_says_nothing_is_replaced_at_once(lab, health):
    """At most three of them in a zone; then it gets the time of any start."""
    lab.machines.silent = True
    controller = wanted(lab, *[f"born:{health}"] * 9, spec=one_zone_spec(vm="none"))
    controller.run(seconds=600)
    assert lab.mutations()[CREATE] == 4
    controller.run(seconds=1100)
    assert lab.mutations()[CREATE] == 5


def test_a_tpu_that_is_born_unhealthy_and_reports_is_not_replaced(lab):
    """What it says itself counts for more."""
    controller = wanted(lab, "born:UNHEALTHY_MAINTENANCE")
    controller.run(seconds=1800)
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}


def test_a_tpu_that_works_while_the_api_says_creating_is_not_replaced(lab):
    """For longer than any creation may last."""
    controller = wanted(lab, "late-ready:4000")
    controller.run(seconds=3600)
    assert lab.nodes() == {"demo-tpu-g1": NodeState.CREATING}
    controller.run(seconds=900)
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}


def test_a_maintenance_is_reported_once_and_nothing_is_done(lab):
    """A TPU that works through it is not replaced; the event says when it is."""
    controller = lab.up()
    before = lab.mutations()
    lab.cloud.set_node_state("demo-tpu-g1", "maintenance:600")
    controller.run(seconds=1800)
    reported = [event.message for event in controller.events if event.kind == "maintenance"]
    assert len(reported) == 1
    assert "scheduled maintenance announced for" in reported[0]
    assert lab.mutations() == before
