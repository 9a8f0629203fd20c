"""Buckets: closed, labelled, with one writer; never a stranger's; emptied before they go."""

import pytest

from orchestrator.domain.bucket_grants import not_controlled
from orchestrator.domain.machines.scopes import BUCKET_ROLE, READER_ROLE, WRITER_ROLE
from orchestrator.domain.observation import Absent, Unknown
from orchestrator.errors import AuthError, ConflictError, Retry, TransientError
from orchestrator.google.buckets import GcsBuckets, foreign_bucket
from tests.google.adapter_lab import ACCOUNT, LABEL, a_bucket, a_lab

MEMBER = f"serviceAccount:{ACCOUNT}"
NARROW = not_controlled("demo-bucket")


def machines(member=MEMBER):
    """Return what the account of machines gets: all to read, and to write but for what the controller keeps."""
    return {(BUCKET_ROLE, member, ""), (READER_ROLE, member, ""), (WRITER_ROLE, member, NARROW)}


def roles(lab, name="demo-bucket"):
    """Return what the bucket's policy grants to whom, and on what condition."""
    bindings = lab.storage.buckets.policy(name)["bindings"]
    return {
        (b["role"], member, b.get("condition", {}).get("expression", ""))
        for b in bindings
        for member in b["members"]
    }


def test_a_bucket_is_created_closed_and_in_its_region():
    """Uniform access, no public access, no soft delete, labels and location are as asked for."""
    lab = a_lab()
    assert lab.buckets.observe("demo-bucket") == Absent()
    lab.buckets.create(a_bucket())
    bucket = lab.buckets.observe("demo-bucket").value
    assert (bucket.name, bucket.location, bucket.labels) == ("demo-bucket", "europe-west4", {LABEL: "demo"})
    assert bucket.uniform_access
    assert bucket.public_access_prevented
    assert bucket.soft_delete_seconds == 0


def test_the_machines_write_all_but_what_the_controller_keeps():
    """On this bucket alone, by a condition that Google evaluates for each object."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    assert roles(lab) == machines()
    assert lab.storage.buckets.policy("demo-bucket")["version"] == 3


@pytest.mark.parametrize("more", [{"loop": True}, {"loop": True, "vm": ACCOUNT}])
def test_one_account_for_job_and_loop_writes_everything(more):
    """A condition cannot distinguish the two."""
    lab = a_lab()
    lab.buckets.create(a_bucket(**more))
    assert roles(lab) == {(BUCKET_ROLE, MEMBER, ""), (WRITER_ROLE, MEMBER, "")}


def test_an_account_of_its_own_keeps_the_loop_apart_from_the_job():
    """The VM's account writes everything with a loop there, and what machines write without one."""
    lab = a_lab()
    lab.buckets.create(a_bucket(loop=True, vm="vm@example.com"))
    loop = "serviceAccount:vm@example.com"
    assert roles(lab) == {*machines(), (BUCKET_ROLE, loop, ""), (WRITER_ROLE, loop, "")}
    lab.buckets.create(a_bucket(vm="vm@example.com"))
    assert roles(lab) == {*machines(), *machines("serviceAccount:vm@example.com")}


def test_a_grant_of_before_conditions_is_narrowed():
    """What earlier versions gave the account is taken back; what it has besides, and what others have, stays."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    held = lab.storage.buckets.policy("demo-bucket")
    wide = {"role": WRITER_ROLE, "members": [MEMBER, "user:a@example.com"]}
    more = {"role": "roles/storage.legacyObjectReader", "members": [MEMBER]}
    lab.storage.buckets.set_policy("demo-bucket", {**held, "bindings": [wide, more]})
    lab.buckets.create(a_bucket())
    assert roles(lab) == {
        *machines(),
        (WRITER_ROLE, "user:a@example.com", ""),
        ("roles/storage.legacyObjectReader", MEMBER, ""),
    }


def test_create_twice_changes_nothing_more():
    """A bucket of ours that is complete is left as it is."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    lab.buckets.create(a_bucket())
    assert roles(lab) == machines()
    assert lab.local.calls["storage.buckets.setIamPolicy"] == 1


def test_a_killed_create_is_finished():
    """The bucket was made, the grant was not: the next create brings the grant."""
    lab = a_lab()
    lab.local.fail_next("storage.buckets.getIamPolicy", ["no access"])
    with pytest.raises(AuthError):
        lab.buckets.create(a_bucket())
    assert roles(lab) == set()
    lab.buckets.create(a_bucket())
    assert roles(lab) == machines()


