"""
The stock gcloud and queued resources of the local cloud: a client that nobody here wrote.
"""

import shutil

import pytest

from tests.contract.test_gcloud_compute import HERE, gcloud  # noqa: F401 - a fixture
from tests.local.cloud_kit import ZONE

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]
KIND = ("--accelerator-type", "v5litepod-8", "--runtime-version", "v2-alpha-tpuv5-lite")


def test_queued_resources(gcloud):  # noqa: F811 - the fixture
    """
    create, list, describe, delete; without --force a deletion is refused while there is a node.
    """

    def run(*words, **options):
        return gcloud("tpus", "queued-resources", *words, *HERE, **options)

    run("create", "q1", "--node-id", "n1", *KIND, "--spot", "--valid-until-duration", "1h")
    gcloud.lab.clock.wait(1)
    (listed,) = run("list")
    assert listed["name"].endswith(f"/locations/{ZONE}/queuedResources/q1")
    assert listed["state"]["state"] == "ACTIVE"
    found = run("describe", "q1")
    assert (found["spot"], found["queueingPolicy"]) == ({}, {"validUntilDuration": "3600s"})
    assert [spec["nodeId"] for spec in found["tpu"]["nodeSpec"]] == ["n1"]
    assert "without force" in run("delete", "q1", fails=True)
    run("delete", "q1", "--force")
    assert run("list") == []
    assert gcloud.lab.cloud.machines() == []
