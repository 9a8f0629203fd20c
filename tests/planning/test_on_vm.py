"""A deployment whose loop may run on its VM: the VM goes last, and only such a VM may do more than the others."""

from dataclasses import replace

import pytest

from orchestrator.advice.preview import preview
from orchestrator.config.rules.every_rule import run_rules
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.domain.level import Level
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, LOOP_ROLES, MACHINE_SCOPES, vm_scopes
from orchestrator.domain.observation import Absent, Operation, Present, Unknown, VmState
from orchestrator.domain.plan import Change, Kind, Outcome, Plan, Verb
from orchestrator.domain.ports import CloudAccount
from orchestrator.domain.spec import VmSpec, WatchSpec
from orchestrator.engine.blueprint import LOOP_MARGIN, Blueprint
from orchestrator.planning.decide import decide
from tests.planning.worlds import NOW, ZONE, heartbeat, node, record, spec, vm, world

LOOPED = spec(watch=WatchSpec(on_vm=True))
DONE = Present((heartbeat(phase=Phase.DONE),))


def kinds(plan):
    """Return what a plan changes."""
    return [(c.kind, c.verb) for c in plan.changes]


def test_the_vm_is_stopped_when_no_tpu_remains_and_the_end_is_recorded():
    """A loop that stopped its own machine first could not see to the rest."""
    first = decide(LOOPED, world(heartbeats=DONE), record())
    assert kinds(first) == [(Kind.NODE, Verb.DELETE)]
    assert "the VM is stopped last" in first.waiting
    gone = world(heartbeats=DONE, nodes=Present(()))
    assert decide(LOOPED, gone, record()).empty, "the end is not recorded yet"
    assert decide(LOOPED, gone, record()).waiting
    assert kinds(decide(LOOPED, gone, record(outcome=Outcome.DONE, requested_at=0.0))) == [
        (Kind.VM, Verb.STOP)
    ]
    unseen = world(heartbeats=DONE, nodes=Unknown("503"))
    assert decide(LOOPED, unseen, record(outcome=Outcome.DONE, requested_at=0.0)).empty


def test_an_end_waits_for_a_machine_that_may_still_appear():
    """A create under way cannot be cancelled, and what it makes would be billed after the end."""
    asked = Operation("op", Kind.VM, Verb.CREATE, "demo-vm", ZONE, started_at=NOW - 60)
    gone = world(heartbeats=DONE, nodes=Present(()), vm=Absent())
    ended = record(outcome=Outcome.DONE, requested_at=0.0)
    assert decide(spec(), gone, ended).settled
    plan = decide(spec(), gone, replace(ended, operations=(asked,)))
    assert (plan.outcome, plan.settled) == (Outcome.DONE, False)
    assert plan.waiting == ("a machine is still being made; it is removed as soon as it shows",)


def test_a_stopped_vm_is_the_end():
    """Then nothing is waited for."""
    over = world(heartbeats=DONE, nodes=Present(()), vm=Present(vm(state=VmState.TERMINATED)))
    plan = decide(LOOPED, over, record(outcome=Outcome.DONE, requested_at=0.0))
    assert (plan.empty, plan.waiting) == (True, ())


def test_without_the_loop_both_go_at_once():
    """The loop runs elsewhere and outlives the VM."""
    plan = decide(spec(), world(heartbeats=DONE), record())
    assert kinds(plan) == [(Kind.NODE, Verb.DELETE), (Kind.VM, Verb.STOP)]


def test_only_a_vm_for_the_loop_may_call_every_api():
    """TPU workers never may; without watch.on_vm the VM may not either."""
    assert vm_scopes(spec()) == MACHINE_SCOPES
    assert vm_scopes(LOOPED) == (CLOUD_PLATFORM,)
    blueprint = Blueprint(replace(LOOPED, vm=VmSpec()), CloudAccount("p", "me@p"), lambda: "key")
    assert blueprint.new_vm(record()).scopes == (CLOUD_PLATFORM,)
    assert blueprint.new_node(record(), node().zone, 1).scopes == MACHINE_SCOPES


def test_the_vm_outlives_the_time_to_live_so_that_its_loop_can_end_the_deployment():
    """Google's own limit must not take the loop away before it has deleted the TPU."""
    plain, looped = (
        Blueprint(s, CloudAccount("p", "me@p"), lambda: "key").new_vm(record()) for s in (spec(), LOOPED)
    )
    assert looped.ttl - plain.ttl == LOOP_MARGIN > 0


def test_the_plan_names_scope_and_roles_with_their_reason():
    """Whoever reads it can grant them before the first `up`."""
    change = Change(Kind.VM, Verb.CREATE, "demo-vm", "there is none yet", "us-central1-a")
    details = preview(LOOPED, Plan((change,)), load_catalog()).details(change)
    assert details["scope"].startswith("cloud-platform, so that `tpuctl watch --on-vm` can ")
    assert all(role in details["its account needs"] for role in LOOP_ROLES)
    assert "scope" not in preview(spec(), Plan((change,)), load_catalog()).details(change)


def test_a_loop_needs_a_vm_that_is_started_again():
    """No VM is an error; a spot VM gets a warning."""
    catalog = load_catalog()

    def said(found):
        return [(p.level, p.message) for p in run_rules(found, catalog) if p.setting == "watch.on_vm"]

    assert said(LOOPED) == []
    ((level, text),) = said(replace(LOOPED, vm="none"))
    assert level is Level.STOP
    assert "vm is none" in text
    ((level, text),) = said(replace(LOOPED, vm=VmSpec(spot=True)))
    assert level is Level.WARN
    assert "no watcher restarts a preempted VM" in text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, False), ({"secrets": {"A": "secret://a"}}, True), ({"self_delete": True}, True),
        ({"secrets": {"A": "secret://a"}, "vm": VmSpec(service_account="loop@p")}, False),
        ({"secrets": {"A": "secret://a"}, "vm": VmSpec(service_account="loop@p"), "run_on": "vm"}, True),
        ({"secrets": {"A": "secret://a"}, "vm": VmSpec(service_account="me@p"), "account": "me@p"}, True),
    ],
)  # fmt: skip
def test_a_job_that_may_do_what_the_loop_may_is_named(changes, named):
    """In `plan` and `check`; an account for the loop alone ends it, where the job runs elsewhere."""
    job = replace(
        LOOPED.job, secrets=changes.get("secrets", {}), run_on=changes.get("run_on", LOOPED.job.run_on)
    )
    watch = replace(LOOPED.watch, self_delete=changes.get("self_delete", False))
    found = replace(
        LOOPED, job=job, watch=watch, vm=changes.get("vm", VmSpec()), service_account=changes.get("account")
    )
    reported = [p for p in run_rules(found, load_catalog()) if p.setting == "watch.on_vm"]
    assert [p.level for p in reported if "both run as the same account" in p.message] == [Level.WARN] * named


def test_a_loop_with_an_account_of_its_own_is_made_with_it():
    """The TPU keeps the other one."""
    own = replace(LOOPED, vm=VmSpec(service_account="loop@p"))
    blueprint = Blueprint(own, CloudAccount("p", "me@p"), lambda: "key")
    assert blueprint.new_vm(record()).service_account == "loop@p"
    assert blueprint.new_node(record(), node().zone, 1).service_account == "me@p"
    new = blueprint.new_bucket()
    assert (new.writer, new.vm, new.loop) == ("me@p", "loop@p", True)