def test_a_lost_answer_to_create_is_finished_by_the_next():
    """The second create finds the first one's bucket and goes on."""
    lab = a_lab()
    lab.local.fail_next("storage.buckets.insert", ["drop-answer"])
    with pytest.raises(TransientError):
        lab.buckets.create(a_bucket())
    lab.buckets.create(a_bucket())
    assert roles(lab) == machines()


def test_other_peoples_grants_stay():
    """The policy is read, extended and written; nothing is dropped."""
    lab = a_lab()
    other = {"role": "roles/storage.objectViewer", "members": ["user:a@example.com"]}
    lab.buckets.create(a_bucket(writer="first@example.com"))
    held = lab.storage.buckets.policy("demo-bucket")
    lab.storage.buckets.set_policy("demo-bucket", {**held, "bindings": [*held["bindings"], other]})
    lab.buckets.create(a_bucket())
    assert roles(lab) == {
        *machines("serviceAccount:first@example.com"),
        *machines(),
        ("roles/storage.objectViewer", "user:a@example.com", ""),
    }


def test_a_grant_that_loses_a_race_is_made_on_the_new_policy():
    """A stale etag is refused; the policy is read again."""
    lab = a_lab()
    lab.local.fail_next("storage.buckets.setIamPolicy", ["precondition"])
    lab.buckets.create(a_bucket())
    assert roles(lab) == machines()
    assert lab.local.calls["storage.buckets.getIamPolicy"] == 2


def test_a_grant_that_always_loses_gives_up():
    """The race is not run for ever."""
    lab = a_lab()
    lab.local.fail_next("storage.buckets.setIamPolicy", ["precondition"] * 9)
    with pytest.raises(ConflictError):
        lab.buckets.create(a_bucket())
    assert len(lab.local.unused_faults()) == 4


@pytest.mark.parametrize("labels", [{}, {LABEL: "another"}])
def test_a_bucket_of_another_deployment_is_refused(labels):
    """The same project's bucket without our label is not ours to change."""
    lab = a_lab()
    lab.storage.buckets.create("local-project", {"name": "demo-bucket", "labels": labels, "location": "EU"})
    with pytest.raises(ConflictError) as caught:
        lab.buckets.create(a_bucket())
    assert "bucket.name" in caught.value.hint
    assert roles(lab) == set()


def test_a_bucket_name_of_a_foreign_project_is_refused():
    """The hint says what to change."""
    lab = a_lab()
    with pytest.raises(ConflictError) as caught:
        lab.buckets.create(a_bucket(name="somebody-elses"))
    assert "bucket.name" in caught.value.hint


def test_a_foreign_bucket_with_our_labels_is_not_ours():
    """Somebody can guess our bucket's name and set our label: the project's own list decides."""
    lab = a_lab()
    foreign = {"name": "demo-bucket", "location": "europe-west4", "labels": {LABEL: "demo"}}
    lab.storage.buckets.create("evil-project", foreign)
    assert lab.buckets.observe("demo-bucket") == Absent()
    with pytest.raises(ConflictError):
        lab.buckets.create(a_bucket())


def test_an_adopted_bucket_may_belong_to_another_project():
    """The user named it; it is looked at directly."""
    lab = a_lab()
    lab.storage.buckets.create("team-project", {"name": "team-data", "location": "US"})
    bucket = GcsBuckets(lab.clients, adopted=True).observe("team-data").value
    assert bucket.name == "team-data"
    assert not bucket.uniform_access


def test_a_bucket_whose_name_begins_alike_is_another():
    """The list is asked by prefix; only the equal name counts."""
    lab = a_lab()
    lab.buckets.create(a_bucket(name="demo-bucket-2"))
    assert lab.buckets.observe("demo-bucket") == Absent()


def test_a_denied_look_is_unknown():
    """No permission is no absence."""
    lab = a_lab()
    lab.local.fail_next("storage.buckets.list", ["no access"])
    observed = lab.buckets.observe("demo-bucket")
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.PERMANENT


def test_delete_takes_all_objects_with_it():
    """More objects than one page or batch holds are gone, and the bucket too; twice is fine."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    store = lab.store()
    for number in range(230):
        store.write(f"checkpoints/a b/{number}#é", b"x")
    lab.buckets.delete("demo-bucket")
    assert lab.buckets.observe("demo-bucket") == Absent()
    lab.buckets.delete("demo-bucket")


def test_an_object_written_meanwhile_is_deleted_too():
    """A machine that still writes delays the deletion, it does not stop it."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    lab.store().write("a", b"x")
    lab.local.fail_next("storage.buckets.delete", ["bucket not empty"])
    lab.buckets.delete("demo-bucket")
    assert lab.buckets.observe("demo-bucket") == Absent()


