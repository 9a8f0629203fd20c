"""What ends the bill when nobody watches: the safety nets that the plan shows, and the end that TPUs act on."""

from dataclasses import replace

from orchestrator.advice.preview import preview
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM, MACHINE_SCOPES, SELF_DELETE_ROLE, node_scopes
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.ports import CloudAccount
from orchestrator.domain.spec import VmSpec, WatchSpec
from orchestrator.domain.text.units import Duration
from orchestrator.engine.blueprint import Blueprint
from orchestrator.planning.deployment_outcome import self_delete_at
from orchestrator.planning.safety_nets import safety_nets
from tests.planning.worlds import NOW, ZONE, record, spec

ARMED = spec(watch=WatchSpec(ttl=Duration(7200), self_delete=True))


def test_the_plan_tells_each_safety_net_and_whether_it_is_armed():
    """VM by Google, TPU by itself, all by the next command."""

    def armed(wanted):
        return {net.name: net.active for net in safety_nets(wanted)}

    assert armed(spec()) == {"vm": True, "tpu": False, "all": True}
    assert armed(ARMED) == {"vm": True, "tpu": True, "all": True}
    assert armed(replace(ARMED, vm="none"))["vm"] is False
    assert "Google stops it" in safety_nets(replace(ARMED, vm=VmSpec(spot=True)))[0].message
    shown = preview(ARMED, Plan(()), load_catalog()).as_dict()["safety_nets"]
    assert [net["active"] for net in shown] == [True, True, True]


def test_the_plan_says_what_a_tpu_that_deletes_itself_needs():
    """The scope is wide only where it was asked for, and role and reason stand beside it."""
    assert node_scopes(spec()) == MACHINE_SCOPES
    assert node_scopes(ARMED) == (CLOUD_PLATFORM,)
    change = Change(Kind.NODE, Verb.CREATE, "demo-tpu-g1", "there is none yet", ZONE, 1)
    details = preview(ARMED, Plan((change,)), load_catalog()).details(change)
    assert details["lifetime"] == "deletes itself after 2h"
    assert SELF_DELETE_ROLE in details["its account needs"]
    assert "lifetime" not in preview(spec(), Plan((change,)), load_catalog()).details(change)


def test_tpus_act_on_an_end_only_when_they_may_and_the_deployment_has_begun():
    """A deadline that is switched off is written as 0, which disarms the machines that run already."""
    assert self_delete_at(ARMED, record(started_at=NOW)) == NOW + 7200
    assert self_delete_at(ARMED, record(started_at=0.0)) == 0.0
    assert self_delete_at(spec(), record(started_at=NOW)) == 0.0


def test_only_a_tpu_that_may_delete_itself_gets_the_self_deletion():
    """Its machines know the end that they were made with; the VM has Google's limit."""
    known = record(expires_at=NOW + 7200)
    armed, plain = (Blueprint(s, CloudAccount("p", "me@p"), lambda: "key") for s in (ARMED, spec()))
    made = armed.scripts("tpu", known, incarnation=1, node="demo-tpu-g1", zone=ZONE)
    assert f"TPUCTL_SELF_DELETE_AT='{NOW + 7200:.0f}'" in made.job_env
    assert "self-delete.lock" in made.self_delete_cron
    assert made.self_delete_cron in made.startup
    assert armed.new_node(known, ZONE, 1).scopes == (CLOUD_PLATFORM,)
    for other in (armed.scripts("vm", known), plain.scripts("tpu", known, node="demo-tpu-g1", zone=ZONE)):
        assert other.self_delete_cron == other.run_self_delete == ""
        assert "EXPIRES_AT" not in other.job_env + other.startup


def test_status_says_what_becomes_of_a_tpu_without_a_watcher():
    """When it goes, as a time once the deployment has started, or that it does not."""
    armed, early = safety_nets(ARMED, 1_800_000_000.0)[1], safety_nets(ARMED)[1]
    assert armed.message == "it deletes itself after 2027-01-15 10:00 UTC and at most ten minutes"
    assert early.message == "it deletes itself after 2h and at most ten minutes"
    assert safety_nets(spec(), NOW)[1] == safety_nets(spec())[1]


def test_a_flex_start_tpu_ends_by_itself():
    """Google limits its lifetime, also where nobody watches and nothing is armed by us."""
    base = spec()
    for run, lifetime in ((None, "7d"), (Duration(7200), "2h")):
        tpu = replace(base.tpu, request="flex-start", spot=False, max_run_duration=run)
        wanted = replace(base, tpu=tpu)
        for net in (safety_nets(wanted)[1], safety_nets(wanted, 1.0)[1]):
            assert (net.name, net.active, f"{lifetime} after it was given" in net.message) == (
                "tpu",
                True,
                True,
            )
