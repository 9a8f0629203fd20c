"""`tpuctl adopt`: what it takes, what it refuses, and what a kill at any call leaves."""

import sys

import pytest

from tests.cli.cli_kit import Terminal
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User

ZONE = "europe-west4-b"
BODY = {
    "acceleratorType": "v5litepod-8",
    "runtimeVersion": "v2-alpha-tpuv5-lite",
    "schedulingConfig": {"spot": True},
    "networkConfig": {"enableExternalIps": True},
    "labels": {"owner": "me"},
    "metadata": {"ssh-keys": "me:ssh-ed25519 AAAA mine"},
}


def by_hand(cloud, name="theirs", zone=ZONE, **more):
    """Make a TPU as somebody does without tpuctl."""
    cloud.model.tpu.create(zone, name, {**BODY, **more})
    cloud.wait(60)


def labels(cloud, name="theirs", zone=ZONE):
    """Return the labels of a TPU."""
    return cloud.model.tpu.get(zone, name).body["labels"]


def jobs(cloud):
    """Return the machines on which the job runs."""
    return [worker.id for worker in cloud.machines.workers.values() if worker.running]


def test_an_adopted_tpu_runs_the_job_and_its_successor_is_ours(cloud):
    """Labels and keys of its owner stay; after a preemption the next TPU is one of tpuctl."""
    by_hand(cloud)
    user = User(cloud)
    said = user.run("adopt", "theirs", "--yes", "--json")
    assert said.code == 0, said.err
    assert said.err.count("Code: ") == 1
    assert said.document["incarnation"] == 1
    assert labels(cloud) == {
        "owner": "me", "tpuctl-deployment": "demo", "tpuctl-role": "tpu", "tpuctl-incarnation": "1",
        "tpuctl-adopted": "yes",
    }  # fmt: skip
    keys = cloud.model.tpu.get(ZONE, "theirs").body["metadata"]["ssh-keys"].splitlines()
    assert keys[0] == "me:ssh-ed25519 AAAA mine"
    assert len(keys) == 2
    assert cloud.in_use() == ["theirs"]
    assert len(jobs(cloud)) == 1
    before = cloud.mutations()
    assert user.run("adopt", "theirs", "--yes").code == 0
    assert [one for one in cloud.mutations()[len(before) :] if one[0] == "tpu.nodes.update"] == []
    cloud.model.tpu.preempt(cloud.model.tpu.get(ZONE, "theirs"), notice=False)
    user.watch(900)
    assert cloud.in_use() == ["demo-tpu-g2"]
    assert user.down().code == 0
    assert cloud.nodes() == {}


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"acceleratorType": "v5litepod-4"}, "tpu.type: v5litepod-4"),
        ({"runtimeVersion": "tpu-ubuntu2204-base"}, "tpu.runtime: tpu-ubuntu2204-base"),
        ({"schedulingConfig": {"spot": False}}, "tpu.spot: false"),
        ({"networkConfig": {"enableExternalIps": False}}, "tpu.external_ip: false"),
    ],
)
def test_another_shape_is_refused_with_the_line_to_change(cloud, body, line):
    """The next `up` would replace such a TPU; nothing is changed before."""
    by_hand(cloud, **body)
    before = len(cloud.log)
    said = User(cloud).run("adopt", "theirs", "--yes")
    assert said.code == 2
    assert f"    {line}" in said.err
    assert "nothing was changed" in said.err
    assert len(cloud.log) == before


def test_the_line_that_is_named_lets_it_be_adopted(cloud):
    """The change of the file that the message names is enough."""
    by_hand(cloud, acceleratorType="v5litepod-4")
    user = User(cloud, tpu__type="v5litepod-4")
    assert user.run("adopt", "theirs", "--yes").code == 0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"labels": {"tpuctl-deployment": "other"}}, "belongs to the deployment other"),
        (
            {"serviceAccount": {"scope": ["https://www.googleapis.com/auth/logging.write"]}},
            "may not use the bucket",
        ),
    ],
)
def test_what_no_line_can_mend_is_refused(cloud, more, why):
    """The owner's deployment, and scopes, which cannot be changed."""
    by_hand(cloud, **more)
    before = labels(cloud)
    said = User(cloud).run("adopt", "theirs", "--yes")
    assert (said.code, labels(cloud)) == (2, before)
    assert why in said.err


def test_another_region_is_refused(cloud):
    """Bucket and TPU share one region."""
    by_hand(cloud, zone="us-west4-a")
    said = User(cloud).run("adopt", "theirs", "--zone", "us-west4-a", "--yes")
    assert said.code == 2
    assert "it is in us-west4, and the bucket in europe-west4" in said.err


def test_a_second_tpu_is_refused(cloud):
    """One TPU, never two."""
    user = User(cloud)
    user.up()
    by_hand(cloud)
    said = user.run("adopt", "theirs", "--yes")
    assert said.code == 2
    assert "the deployment has a TPU already: demo-tpu-g1" in said.err
    assert labels(cloud) == {"owner": "me"}