def test_a_bucket_that_fills_up_again_is_reported():
    """Somebody who never stops writing is named as the cause."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    lab.local.fail_next("storage.buckets.delete", ["bucket not empty"] * 3)
    with pytest.raises(ConflictError) as caught:
        lab.buckets.delete("demo-bucket")
    assert caught.value.aborted
    assert lab.buckets.observe("demo-bucket") != Absent()


def test_an_object_that_cannot_be_deleted_keeps_the_bucket():
    """A refusal inside a batch is not overlooked."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    lab.store().write("a", b"x")
    lab.local.fail_next("storage.objects.delete", ["no access"])
    with pytest.raises(AuthError):
        lab.buckets.delete("demo-bucket")
    assert [o.name for o in lab.store().list("")] == ["a"]


def test_an_object_that_another_process_deleted_is_no_obstacle():
    """404 inside a batch means that the work is done."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    lab.store().write("a", b"x")
    lab.local.fail_next("storage.objects.delete", ["object missing"])
    lab.local.fail_next("storage.buckets.delete", ["bucket not empty"])
    lab.buckets.delete("demo-bucket")
    assert lab.buckets.observe("demo-bucket") == Absent()


def test_soft_delete_is_set_where_it_is_asked_for():
    """At creation, and for a bucket that is there; one that somebody has set is left alone otherwise."""
    lab, week = a_lab(), 7 * 86400
    lab.buckets.create(a_bucket(soft_delete=week))
    assert lab.buckets.observe("demo-bucket").value.soft_delete_seconds == week
    lab.buckets.create(a_bucket())
    assert lab.buckets.observe("demo-bucket").value.soft_delete_seconds == week
    lab.buckets.create(a_bucket(soft_delete=2 * week))
    assert lab.buckets.observe("demo-bucket").value.soft_delete_seconds == 2 * week


def test_what_matters_of_a_foreign_bucket_is_read_as_the_api_shows_it():
    """The client's own value, filled with an answer as the API documents it."""
    lab = a_lab()
    bucket = lab.clients.storage.bucket("theirs")
    bucket._set_properties({
        "location": "EU", "storageClass": "COLDLINE", "metageneration": "7", "defaultEventBasedHold": True,
        "retentionPolicy": {"retentionPeriod": "86400"}, "versioning": {"enabled": True},
        "billing": {"requesterPays": True}, "softDeletePolicy": {"retentionDurationSeconds": "604800"},
        "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 30}}]},
    })  # fmt: skip
    bindings = [{"role": "roles/storage.objectViewer", "members": {"allUsers"}}]
    found = foreign_bucket(bucket, False, ["a"], bindings)
    assert (found.storage_class, found.retention, found.version) == ("COLDLINE", 86400, 7)
    assert (found.bucket.location, found.bucket.soft_delete_seconds) == ("eu", 604800)
    assert all((found.held, found.versioning, found.requester_pays, found.deletes, found.public))
    plain = lab.clients.storage.bucket("plain")
    plain._set_properties({"location": "EU", "metageneration": "1"})
    found = foreign_bucket(plain, True, [], [{"role": "r", "members": {"user:a@example.com"}}])
    assert not any((found.held, found.versioning, found.requester_pays, found.deletes, found.public))
    assert (found.storage_class, found.retention) == ("STANDARD", 0)


def test_a_bucket_that_was_changed_since_the_look_is_not_labelled():
    """Perhaps another deployment has just taken it."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    inspected = lab.buckets.inspect("demo-bucket").value
    lab.buckets.add_labels("demo-bucket", {"a": "b"}, inspected.version)
    with pytest.raises(ConflictError):
        lab.buckets.add_labels("demo-bucket", {"a": "c"}, inspected.version)
    assert lab.buckets.observe("demo-bucket").value.labels == {LABEL: "demo", "a": "b"}


def test_what_is_given_back_has_neither_our_labels_nor_our_grants():
    """What others may do there stays."""
    lab = a_lab()
    lab.buckets.create(a_bucket())
    held = lab.storage.buckets.policy("demo-bucket")
    more = {"role": "roles/storage.legacyObjectReader", "members": ["user:a@example.com"]}
    lab.storage.buckets.set_policy("demo-bucket", {**held, "bindings": [*held["bindings"], more]})
    lab.buckets.remove_labels(a_bucket(), [LABEL])
    assert roles(lab) == {(more["role"], more["members"][0], "")}
    assert lab.storage.buckets.get("demo-bucket", "x").fields["labels"] == {}
    lab.buckets.remove_labels(a_bucket(name="gone"), [LABEL])
