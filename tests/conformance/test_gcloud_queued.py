"""The stock gcloud and queued resources of the local cloud: a client that nobody here wrote."""

import shutil
from dataclasses import replace

import pytest

from tests.conformance.test_gcloud_compute import HERE, gcloud  # noqa: F401 - a fixture
from tests.emulator.emulator_lab import PROJECT, ZONE

pytestmark = [
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]
KIND = ("--accelerator-type", "v5litepod-8", "--runtime-version", "v2-alpha-tpuv5-lite")


def test_queued_resources(gcloud):  # noqa: F811 - the fixture
    """create, list, describe, delete; without --force a deletion is refused while there is a node."""

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


def test_reservations(gcloud):  # noqa: F811 - the fixture
    """A queued resource out of a named reservation, one out of any, and the list that shows its use."""
    lab = gcloud.lab
    lab.cloud.kernel.settings = replace(
        lab.cloud.kernel.settings, reservations={(ZONE, "mine"): "v5litepod-8"}
    )

    def run(*words, **options):
        return gcloud("tpus", "queued-resources", *words, *HERE, **options)

    run("create", "q1", "--node-id", "n1", *KIND, "--reservation", "mine", track="alpha")
    lab.clock.wait(1)
    found = run("describe", "q1")
    assert found["reservationName"] == f"projects/{PROJECT}/locations/{ZONE}/reservations/mine"
    assert found["state"]["state"] == "ACTIVE"
    assert gcloud("tpus", "tpu-vm", "describe", "n1", *HERE)["schedulingConfig"]["reserved"] is True
    (one,) = gcloud("tpus", "reservations", "list", *HERE, track="alpha")
    assert (one["standard"]["size"], one["standard"]["usage"]["total"]) == (8, "8")
    run("create", "q2", "--node-id", "n2", *KIND, "--reserved")
    lab.clock.wait(1)
    assert run("describe", "q2")["state"]["state"] == "WAITING_FOR_RESOURCES"
    run("delete", "q1", "--force")
    run("delete", "q2", "--force")


def test_flex_start(gcloud):  # noqa: F811 - the fixture
    """Created by gcloud alpha, described by both; after its time it is SUSPENDED and its node is gone."""
    at = ("--zone", "us-west4-a")
    flex = ("--provisioning-model", "flex-start", "--max-run-duration", "10s")

    def run(*words, **options):
        return gcloud("tpus", "queued-resources", *words, *at, **options)

    run("create", "q1", "--node-id", "n1", *KIND, *flex, track="alpha")
    gcloud.lab.clock.wait(1)
    assert gcloud("tpus", "tpu-vm", "describe", "n1", *at)["state"] == "READY"
    shown = run("describe", "q1", track="alpha")
    assert (shown["provisioningModel"], shown["runDuration"]) == ("FLEX_START", {"maxRunDuration": "10s"})
    assert "provisioningModel" not in run("describe", "q1")
    gcloud.lab.clock.wait(12)
    assert run("describe", "q1")["state"]["state"] == "SUSPENDED"
    assert gcloud("tpus", "tpu-vm", "list", *at) == []
    run("delete", "q1")
    elsewhere = ("create", "q2", "--node-id", "n2", *KIND, *flex, "--zone", ZONE)
    refused = gcloud("tpus", "queued-resources", *elsewhere, track="alpha", fails=True)
    assert "FLEX_START provisioning model is not supported" in refused
