"""What users' own tests get: a Google Cloud for the official clients, and an example that runs."""

import os
import shutil
import subprocess
import sys

import google.auth
import pytest
import requests
from google.cloud import compute_v1, storage, tpu_v2

from orchestrator.errors import LocalCloudError
from orchestrator.testing.google_cloud import GoogleCloud
from tests.cli.cli_kit import ROOT

ZONE = "us-central1-a"


def a_tpu():
    """Return a spot node as a user would write it."""
    return tpu_v2.Node(
        accelerator_type="v5litepod-4",
        runtime_version="v2-alpha-tpuv5-lite",
        scheduling_config=tpu_v2.SchedulingConfig(spot=True),
    )


def create(cloud, name):
    """Ask for a node with a client made from nothing but the defaults."""
    client = tpu_v2.TpuClient(transport="rest")
    client.create_node(parent=f"projects/{cloud.project}/locations/{ZONE}", node_id=name, node=a_tpu())
    cloud.advance(120)


def test_clients_made_with_their_defaults_meet_it():
    """No endpoint, no credentials, no project is named by the code under test."""
    with GoogleCloud().installed() as cloud:
        assert google.auth.default()[1] == cloud.project
        assert list(compute_v1.InstancesClient().list(project=cloud.project, zone=ZONE)) == []
        assert [bucket.name for bucket in storage.Client().list_buckets()] == []
        create(cloud, "trainer")
        assert cloud.running == ["trainer"]


def test_other_addresses_of_google_are_refused():
    """A test can never reach the real ones."""
    with GoogleCloud().installed(), pytest.raises(requests.ConnectionError, match="does not emulate"):
        requests.get("https://cloudbilling.googleapis.com/v1/services", timeout=5)


def test_afterwards_everything_is_as_before():
    """The process has its own addresses again."""
    before = requests.Session.get_adapter, google.auth.default
    with GoogleCloud().installed():
        assert requests.Session.get_adapter is not before[0]
    assert (requests.Session.get_adapter, google.auth.default) == before


def test_what_still_runs_is_named_with_its_price():
    """The end of a test that forgot a machine."""
    with GoogleCloud().installed() as cloud:
        create(cloud, "forgotten")
        cloud.advance(3600)
        with pytest.raises(AssertionError, match="forgotten"):
            cloud.assert_nothing_left()
        assert sum(line.usd or 0 for line in cloud.bill) > 0


def test_a_failure_that_is_never_met_is_named():
    """A test that plans a failure means it to happen."""
    with GoogleCloud().installed() as cloud:
        cloud.fail("tpu.nodes.create", "stockout")
        with pytest.raises(AssertionError, match=r"tpu\.nodes\.create"):
            cloud.assert_nothing_left()
        with pytest.raises(LocalCloudError, match="known"):
            cloud.fail("tpu.nodes.create", "no-such-failure")


def test_settings_are_those_of_the_local_cloud():
    """A zone without capacity refuses in the operation, as the real one."""
    with GoogleCloud(stockouts=frozenset({ZONE})).installed() as cloud:
        create(cloud, "trainer")
        assert cloud.running == []


def test_the_example_runs_for_those_who_copy_it(tmp_path):
    """Copied elsewhere, with the package installed, its tests pass."""
    shutil.copytree(ROOT / "examples" / "own-tests", tmp_path / "mine")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=tmp_path / "mine", env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr
