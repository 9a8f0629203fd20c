"""Decisions about places: zones that changed, zones that refuse, a bucket that is gone."""

import pytest

from orchestrator.domain.observation import Absent, NodeState, Present, VmState
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Refusal
from orchestrator.domain.spec import TpuSpec
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, node, record, spec, vm, world


def test_a_zone_that_the_file_no_longer_names_is_not_used_again():
    """A grant belongs to zones; the unconfirmed create there is not repeated, a new name goes to the new zone."""
    moved = spec(tpu=TpuSpec(type="v5litepod-8", zones=("us-central1-c",)))
    plan = decide(moved, world(nodes=Present(())), record(accepted=False))
    assert [(c.zone, c.incarnation) for c in plan.changes if c.kind is Kind.NODE] == [("us-central1-c", 2)]


def test_no_tpu_is_bought_when_the_bucket_with_the_data_is_gone():
    """No machine could start the job without its bucket."""
    plan = decide(spec(), world(bucket=Absent(), nodes=Present(())), record(accepted=False))
    assert plan.empty


@pytest.mark.parametrize("observed", [Absent(), Present(vm(state=VmState.TERMINATED))])
def test_no_vm_is_made_or_started_when_the_bucket_with_the_data_is_gone(observed):
    """`down --delete-data` on another computer took both: a loop that slept meanwhile must not begin again."""
    since = {"vm:absent": NOW - 300, "bucket:absent": NOW - 300}
    gone = world(bucket=Absent(), nodes=Present(()), vm=observed)
    assert decide(spec(), gone, record(accepted=False, first_seen=since)).empty


def test_nothing_is_pushed_to_a_node_that_is_replaced_in_the_same_pass():
    """Its machines are gone before the push is there."""
    lost = world(nodes=Present((node(state=NodeState.PREEMPTED),)))
    plan = decide(spec(), lost, record(settings_due=True))
    assert all(c.kind is not Kind.JOB for c in plan.changes)


def test_a_zone_without_quota_does_not_end_the_search_while_another_lacks_capacity():
    """Capacity comes back by itself, so the deployment goes on asking there."""
    refusals = tuple(Refusal(NOW - 5000 + i, ZONE, Retry.QUOTA) for i in range(9))
    refusals += (Refusal(NOW - 4000, OTHER_ZONE, Retry.CAPACITY),)
    plan = decide(spec(), world(nodes=Present(())), record(accepted=False, refusals=refusals))
    assert [c.zone for c in plan.changes] == [OTHER_ZONE]
