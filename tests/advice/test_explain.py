"""Why a deployment is in its state: each rule has a world in which it decides."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.advice.explain.explain import explain, explain_job
from orchestrator.advice.explain.explanation import DeploymentFacts, Entry
from orchestrator.advice.explain.rules import RULES, manual
from orchestrator.cli.views.explain import NO_STEP, render
from orchestrator.contract.phase import Phase
from orchestrator.domain.machines.capacity import after_grant
from orchestrator.domain.machines.queued_resource import QueuedResource, QueuedState
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    NodeState,
    Operation,
    OperationResult,
    Present,
    Unknown,
    VmState,
)
from orchestrator.domain.plan import Kind, LoopRule, Verb
from orchestrator.domain.record import Candidate, Refusal, Shape
from orchestrator.domain.status import WatcherStatus
from orchestrator.domain.text.units import Duration
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.deployment_state import deployment_state
from orchestrator.planning.job_digest import job_digest
from orchestrator.planning.tpu.queued_tpu import merged
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, heartbeat, node, record, spec, vm, world

DOCS = Path(__file__).parents[2] / "docs" / "explain.md"
WAITING = QueuedState.WAITING_FOR_RESOURCES
HERE = WatcherStatus(on="elsewhere", who="me@here", command="watch", renewed_age_s=3.0, alive=True)
EXPIRED = replace(HERE, renewed_age_s=61.0, alive=False)
NO_NODE = {"nodes": Present(())}
STOCKOUT = Refusal(NOW - 1, "us-central1-a", Retry.CAPACITY, "no more capacity", code="TPU-300")
WRITTEN = Entry(NOW - 9, "node", "create", "demo-tpu-g1", "there is none yet", "ok")


def observed(was=None, wants=None, watcher=HERE, usd=0.0, **shown):
    """Return what a look at a world shows, with the plan that a pass would make of it."""
    wants, now = wants or spec(), world(**shown)
    learned = update_record(was or record(), now)
    plan = decide(wants, now, learned, usd)
    state = deployment_state(wants, now, learned, plan, watched=watcher is not None)
    return DeploymentFacts(wants, now, learned, plan, state, usd / 2, usd, watcher, (WRITTEN,))


def unhealthy():
    """Return a node that Google calls unhealthy."""
    return {"nodes": Present((node(healthy=False, health="UNHEALTHY_TPU"),)), **report(updated=NOW - 300)}


def in_queue():
    """Return a TPU that is only a request in the queue."""
    place = QueuedResource("demo-tpu-g1", "us-central1-a", WAITING, 1, created_at=NOW - 3600)
    return {"nodes": Present(merged((), (place,))), "heartbeats": Present(())}


def report(**fields):
    """Return the report of the only worker."""
    return {"heartbeats": Present((heartbeat(**fields),))}


def lately(state):
    """Return a node that is in a state since now."""
    return {"nodes": Present((node(state=state),)), **report(updated=NOW - 300)}


LOST = record(first_seen={"node:1:ready": NOW - 900}, ssh_failed_since=NOW - 400, ssh_next_try_at=NOW - 1)
SILENT = record(first_seen={"node:1:ready": NOW - 1300})
BOOTS = record(first_seen={"node:1:ready": NOW - 5})
ONCE = record(accepted=True)
REFUSED = record(incarnation=2, accepted=False, requested_at=0.0, refusals=(STOCKOUT,) * 2)
FORBIDDEN = replace(STOCKOUT, retry=Retry.PERMANENT, message="TPU-202 not allowed", hint="ask the owner")
ONE_ZONE = spec(tpu=replace(spec().tpu, zones=("us-central1-a",)))
LARGER = Shape("v4-8", "tpu-ubuntu2204-base", spot=True, external_ip=True)
UNDER_WAY = Operation("op", Kind.VM, Verb.START, "demo-vm", "us-central1-a")

CASES = {
    "observation.unknown": ("tpu", observed(nodes=Unknown("503", hint="wait")), "check again"),
    "absence.unconfirmed": ("tpu", observed(ONCE, **NO_NODE), "a second look makes sure"),
    "end.done": ("deployment", observed(**report(phase=Phase.DONE)), "delete TPU demo-tpu-g1"),
    "end.uncommitted": ("deployment", observed(**report(phase=Phase.UNCOMMITTED)), "delete TPU demo-tpu-g1"),
    "end.failed": (
        "deployment", observed(**report(phase=Phase.FAILED, message="torn")), "delete TPU",
    ),
    "end.limit-reached": ("deployment", observed(record(started_at=NOW - 9e6)), "delete TPU demo-tpu-g1"),
    "end.refused": ("deployment", observed(bucket=Present(Bucket("b", "europe-west4"))), ""),
    "end.none": ("deployment", observed(), "at the latest when its ttl"),
    "end.down": ("deployment", observed(record(bundle="")), ""),
    "bucket.first": (
        "bucket", observed(record(bucket_observed=False, bucket_ready=False), bucket=Absent()), "create bucket",
    ),
    "bucket.gone": ("bucket", observed(bucket=Absent()), ""),
    "bucket.present": ("bucket", observed(), ""),
    "vm.none": ("vm", observed(wants=spec(vm="none"), vm=Absent()), ""),
    "vm.create": ("vm", observed(record(vm_accepted=False), vm=Absent()), "create VM demo-vm"),
    "vm.start": ("vm", observed(vm=Present(vm(state=VmState.TERMINATED))), "start VM demo-vm"),
    "vm.operation": (
        "vm",
        observed(
            record(operations=(UNDER_WAY,)), vm=Present(vm(state=VmState.STAGING)),
            operations=(OperationResult(UNDER_WAY, False),),
        ),
        "an operation is running",
    ),
    "vm.running": ("vm", observed(), ""),
    "tpu.create": ("tpu", observed(record(incarnation=0, accepted=False, zone=""), **NO_NODE), "create TPU"),
    "tpu.ended": ("tpu", observed(**lately(NodeState.PREEMPTED)), "delete TPU demo-tpu-g1"),
    "tpu.preempting": (
        "tpu", observed(**report(phase=Phase.STOPPED, notice=True, preempted=True)), "create TPU demo-tpu-g2",
    ),
    "tpu.race": (
        "tpu",
        observed(record(round=1, rivals=(Candidate(2, "us-central1-b", NOW),)), **lately(NodeState.CREATING)),
        "CREATING",
    ),
    "tpu.next": (
        "tpu", observed(**report(phase=Phase.STOPPING, notice=True, preempted=True)), "create TPU demo-tpu-g2",
    ),
    "tpu.creating": ("tpu", observed(**lately(NodeState.CREATING)), "CREATING"),
    "tpu.queued": ("tpu", observed(**in_queue()), "in the queue since 2027-01-15 07:00 UTC"),
    "tpu.reports": (
        "tpu", observed(nodes=Present((node(healthy=False, health="UNHEALTHY_TPU"),))), "its workers report",
    ),
    "tpu.transient-state": ("tpu", observed(**lately(NodeState.REPAIRING)), "REPAIRING"),
    "tpu.unhealthy": ("tpu", observed(**unhealthy()), "UNHEALTHY_TPU"),
    "tpu.unreachable": (
        "tpu", observed(LOST, **report(updated=NOW - 600)), "create TPU demo-tpu-g2",
    ),
    "tpu.never-reported": ("tpu", observed(SILENT, heartbeats=Present(())), "create TPU demo-tpu-g2"),
    "tpu.ready": ("tpu", observed(), ""),
    "tpu.unwanted": ("tpu", observed(record(shape=LARGER, unwanted=1)), "create TPU demo-tpu-g2"),
    "refused.wait": ("tpu", observed(REFUSED, wants=ONE_ZONE, **NO_NODE), "ask again"),
    "refused.final": ("tpu", observed(replace(REFUSED, refusals=(FORBIDDEN,)), **NO_NODE), "nothing"),
    "job.waits": ("job", observed(**lately(NodeState.PREEMPTED)), "it starts by itself"),
    "job.push": ("job", observed(record(pushed="other"), **report(bundle="old")), "update job"),
    "job.silent": ("job", observed(**report(updated=NOW - 600)), "create job"),
    "job.starts": ("job", observed(BOOTS, heartbeats=Present(())), "report"),
    "job.uncommitted": (
        "job", observed(**report(uncommitted="ckpt.pt", uncommitted_place="checkpoints")), "but in no checkpoint",
    ),
    "job.failing": ("job", observed(**report(failures=2, failure_message="exit 1")), "2 of 5 attempts in a row"),
    "job.ignores-checkpoint": ("job", observed(**report(ignored_message="step 50 is restored")), "step 50 is"),
    "saves.auto": (
        "saves",
        observed(
            **report(
                save_interval=268.0, save_pause=5.0, save_pause_from="measured", time_between_interruptions=7200.0
            )
        ),
        "a save stops the training for 5.0 s (measured), unsaved work is lost every 2 h 0 min",
    ),
    "saves.fixed": ("saves", observed(**report(save_interval=600.0)), "the file says so"),
    "job.runs": ("job", observed(), ""),
    "watcher.running": ("watcher", observed(), "the next check"),
    "watcher.lease-expired": ("watcher", observed(watcher=EXPIRED), "nothing"),
    "watcher.none": ("watcher", observed(watcher=None), "nothing"),
}  # fmt: skip


def item(name, found):
    """Return one item of an explanation."""
    (chosen,) = [p for p in found.items if p.what == name]
    return chosen


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_is_named_where_it_decides(rule):
    """What comes next is what a pass would do, and the rule's sentence is there to read."""
    what, shown, nexts = CASES[rule]
    found = explain(shown)
    reported = item(what, found)
    assert (reported.rule, nexts in f"{reported.next} {reported.message}") == (LoopRule(rule), True)
    assert found.rules[LoopRule(rule)] == RULES[LoopRule(rule)]
    assert reported.message


