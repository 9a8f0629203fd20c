"""`tpuctl adopt --bucket`: labels first, then a normal lifetime; what is somebody else's is never deleted."""

import pytest

from orchestrator.emulator.state.storage.stored import Preconditions
from tests.cli.cli_kit import Terminal
from tests.cli.test_adopt import BODY, ZONE
from tests.kit.cloud import VirtualCloud
from tests.kit.user import User
from tests.kit.wire import PROJECT

NAME = "their-data"
UNIFORM = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}


@pytest.fixture
def cloud(tmp_path):
    """Give a cloud with a bucket that somebody has made."""
    with VirtualCloud(tmp_path).open() as one:
        by_hand(one)
        yield one


def by_hand(cloud, name=NAME, **fields):
    """Make a bucket as somebody does without tpuctl."""
    body = {"name": name, "location": "EUROPE-WEST4", "labels": {"owner": "me"}, **UNIFORM, **fields}
    cloud.storage.buckets.create(PROJECT, body)


def labels(cloud, name=NAME):
    """Return the labels of a bucket."""
    return cloud.storage.buckets.get(name, "storage.buckets.get").fields["labels"]


def granted(cloud, name=NAME):
    """Return whether the machines may do anything with a bucket."""
    return cloud.storage.buckets.policy(name)["bindings"] != []


def user_of(cloud, **more):
    """Return a user whose file names the bucket."""
    return User(cloud, bucket__name=NAME, **more)


def test_an_adopted_bucket_holds_the_deployment_and_is_given_back(cloud):
    """Labels and objects of its owner stay; `down` without --delete-data leaves it the deployment's."""
    cloud.put_object("theirs.txt", b"precious")
    user = user_of(cloud)
    said = user.run("adopt", "--bucket", NAME, "--yes", "--json")
    assert said.code == 0, said.err
    assert said.document == {
        "schema_version": 1, "kind": "adopt-bucket", "bucket": NAME, "at_down": "keep",
    }  # fmt: skip
    assert labels(cloud) == {
        "owner": "me", "tpuctl-deployment": "demo", "tpuctl-role": "bucket", "tpuctl-adopted": "keep",
    }  # fmt: skip
    assert cloud.objects() == ["theirs.txt"], "nothing of ours is there before `up`"
    user.up()
    assert (granted(cloud), cloud.buckets()) == (True, [NAME])
    user.down()
    assert labels(cloud)["tpuctl-deployment"] == "demo"
    user.up()
    said = user.down("--delete-data")
    assert "is given back" in said.err
    assert (labels(cloud), granted(cloud), cloud.nodes()) == ({"owner": "me"}, False, {})
    assert {"theirs.txt", ".tpuctl/record.json"} <= set(cloud.objects())
    # A later deployment takes it again, and begins where this one has ended.
    assert user.run("adopt", "--bucket", NAME, "--yes").code == 0
    user.up()
    assert cloud.in_use() != []


def test_an_empty_one_may_go_with_the_data(cloud):
    """As was said when it was adopted; objects that tpuctl does not write keep it all the same."""
    user = user_of(cloud)
    assert user.run("adopt", "--bucket", NAME, "--yes", "--at-down", "delete").code == 0
    user.up()
    cloud.put_object("from-a-colleague", b"precious")
    before = cloud.objects()
    said = user.run("down", "--yes", "--delete-data")
    assert said.code == 5
    assert "from-a-colleague" in said.err
    assert set(before) <= set(cloud.objects())
    cloud.storage.objects.delete(NAME, "from-a-colleague", None, Preconditions())
    user.down("--delete-data")
    assert cloud.buckets() == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"labels": {"tpuctl-deployment": "other"}}, "belongs to the deployment other"),
        ({"location": "US"}, "it is in us, and the TPU in europe-west4"),
        ({"storageClass": "NEARLINE"}, "its class is NEARLINE"),
        ({"iamConfiguration": {}}, "--uniform-bucket-level-access"),
        ({"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 3}}]}}, "lifecycle rule"),
    ],
)  # fmt: skip
def test_a_bucket_that_loses_data_or_money_is_refused_with_the_reason(cloud, fields, why):
    """Nothing is changed, in the bucket or elsewhere."""
    by_hand(cloud, "second", **fields)
    before, calls = labels(cloud, "second"), len(cloud.log)
    said = User(cloud, bucket__name="second").run("adopt", "--bucket", "second", "--yes")
    assert (said.code, labels(cloud, "second"), len(cloud.log)) == (2, before, calls)
    assert why in " ".join(said.err.split())


