"""The stock gcloud against the local cloud: a client that nobody here wrote."""

import json
import os
import shutil

import pytest

from orchestrator.clock import SystemClock
from orchestrator.emulator.http.dispatch import dispatch
from tests.conformance import warm_gcloud
from tests.conformance.clients_kit import QUICK
from tests.conformance.discovery import Witness
from tests.emulator.emulator_lab import PROJECT, ZONE, a_lab
from tests.emulator.http_fixture import serve

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]
HERE = ("--zone", ZONE)
VM = ("--machine-type", "e2-small", "--image-family", "debian-13", "--image-project", "debian-cloud")


@pytest.fixture
def gcloud(tmp_path):
    """Return a function that runs `gcloud compute` and reads its JSON."""
    lab, witness = a_lab(SystemClock(), latency=QUICK), Witness()
    with serve(
        lab.router, lambda request: witness.observe(request, dispatch(lab.router, lab.cloud, request))
    ) as url:
        environment = {
            **os.environ,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CONFIG": str(tmp_path),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        }

        def run(*words, fails=False, track=""):
            head = [track] if track else []
            done = warm_gcloud.run([*head, "compute", *words, "--format=json"], environment, tmp_path)
            assert (done.returncode != 0) is fails, done.stderr
            return done.stderr if fails else json.loads(done.stdout or "null")

        run.lab = lab
        yield run
    assert witness.faults == {}


def test_tpu_vms(gcloud):
    """create, list, describe, delete; and the error of a missing one."""
    kind = ("--accelerator-type", "v5litepod-16", "--version", "v2-alpha-tpuv5-lite", "--spot")
    gcloud("tpus", "tpu-vm", "create", "t1", *HERE, *kind)
    (listed,) = gcloud("tpus", "tpu-vm", "list", *HERE)
    assert (listed["name"].rsplit("/", 1)[1], listed["state"]) == ("t1", "READY")
    node = gcloud("tpus", "tpu-vm", "describe", "t1", *HERE)
    assert len(node["networkEndpoints"]) == 4
    assert node["schedulingConfig"]["spot"] is True
    gcloud("tpus", "tpu-vm", "delete", "t1", *HERE)
    assert gcloud("tpus", "tpu-vm", "list", *HERE) == []
    assert "NOT_FOUND" in gcloud("tpus", "tpu-vm", "describe", "t1", *HERE, fails=True)


def test_instances(gcloud):
    """create, list, describe, stop, start, delete, and the operations they leave."""
    gcloud("instances", "create", "v1", *HERE, *VM)
    assert [vm["name"] for vm in gcloud("instances", "list")] == ["v1"]
    gcloud("instances", "stop", "v1", *HERE)
    assert gcloud("instances", "describe", "v1", *HERE)["status"] == "TERMINATED"
    gcloud("instances", "start", "v1", *HERE)
    assert gcloud("instances", "describe", "v1", *HERE)["status"] == "RUNNING"
    gcloud("instances", "delete", "v1", *HERE)
    assert gcloud("instances", "list") == []
    kinds = [operation["operationType"] for operation in gcloud("operations", "list")]
    assert sorted(kinds) == ["delete", "insert", "start", "stop"]


def test_several_instances_go_in_one_batch(gcloud):
    """Gcloud sends two inserts and two deletes as multipart batches."""
    observed = []
    lab = gcloud.lab
    find = lab.router.find
    lab.router.find = lambda request: (observed.append(request.path), find(request))[1]
    gcloud("instances", "create", "v1", "v2", *HERE, *VM)
    assert [vm["name"] for vm in gcloud("instances", "list", "--filter=name:v*")] == ["v1", "v2"]
    gcloud("instances", "delete", "v1", "v2", *HERE)
    assert gcloud("instances", "list") == []
    assert "/batch/compute/v1" in observed


def test_disks_of_a_tpu(gcloud):
    """create, list, a TPU that has one, and the refusals of a disk that is in use or not there."""
    gcloud("disks", "create", "d1", *HERE, "--size", "20GB", "--type", "pd-balanced")
    assert [(d["name"], d["sizeGb"]) for d in gcloud("disks", "list")] == [("d1", "20")]
    kind = ("--accelerator-type", "v5litepod-8", "--version", "v2-alpha-tpuv5-lite")
    path = f"projects/{PROJECT}/zones/{ZONE}/disks"
    gcloud("tpus", "tpu-vm", "create", "t1", *HERE, *kind, "--data-disk", f"source={path}/d1,mode=read-write")
    (shown,) = gcloud("tpus", "tpu-vm", "describe", "t1", *HERE)["dataDisks"]
    assert shown == {"mode": "READ_WRITE", "sourceDisk": f"{path}/d1"}
    assert len(gcloud("disks", "describe", "d1", *HERE)["users"]) == 1
    assert "already being used" in gcloud("disks", "delete", "d1", *HERE, fails=True)
    for name, words in (("d1", "already being used"), ("gone", "was not found")):
        disk = ("--data-disk", f"source={path}/{name}")
        assert words in gcloud("tpus", "tpu-vm", "create", "t2", *HERE, *kind, *disk, fails=True)
    gcloud("tpus", "tpu-vm", "delete", "t1", *HERE)
    gcloud("disks", "delete", "d1", *HERE)
    assert gcloud("disks", "list") == []