STARTING = record(first_seen={"node:1:creating": NOW - 60}, refusals=(STOCKOUT,))
SICK = {"nodes": Present((node(healthy=False, health="UNHEALTHY_TPU"),)), "heartbeats": Present(())}
NARROW = ("https://www.googleapis.com/auth/devstorage.read_write",)
SECRETS = spec(job=replace(spec().job, secrets={"KEY": "projects/p/secrets/key"}))
SAVING = report(phase=Phase.STOPPING, notice=True, preempted=True)
ONE_RULE = {
    "a TPU that is made after refusals is not refused": (
        "tpu", "tpu.creating", observed(STARTING, **lately(NodeState.CREATING)),
    ),
    "one that is sick and has never reported is silent": ("tpu", "tpu.never-reported", observed(SILENT, **SICK)),
    "one without a scope that its secrets need is not unreachable": (
        "tpu", "tpu.unwanted",
        observed(record(job=job_digest(SECRETS)), SECRETS, nodes=Present((node(scopes=NARROW),))),
    ),
    "one that saves while no other zone can be asked is not unreachable": (
        "tpu", "tpu.next", observed(wants=ONE_ZONE, **SAVING),
    ),
    "one that waits for a bucket that is gone is not asked for": (
        "tpu", "bucket.gone", observed(record(incarnation=0, accepted=False, zone=""), bucket=Absent(), **NO_NODE),
    ),
    "a VM with an operation on its way is not made": (
        "vm", "vm.operation",
        observed(record(operations=(UNDER_WAY,)), vm=Absent(), operations=(OperationResult(UNDER_WAY, False),)),
    ),
    "code that could not be sent is sent again": (
        "job", "job.push", observed(record(pushed="other", ssh_next_try_at=NOW + 9), **report(bundle="old")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ONE_RULE)
def test_the_rule_is_the_one_that_has_decided(case):
    """Worlds in which a look at the state alone names another rule than the one that the pass followed."""
    what, rule, shown = ONE_RULE[case]
    assert item(what, explain(shown)).rule is LoopRule(rule)


def test_every_rule_has_its_case_and_stands_in_the_manual():
    """No rule is named that nobody can look up."""
    assert {LoopRule(rule) for rule in CASES} == set(RULES) == set(LoopRule)
    assert DOCS.read_text().endswith("\n\n" + manual())


@pytest.mark.parametrize("rule", sorted(set(CASES) - {"end.down"}))  # Then no pass is made.
def test_every_change_of_the_next_pass_is_announced(rule):
    """An explanation that keeps a deletion to itself would be worse than none."""
    _, shown, _ = CASES[rule]
    reported = " ".join(p.next for p in explain(shown).items)
    for change in shown.plan.changes:
        if change.kind not in {Kind.BUNDLE, Kind.SIDECARS}:
            assert f"{change.verb.word} {change.kind.title} {change.name}".rstrip() in reported


def test_an_event_has_no_time_without_a_watcher_and_names_the_command_to_run():
    """With a watcher the next look is at most a poll away."""
    watched = item("tpu", explain(observed(**lately(NodeState.PREEMPTED))))
    assert NOW < watched.when <= NOW + 15
    assert watched.hint == ""
    alone = item("tpu", explain(observed(watcher=None, **lately(NodeState.PREEMPTED))))
    assert (alone.when, alone.hint) == (None, "tpuctl watch")


def test_the_time_of_the_next_try_is_that_of_the_gate():
    """After two refusals for capacity in a zone the wait is ten seconds from the last."""
    reported = item("tpu", explain(observed(REFUSED, wants=ONE_ZONE, **NO_NODE)))
    assert reported.when == pytest.approx(NOW - 1 + 10)
    assert [e.message for e in reported.evidence if e.message.startswith("refused in")] == [
        "refused in us-central1-a (capacity): TPU-300 no more capacity"
    ] * 2
    elsewhere = item("tpu", explain(observed(REFUSED, **NO_NODE)))
    assert "in us-central1-b" in elsewhere.next
    assert "refused in us-central1-a" in elsewhere.evidence[0].message


def test_the_headline_is_what_needs_the_user_most():
    """A lost TPU comes before a job that waits for it; an end before everything."""
    lost = explain(observed(**lately(NodeState.PREEMPTED)))
    assert lost.headline == "replacing its TPU: demo-tpu-g1 is PREEMPTED"
    alone = explain(observed(watcher=None, **lately(NodeState.PREEMPTED)))
    assert alone.headline == "TPU lost, no watcher: demo-tpu-g1 is PREEMPTED"
    assert item("deployment", alone).message.startswith("the job is not done")
    assert item("deployment", lost).message.startswith("the job is not done")
    job = item("job", alone)
    assert job.state == "stopped with its TPU", "no machine runs it"
    assert job.evidence[0].message.startswith("worker 0, last report: runs, step 10")
    job = item("job", explain(observed()))
    assert (job.state, job.evidence[0].message[:13]) == ("run", "worker 0: run")
    assert explain(observed()).headline == "running: it is at step 10"
    assert explain(observed(watcher=None)).headline.endswith(", and no watcher runs")
    assert explain(CASES["end.limit-reached"][1]).headline.startswith(
        "budget or ttl used up: the time to live of"
    )


def test_evidence_has_its_source_and_its_time():
    """Cloud, record and journal describe the same TPU; money is shown as spent of the budget."""
    watch = replace(spec().watch, budget_usd=40.0, ttl=Duration(7 * 86400))
    found = explain(observed(wants=spec(watch=watch), usd=1.5, **lately(NodeState.PREEMPTED)))
    reported = item("tpu", found).evidence
    assert {e.source for e in reported} == {"cloud", "record", "journal"}
    assert all(e.at is not None and e.at <= NOW for e in reported)
    text = item("deployment", found).evidence[-1].message
    assert text.startswith(
        "about 0.7500 to 1.50 USD so far (an estimate); the budget of 40 USD counts the higher sum"
    )
    unbilled = explain(replace(observed(wants=spec(watch=watch), usd=1.5), unbilled=True))
    assert "(an estimate, nothing is billed)" in item("deployment", unbilled).evidence[-1].message


def test_the_reason_of_the_headline_is_not_repeated_below_it():
    """A deployment that is not up has one reason, and it stands in the first line."""
    nothing = {"nodes": Present(()), "vm": Absent(), "bucket": Absent(), "heartbeats": Present(())}
    assert text_of(explain(observed(record(bundle=""), **nothing))).count("`down` has run") == 1
    assert "why" in text_of(explain(observed())), "a headline of another item leaves the reason of the first"


def test_the_end_has_its_reason_from_reports_or_the_record():
    """No list of machines says that a job is done; the lists are those of whichever cloud it is."""
    found = explain(CASES["end.done"][1])
    assert item("deployment", found).evidence[0].source == "heartbeat"
    reported = " ".join(text_of(found).split())
    assert "all workers report that the job is done (from the machine's report" in reported
    assert item("deployment", explain(CASES["end.limit-reached"][1])).evidence[0].source == "record"
    assert "from the cloud's lists" in text_of(explain(observed(**lately(NodeState.PREEMPTED))))


def text_of(found):
    """Return an explanation as shown."""
    console = Console(width=200, record=True, file=StringIO())
    render(found, console)
    return console.export_text()


def test_leftovers_after_down_are_named():
    """Machines that exist though nothing is wanted are shown, with the way to remove them."""
    reported = item("deployment", explain(observed(record(bundle=""))))
    assert [e.message.split()[0] for e in reported.evidence] == ["demo-tpu-g1", "demo-vm"]
    assert "tpuctl down" in reported.hint


def test_a_quota_that_the_old_tpu_holds_is_explained_as_the_wait_that_it_is():
    """Google's refusal advises to request more quota, which nobody has to."""
    full = Refusal(NOW - 1, "us-central1-a", Retry.QUOTA, "Quota limit", hint="request more", beside=True)
    was = record(incarnation=2, accepted=False, requested_at=0.0, refusals=(full,))
    found = item("tpu", explain(observed(was, wants=ONE_ZONE, **lately(NodeState.DELETING))))
    assert found.rule is LoopRule.REFUSED_WAIT
    assert found.message.startswith("TPU: the old one holds the quota in us-central1-a until it is deleted")
    assert (found.next, found.hint) == ("ask again when it is deleted", "nothing; that is an ordinary wait")
    assert found.when == NOW + 5, "as the sentence says, not a poll later"
    alone = observed(was, wants=ONE_ZONE, watcher=None, **lately(NodeState.DELETING))
    assert item("tpu", explain(alone)).hint == "tpuctl watch"


def test_a_quota_that_the_old_tpu_has_just_freed_is_an_ordinary_wait_too():
    """Between the end of the deletion and the next request only the refusal is left, which is no news."""
    full = Refusal(NOW - 1, "us-central1-a", Retry.QUOTA, "Quota limit", hint="request more", beside=True)
    granted = after_grant((), "us-central1-a", spec().tpu.type, NOW - 900)
    was = record(incarnation=2, accepted=False, requested_at=0.0, refusals=(full,), capacity_history=granted)
    shown = observed(was, wants=ONE_ZONE, **NO_NODE)
    found = item("tpu", explain(shown))
    assert (found.rule, found.message) == (
        LoopRule.REFUSED_WAIT,
        "the old TPU held the quota in us-central1-a until it was deleted",
    )
    assert (found.next, found.hint) == ("ask again in us-central1-a", "nothing; that is an ordinary wait")
    assert found.when == pytest.approx(NOW + shown.plan.wake_in)
    assert found.when < NOW + 10, "when the wait is over, not at the next poll of 15 s"
    texts = [one.message for one in found.evidence]
    assert "refused in us-central1-a (quota, held by a TPU of this deployment): Quota limit" in texts
    assert "us-central1-a, in all: 1 created" in texts, "no `0 refused` beside a refusal"
    # The same refusal without a TPU of ours is one of a quota that is too small.
    small = replace(was, refusals=(replace(full, beside=False),))
    refused = item("tpu", explain(observed(small, wants=ONE_ZONE, **NO_NODE)))
    assert refused.hint == "request more"
    assert refused.when == found.when, "the loop wakes when the wait is over"


def test_the_screen_names_no_next_step_where_there_is_none():
    """Programs read "nothing"; people read what they can do."""
    console = Console(width=80, record=True, file=StringIO())
    render(explain(observed(watcher=None)), console)
    text = console.export_text()
    assert "watcher: not running" in text
    assert "next" not in text.partition("watcher: not running")[2]
    assert "do    tpuctl watch" in text


def test_parts_with_nothing_to_say_stand_together_and_the_whole_fits_a_screen():
    """One screen has 24 rows; the item that needs a person must not scroll away."""
    console = Console(width=80, record=True, file=StringIO())
    found = explain(observed(watcher=None))
    # Its VM differs from the file here, which is a remark of its own.
    found = replace(found, items=tuple(replace(one, hint="" if one.ok else one.hint) for one in found.items))
    render(found, console)
    lines = console.export_text().splitlines()
    assert len(lines) < 24, lines
    settled = [one for one in found.items if one.ok and one.next in NO_STEP]
    assert len(settled) > 1
    assert sum(line.startswith("  why ") for line in lines) == len(found.items) - len(settled)
    states = {one.what: "runs" if one.what == "job" else one.state for one in found.items}
    assert all(f"{one.title}: {states[one.what]}" in lines for one in found.items)


def test_the_journal_says_what_was_made_and_nothing_of_a_job_on_an_earlier_tpu():
    """A digest alone is not known to be one of code; an old failure explains nothing of today's job."""
    old = Entry(
        NOW - 900, "job", "create", "demo", "the machines lack it", "TPU-404 no host keys of demo-tpu-g1"
    )
    code = Entry(NOW - 5, "bundle", "create", "8e099184e18b", "the bucket does not have it yet", "ok")
    facts = replace(observed(record(requested_at=NOW - 60)), journal=(old, code))
    texts = [one.message for one in explain_job(facts).evidence]
    assert "create code 8e099184e18b (the bucket does not have it yet): done" in texts
    assert not [text for text in texts if "TPU-404" in text]


def test_a_refusal_is_explained_once_and_the_journal_has_its_code():
    """Another failure of the same request keeps its text, which nothing else has."""
    text, why = "Quota limit 'TPUs' has been exceeded", "demo-tpu-g1 is PREEMPTED"
    refusal = Refusal(NOW - 8, "us-central1-a", Retry.QUOTA, text, code="TPU-350")
    lost = Entry(NOW - 30, "node", "create", "demo-tpu-g2", why, "TPU-500 no answer")
    entry = Entry(NOW - 9, "node", "create", "demo-tpu-g2", why, f"TPU-350 {text}")
    was = record(incarnation=2, accepted=False, requested_at=0.0, refusals=(refusal,))
    facts = replace(observed(was, wants=ONE_ZONE, **NO_NODE), journal=(lost, entry))
    texts = [one.message for one in item("tpu", explain(facts)).evidence]
    assert sum(text in one for one in texts) == 1
    assert f"create TPU demo-tpu-g2 ({why}): refused (TPU-350)" in texts
    assert f"create TPU demo-tpu-g2 ({why}): TPU-500 no answer" in texts
    later = item("tpu", explain(replace(facts, journal=(replace(entry, result="ok"),))))
    texts = [one.message for one in later.evidence]
    assert f"create TPU demo-tpu-g2 ({why}): accepted, then refused (TPU-350)" in texts


def test_the_refusals_that_are_listed_are_as_many_as_are_counted():
    """More than three are summed up in a line before the last ones."""
    five = tuple(replace(STOCKOUT, at=NOW - 50 + at) for at in range(5))
    was = record(incarnation=2, accepted=False, requested_at=0.0, refusals=five)
    found = item("tpu", explain(observed(was, wants=ONE_ZONE, **NO_NODE)))
    texts = [one.message for one in found.evidence]
    assert found.message == "5 refusals in the last hour, the last for capacity"
    assert [text.partition(" in ")[0] for text in texts if "refus" in text][:4] == [
        "2 earlier refusals, the last of them",
        *["refused"] * 3,
    ]


def test_a_worker_that_installs_has_reported_and_is_not_waited_for_until_a_check_over_ssh():
    """The two minutes are for a machine that has said nothing yet."""
    silent = item("job", explain(observed(BOOTS, heartbeats=Present(()))))
    assert silent.next == "a check over SSH, if no worker has reported until then"
    assert silent.when > NOW + 60
    works = observed(BOOTS, heartbeats=Present((heartbeat(phase=Phase.SETUP, step=None),)))
    installs = item("job", explain(works))
    assert (installs.next, installs.when <= NOW + works.spec.watch.poll) == ("look again", True)


def test_the_next_pass_comes_when_the_watcher_has_published_that_it_comes():
    """Who only looks does not know when the watcher looked last; a time that is over means now."""
    for at, shown in ((NOW + 4, NOW + 4), (NOW - 1, NOW)):
        published = replace(observed(**lately(NodeState.CREATING)), next_pass_at=at)
        items = {item.what: item for item in explain(published).items}
        assert items["watcher"].when == shown
    items = {item.what: item for item in explain(observed(**lately(NodeState.CREATING))).items}
    assert items["watcher"].when == NOW + spec().watch.poll