def test_delete_is_refused_for_one_that_holds_something(cloud):
    """Who has put it there is not known."""
    cloud.put_object("theirs.txt", b"precious")
    said = user_of(cloud).run("adopt", "--bucket", NAME, "--yes", "--at-down", "delete")
    assert (said.code, labels(cloud)) == (2, {"owner": "me"})
    assert "theirs.txt" in said.err


def test_the_file_must_name_it(cloud):
    """Another bucket would be made; the line to write is named."""
    said = User(cloud).run("adopt", "--bucket", NAME, "--yes")
    assert (said.code, labels(cloud)) == (2, {"owner": "me"})
    assert f"    bucket.name: {NAME}" in said.err


def test_a_deployment_has_one_bucket(cloud):
    """Its checkpoints are in the other one."""
    user = User(cloud)
    user.up()
    user.edit(bucket__name=NAME)
    said = user.run("adopt", "--bucket", NAME, "--yes")
    assert labels(cloud) == {"owner": "me"}
    assert said.code == 2


def test_a_bucket_of_another_project_is_refused(cloud):
    """The project's list does not show it, so `up` would not either."""
    cloud.storage.buckets.create("another-project", {"name": "far", "location": "EUROPE-WEST4", **UNIFORM})
    said = User(cloud, bucket__name="far").run("adopt", "--bucket", "far", "--yes")
    assert said.code == 2
    assert "another project's" in said.err


def test_a_no_changes_no_bucket(cloud, monkeypatch):
    """It says first what it would change, and what becomes of it."""
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    said = user_of(cloud).run("adopt", "--bucket", NAME)
    assert (said.code, labels(cloud)) == (1, {"owner": "me"})
    assert "gives it back" in said.err


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_at_the_label_is_put_right(cloud, moment):
    """The label is the only change, so it is there or not."""
    user = user_of(cloud)
    words = ("adopt", "--bucket", NAME, "--yes")
    assert user.run(*words, kill=("storage.buckets.patch", moment)).code is None
    assert ("tpuctl-deployment" in labels(cloud)) is (moment == "after")
    assert user.run(*words).code == 0
    user.up()
    assert labels(cloud)["tpuctl-adopted"] == "keep"


def test_a_kill_while_it_is_given_back_is_put_right(tmp_path):
    """At each call of `down --delete-data`: the next one gives it back, and no object of its owner is gone."""
    number, tried = 0, 0
    while True:
        number += 1
        with VirtualCloud(tmp_path / str(number)).open() as cloud:
            by_hand(cloud)
            cloud.put_object("theirs.txt", b"precious")
            user = user_of(cloud)
            assert user.run("adopt", "--bucket", NAME, "--yes").code == 0
            user.up()
            killed = user.run("down", "--yes", "--delete-data", kill=(number, "after"))
            if killed.code is not None:
                break
            tried += 1
            while (
                said := user.run("down", "--yes", "--delete-data")
            ).code == 5 and "is not made" not in said.err:
                if labels(cloud) == {"owner": "me"}:
                    break
            assert labels(cloud) == {"owner": "me"}, number
            assert (granted(cloud), "theirs.txt" in cloud.objects()) == (False, True), number
            assert cloud.nodes() == {}, number
    assert tried > 5


@pytest.mark.parametrize(("at_down", "remaining"), [("keep", ["theirs"]), ("delete", [])])
def test_down_does_what_was_said_when_a_tpu_was_adopted(cloud, at_down, remaining):
    """Without a question; `down --at-down` has the last word."""
    cloud.model.tpu.create(ZONE, "theirs", BODY)
    cloud.wait(60)
    user = User(cloud)
    assert user.run("adopt", "theirs", "--yes", "--at-down", at_down).code == 0
    user.down()
    assert cloud.in_use() == remaining
