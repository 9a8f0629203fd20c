"""What people read about a change once it is made."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.engine.reconcile import deliver
from orchestrator.engine.reconcile.apply import Actor

NEW = "634782e9646784354c52"


@pytest.mark.parametrize("why", ["it is PREEMPTED", "the job is done", "TPU #3 is not the newest"])
def test_the_reason_of_a_deletion_is_printed_as_the_plan_has_it(why, monkeypatch):
    """No sentence is made by editing another one: the plan's reason does not repeat the TPU's name."""
    actor = Actor.__new__(Actor)
    monkeypatch.setattr(Actor, "_nodes", SimpleNamespace(delete=lambda *_: None))
    actor._remember = lambda _: None
    change = Change(Kind.NODE, Verb.DELETE, "toy-tpu-g3", why, "europe-west4-b", 3)
    assert actor._delete_node(change, None) == f"Deleting TPU toy-tpu-g3 ({why})"


@pytest.mark.parametrize(
    ("verb", "sent", "before", "said"),
    [
        (Verb.CREATE, 0, "", "1 machine has the code (from the bucket) and prepares the job"),
        (Verb.UPDATE, 0, NEW, "1 machine has the code (unchanged) and prepares the job"),
        (Verb.CREATE, 9000, "", "1 machine has the code (9 kB sent over SSH) and prepares the job"),
        (
            Verb.UPDATE,
            9000,
            "c70acaefa760d20250c7",
            "1 machine has new code 634782e96467 (was c70acaefa760, 9 kB sent over SSH) and prepares the job",
        ),
    ],
)
def test_a_delivery_says_how_the_code_came_and_which_code_it_replaces(verb, sent, before, said, monkeypatch):
    """A TPU loads it from the bucket as it boots, and SSH sends only what is not there."""
    monkeypatch.setattr(deliver, "node_hosts", lambda *_: ["host"])
    monkeypatch.setattr(deliver, "_job_env", lambda *_: "")
    monkeypatch.setattr(deliver, "begin_script", lambda **_: "")
    monkeypatch.setattr(deliver, "stop_seconds", lambda _: 0.0)
    remote = SimpleNamespace(
        push=lambda *_: [SimpleNamespace(error="", sent_bytes=sent)],
        put=lambda *_: None,
        run_elevated=lambda *_: [SimpleNamespace(exit_code=0)],
    )
    blueprint = SimpleNamespace(spec=SimpleNamespace(job=SimpleNamespace(run_on="tpu")))
    record = SimpleNamespace(job=SimpleNamespace(bundle=NEW), node=SimpleNamespace(incarnation=1))
    artifacts = SimpleNamespace(bundle=Path(), agent=SimpleNamespace(read_bytes=lambda: b""))
    change = Change(Kind.JOB, verb, "toy", "", "europe-west4-b", 1)
    world = SimpleNamespace(heartbeats_of=lambda _: (SimpleNamespace(bundle=before),))
    cloud = SimpleNamespace(remote=remote)
    words = deliver.deliver(cloud, blueprint, artifacts, record, None, world, change)
    assert words == said
