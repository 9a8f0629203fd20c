"""Buckets: names, ownership, metadata, policies."""

import pytest

from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.stored import Preconditions
from tests.emulator.storage_kit import ANY, a_storage, put


def refused(call, *args):
    """Return status, reason and message of a refusal."""
    with pytest.raises(StorageError) as error:
        call(*args)
    return error.value.status, error.value.reason, error.value.message


def test_the_location_is_shown_in_upper_case():
    """Clients may write it in lower case."""
    assert a_storage(location="europe-west4").buckets.get("data").location == "EUROPE-WEST4"


@pytest.mark.parametrize("name", ["ab", "Upper", "goog-x", "my-google-data", "-a-", "a" * 64, "a b"])
def test_a_bad_bucket_name_is_refused(name):
    """3-63 of [a-z0-9._-], no "goog" prefix, no "google" inside."""
    assert refused(a_storage().buckets.create, "p", {"name": name})[:2] == (400, "invalid")


def test_creating_ones_own_bucket_again_says_so():
    """The text distinguishes "yours" from "somebody else's", which decides between adopting and giving up."""
    status, reason, message = refused(a_storage().buckets.create, "p", {"name": "data"})
    assert (status, reason) == (409, "conflict")
    assert "you already own it" in message


@pytest.mark.parametrize(("project", "name"), [("p", "somebody-elses"), ("q", "data")])
def test_a_bucket_name_of_another_project_is_not_available(project, name):
    """The namespace is shared by all projects."""
    assert "is not available" in refused(a_storage().buckets.create, project, {"name": name})[2]


def test_a_bucket_of_another_project_may_not_be_read():
    """403, not 404: the bucket exists."""
    assert refused(a_storage().buckets.get, "somebody-elses")[0] == 403


def test_a_missing_bucket_is_404():
    """With the text of the real service."""
    expected = (404, "notFound", "The specified bucket does not exist.")
    assert refused(a_storage().buckets.get, "none") == expected


def test_explicit_nulls_mean_not_given():
    """The client sends effectiveTime null when it asks for a soft delete policy."""
    soft = {"retentionDurationSeconds": 0, "effectiveTime": None}
    retained = a_storage(softDeletePolicy=soft, labels=None).buckets.get("data").fields
    assert retained["softDeletePolicy"]["retentionDurationSeconds"] == "0"
    assert retained["softDeletePolicy"]["effectiveTime"].endswith("Z")
    assert "labels" not in retained


def test_soft_delete_is_on_for_seven_days_unless_turned_off():
    """New buckets keep and bill deleted objects for a week."""
    retained = a_storage().buckets.get("data").fields["softDeletePolicy"]
    assert retained["retentionDurationSeconds"] == "604800"


def test_a_patch_merges_and_null_deletes():
    """Labels merge one by one; the metageneration grows."""
    storage = a_storage(labels={"keep": "1", "drop": "2"})
    patched = storage.buckets.patch("data", {"labels": {"drop": None, "new": "3"}}, ANY)
    assert patched.fields["labels"] == {"keep": "1", "new": "3"}
    assert patched.metageneration == 2
    stale = Preconditions(metageneration=1)
    assert refused(storage.buckets.patch, "data", {"labels": {}}, stale)[0] == 412


def test_the_location_cannot_change():
    """A bucket stays where it is."""
    assert refused(a_storage().buckets.patch, "data", {"location": "EU"}, ANY)[0] == 400


def test_only_an_empty_bucket_is_deleted():
    """A bucket with objects is a 409."""
    storage = a_storage()
    put(storage, "a")
    buckets, objects = storage.buckets, storage.objects
    assert refused(buckets.delete, "data", objects.is_empty("data"), ANY)[:2] == (409, "conflict")
    objects.delete("data", "a", None, ANY)
    buckets.delete("data", objects.is_empty("data"), ANY)
    assert buckets.list("p") == []


def test_a_policy_is_written_only_over_the_one_that_was_read():
    """The second of two writers with the same etag is refused."""
    buckets = a_storage().buckets
    observed = buckets.policy("data")
    first = buckets.set_policy("data", {**observed, "bindings": [{"role": "r", "members": ["a"]}]})
    assert first["bindings"][0]["members"] == ["a"]
    assert refused(buckets.set_policy, "data", {**observed, "bindings": []})[0] == 412
    assert buckets.policy("data") == first


def test_versioning_is_refused_as_not_modelled():
    """Pretending to keep old versions would hide a loss."""
    assert refused(a_storage().buckets.patch, "data", {"versioning": {"enabled": True}}, ANY)[0] == 400
