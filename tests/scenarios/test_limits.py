"""What the cloud refuses: permissions, quota, too many at once."""

import os
import sys

import pytest

from tests.engine.engine_lab import QUOTA, ZONE
from tests.kit.user import TIMEOUT, User

G1 = "demo-tpu-g1"
REFUSALS = {
    "permission": (3, {"denied_permissions": frozenset({"tpu.nodes.create"})}),
    "quota": (4, {"quotas": {(QUOTA, ZONE): 0}}),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_s17_a_refusal_for_good_is_not_asked_again_and_again(cloud, user, kind):
    """`up` stops at once with the reason and the matching status, at the start of a deployment and later."""
    status, change = REFUSALS[kind]
    cloud.change(**change)
    said = user.run("up")
    assert (said.code, "next:" in said.err) == (status, True)
    assert 1 <= len(cloud.asked("tpu.nodes.create")) <= 2
    assert cloud.nodes() == {}


@pytest.mark.parametrize("kind", REFUSALS)
def test_s17_a_watch_that_may_not_replace_ends_and_says_why(cloud, user, kind):
    """Permission: after two tries. Quota: after five, since an old node of ours may still hold it."""
    status, change = REFUSALS[kind]
    user.up()
    cloud.change(**change)
    cloud.model.preempt(G1, notice=False)
    said = user.run("watch")
    assert (said.code, "next:" in said.err) == (status, True)
    assert len(cloud.asked("tpu.nodes.create")) - 1 <= (2 if kind == "permission" else 5)


def test_s18_many_submissions_at_once_all_come_up(cloud):
    """
    Each begins while those before it wait, and the cloud turns half of the creates away at first.

    TPUCTL_SUBMISSIONS says how many; the reliability run takes 100.
    """
    count = int(os.environ.get("TPUCTL_SUBMISSIONS", "5"))
    turned = ["concurrent operation", "transient"]
    cloud.model.fail_next("tpu.nodes.create", turned * (count // 2))
    users = [User(cloud, f"user{n}", name=f"d{n}") for n in range(count)]
    before, codes = sys.getrecursionlimit(), []

    def submit(rest):
        if rest:
            cloud.later(1, lambda: submit(rest[1:]))
            # Those that came later wait inside its waits, so the first one sees the time of all.
            codes.append(rest[0].run("up", timeout=TIMEOUT * count).code)

    sys.setrecursionlimit(before + 200 * count)
    try:
        submit(users)
    finally:
        sys.setrecursionlimit(before)
    assert codes == [0] * count
    assert cloud.nodes() == {f"d{n}-tpu-g1": "READY" for n in range(count)}
    assert len(cloud.asked("tpu.nodes.create")) <= 2 * count
    assert not cloud.model.unused_faults()


def test_s20_what_holds_quota_is_deleted_before_the_next_is_asked_for(cloud, user):
    """
    No queued resource is ever made, whose suspended ones would hold quota. A preempted node holds it too.

    There is quota for one, and the old node takes ten minutes to go: `watch` waits for that and goes on.
    """
    cloud.change(quotas={(QUOTA, ZONE): 8})
    user.up()
    cloud.model.preempt(G1, notice=False)
    cloud.model.fail_next("tpu.nodes.delete", ["latency:600"])
    said = user.watch(900)
    assert said.code == 130
    assert list(cloud.nodes().values()) == ["READY"]
    assert list(cloud.nodes()) != [G1]
    refused = [call for call in cloud.log if call.method == "tpu.nodes.create" and call.status == 429]
    assert len(refused) == 1, "the old node has to hold the quota, and to be waited for"
    assert not [call.method for call in cloud.log if "queued" in call.method.lower()]


def test_a_quota_that_is_used_up_names_the_own_deployment_that_uses_it(cloud, user):
    """This computer knows its deployments; one in another region, or one that is down, uses nothing of it."""
    cloud.change(quotas={(QUOTA, ZONE): 8})
    user.up()
    far = User(cloud, "far", beside=user, name="far", tpu={"type": "v5litepod-4", "zones": ["us-central1-a"]})
    far.up()
    other = User(cloud, "second folder", beside=user, name="other")
    said = other.run("up")
    text = " ".join(said.err.split())
    assert said.code == 4
    uses = "the deployment demo of this computer uses it, with a v5litepod-8 in europe-west4-b"
    assert f"{uses}: `tpuctl down demo` frees it" in text
    assert "deployment far" not in text
    user.down()
    cloud.change(quotas={(QUOTA, ZONE): 0})
    assert "of this computer uses it" not in other.run("up").err
