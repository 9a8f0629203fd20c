"""A cloud for one deployment: account, bucket name, adapters."""

from dataclasses import replace

import pytest

from orchestrator.domain.names import bucket_name
from orchestrator.domain.observation import Absent, Present
from orchestrator.domain.spec import BucketSpec, JobSpec, Spec, TpuSpec
from orchestrator.errors import AuthError
from orchestrator.google.factory import open_cloud, read_account
from tests.google.adapter_lab import ACCOUNT, PROJECT, ZONE, a_lab

SPEC = Spec(name="demo", tpu=TpuSpec("v5litepod-8", (ZONE,)), job=JobSpec("python train.py"))


class NoRemote:
    """Stand where nobody uses SSH."""


def opened(lab, spec=SPEC, **options):
    """Open the cloud of the lab."""
    return open_cloud(lab.clients.settings, spec, NoRemote(), **options)


def test_the_default_account_is_the_projects():
    """Machines run as the project's default compute account unless the file names one."""
    lab = a_lab()
    assert opened(lab).account.default_service_account == ACCOUNT
    assert opened(lab).account.project == PROJECT


def test_a_named_account_is_taken_without_a_call():
    """The file's account needs no look-up."""
    lab = a_lab()
    cloud = opened(lab, replace(SPEC, service_account="me@example.com"))
    assert cloud.account.default_service_account == "me@example.com"
    assert lab.local.calls["compute.projects.get"] == 0
    assert opened(lab, ask_account=False).account.default_service_account == ""
    assert lab.local.calls["compute.projects.get"] == 0


def test_a_denied_look_at_the_project_names_the_role():
    """The user learns which role is missing."""
    lab = a_lab(denied_permissions=frozenset({"compute.projects.get"}))
    with pytest.raises(AuthError) as caught:
        read_account(lab.clients)
    assert "roles/compute" in caught.value.hint


def test_a_disabled_api_names_the_command():
    """The first call of a new project often meets an API that is off."""
    lab = a_lab(disabled_apis=frozenset({"compute.googleapis.com"}))
    with pytest.raises(AuthError) as caught:
        read_account(lab.clients)
    assert f"gcloud services enable compute.googleapis.com --project {PROJECT}" in caught.value.hint


def test_a_disabled_storage_api_is_not_taken_for_another_one():
    """The local cloud once answered for Cloud Storage with the words of Compute Engine, and so did the hint."""
    lab = a_lab(disabled_apis=frozenset({"storage.googleapis.com"}))
    with pytest.raises(AuthError) as caught:
        lab.store("any").read("a")
    assert "storage.googleapis.com has not been used" in caught.value.message
    assert "compute" not in f"{caught.value.message} {caught.value.hint}".lower()


def test_the_store_is_the_deployments_bucket():
    """What the store writes lies in the bucket with the deployment's name."""
    lab = a_lab()
    name = bucket_name(SPEC, PROJECT)
    lab.storage.buckets.create(PROJECT, {"name": name, "location": "EU"})
    opened(lab).store.write("a", b"x")
    assert lab.store(name).read("a").data == b"x"


def test_only_an_adopted_bucket_may_be_foreign():
    """`adopt` decides whether a bucket of another project is looked at."""
    lab = a_lab()
    lab.storage.buckets.create("team-project", {"name": "team-data", "location": "US"})
    ours = replace(SPEC, bucket=BucketSpec(name="team-data"))
    adopted = replace(SPEC, bucket=BucketSpec(name="team-data", adopt=True))
    assert opened(lab, ours).buckets.observe("team-data") == Absent()
    assert isinstance(opened(lab, adopted).buckets.observe("team-data"), Present)


def test_the_settings_reach_the_cloud():
    """The SSH port and the file's project arrive."""
    lab = a_lab()
    settings = replace(lab.clients.settings, project="", ssh_port=2222)
    cloud = open_cloud(settings, replace(SPEC, project=PROJECT), NoRemote())
    assert (cloud.ssh_port, cloud.account.project) == (2222, PROJECT)


def test_without_the_right_to_read_the_project_the_setting_that_does_without_is_named():
    """With service_account in the file nobody asks, so fewer roles are enough."""
    lab = a_lab(denied_permissions=frozenset({"compute.projects.get"}))
    with pytest.raises(AuthError) as caught:
        read_account(lab.clients)
    assert (caught.value.code, "service_account in tpuctl.yaml" in caught.value.hint) == ("TPU-202", True)
    assert read_account(lab.clients, "a@b").default_service_account == "a@b"