def test_a_name_that_is_nowhere_is_said_with_the_zones(cloud):
    """A slip of the pen makes nothing."""
    said = User(cloud).run("adopt", "their", "--yes")
    assert said.code == 2
    assert f"there is no TPU their in {ZONE}" in said.err
    assert cloud.buckets() == []


def test_without_a_host_key_nothing_is_done(cloud):
    """What answers could be anybody."""
    by_hand(cloud)
    cloud.model.kernel.state.guest.clear()
    said = User(cloud).run("adopt", "theirs", "--yes")
    assert said.code == 2
    assert "has published no host key" in said.err
    assert cloud.buckets() == []


def test_a_no_changes_nothing(cloud, monkeypatch):
    """It says first what it would change."""
    by_hand(cloud)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    before = labels(cloud)
    said = User(cloud).run("adopt", "theirs")
    assert (said.code, labels(cloud), cloud.buckets()) == (1, before, [])
    assert "labels of the deployment" in said.err


@pytest.mark.parametrize("answer", ["keep", "delete", None])
def test_down_deletes_what_was_adopted_only_when_the_user_says_so(cloud, answer):
    """Kept, it is as before: no label, no key, no job; without an answer it is kept."""
    by_hand(cloud)
    user = User(cloud)
    assert user.run("adopt", "theirs", "--yes").code == 0
    words = ("--at-down", answer) if answer else ()
    said = user.run("down", "--yes", *words)
    assert said.code == 0, said.err
    if answer == "delete":
        assert ("- TPU theirs" in said.err, cloud.nodes()) == (True, {})
        return
    # What may stay is not listed among what goes.
    fate = "is given back" if answer else "was adopted: given back unless you choose to delete it"
    assert f"  TPU theirs {ZONE} READY, {fate}" in said.err
    assert "this ends" not in said.err
    assert labels(cloud) == {"owner": "me"}
    assert cloud.model.tpu.get(ZONE, "theirs").body["metadata"]["ssh-keys"] == "me:ssh-ed25519 AAAA mine"
    assert jobs(cloud) == []
    assert "gcloud compute tpus tpu-vm delete theirs" in said.err
    # A later deployment starts with a TPU of its own.
    user.up()
    assert cloud.in_use("demo") != []


@pytest.mark.parametrize(("answer", "remaining"), [("y\nn\n", ["theirs"]), ("y\ny\n", [])])
def test_down_asks_a_second_time(cloud, monkeypatch, answer, remaining):
    """The first yes is about what tpuctl has made."""
    by_hand(cloud)
    user = User(cloud)
    assert user.run("adopt", "theirs", "--yes").code == 0
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    said = user.run("down")
    assert said.code == 0, said.err
    assert "tpuctl has not made theirs" in said.err
    assert cloud.in_use() == remaining


def calls_of_adopt(tmp_path):
    """Return how many mutating calls an undisturbed `adopt` makes."""
    with VirtualCloud(tmp_path / "counted").open() as one:
        by_hand(one)
        return User(one).run("adopt", "theirs", "--yes").calls


@pytest.mark.parametrize("then", ["adopt", "up", "down"])
def test_a_kill_at_any_call_is_put_right(tmp_path, then):
    """Before and after each call: adopted by the next try; `up` and `down` never touch it before it is ours."""
    total = calls_of_adopt(tmp_path)
    assert total > 10
    tried = 0
    for number in range(1, total + 1):
        for moment in ("before", "after"):
            with VirtualCloud(tmp_path / f"{then}-{number}-{moment}").open() as cloud:
                by_hand(cloud)
                user = User(cloud)
                killed = user.run("adopt", "theirs", "--yes", kill=(number, moment))
                if killed.code is not None:
                    continue
                tried += 1
                ours = "tpuctl-deployment" in labels(cloud)
                if then == "adopt":
                    said = user.run("adopt", "theirs", "--yes")
                    assert said.code == 0, (number, moment, said.err)
                    assert cloud.in_use() == ["theirs"]
                    assert len(jobs(cloud)) == 1
                elif then == "up":
                    user.up()
                    cloud.wait(300)
                    mine = cloud.in_use("demo")
                    assert "theirs" in cloud.nodes()
                    assert mine == ([] if ours else mine[:1]), (number, moment, mine)
                    # A job that a killed `adopt` has left there has a smaller number, and is fenced by it.
                    numbers = [w.incarnation for w in cloud.machines.workers.values() if w.running]
                    assert len(set(numbers)) == len(numbers), (number, moment, numbers)
                else:
                    # Its label may come while `down` is at work: then it is named as left, and asked for next.
                    while (said := user.run("down", "--yes")).code == 5:
                        assert "TPU theirs" in said.err
                    assert said.code == 0, (number, moment, said.err)
                    assert labels(cloud) == {"owner": "me"}, (number, moment)
                    assert cloud.in_use("demo") == []
    assert tried > total
