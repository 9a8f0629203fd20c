"""A deployment whose machines have no external address: the stock gcloud leads to the VM, the VM to the TPU."""

import json
import shutil
import socket

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.gcloud,
    pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed"),
]


def banner(stage, machine):
    """Connect straight to a machine and return what its SSH server says, nothing when it hangs up."""
    port = json.loads((stage.cloud / "daemon.json").read_text())["ssh_port"]
    with socket.create_connection((machine["address"], port), 60) as direct:
        try:
            return direct.recv(100)
        except ConnectionResetError:
            return b""


def test_machines_without_external_address_train_to_the_end(stage):
    """Nobody gets in straight; exec and ssh do all the same, and a lost TPU is replaced as everywhere."""
    stage.use_example(tpu="v5litepod-8, external_ip: false", vm="{external_ip: false}")
    stage.tpuctl("up")
    stage.wait_for("step 6", lambda: stage.at(6, committed=5))
    machines = stage.machines()
    assert [banner(stage, machine) for machine in machines] == [b"", b""]

    ask = ("ssh", "--vm", "--", "echo", "on the VM")
    assert stage.wait_for("the VM's boot", lambda: stage.tpuctl(*ask, expect=None).out) == "on the VM\n"
    assert stage.tpuctl("exec", "--", "echo", "here").out == "e2e-tpu-g1-w0: here\n"

    watch = stage.start("watch")
    stage.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    (beat,) = stage.wait_for("the next TPU", lambda: stage.at(7, incarnation=2))
    assert beat["resumed_from"] >= 5
    stage.hurry()
    stage.end(watch)
    assert "\nstep 150 loss " in stage.tpuctl("logs").out
    stage.tpuctl("down", "--yes")
