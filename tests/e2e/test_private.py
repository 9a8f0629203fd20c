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


def banner(lab, machine):
    """Connect straight to a machine and return what its SSH server says, nothing when it hangs up."""
    port = json.loads((lab.cloud / "daemon.json").read_text())["ssh_port"]
    with socket.create_connection((machine["address"], port), 60) as direct:
        try:
            return direct.recv(100)
        except ConnectionResetError:
            return b""


def test_machines_without_external_address_train_to_the_end(lab):
    """Nobody gets in straight; exec and ssh do all the same, and a lost TPU is replaced as everywhere."""
    lab.use_example(tpu="v5litepod-8, external_ip: false", vm="{external_ip: false}")
    lab.tpuctl("up")
    lab.wait_for("step 6", lambda: lab.at(6, committed=5))
    machines = lab.machines()
    assert [banner(lab, machine) for machine in machines] == [b"", b""]

    ask = ("ssh", "--vm", "--", "echo", "on the VM")
    assert lab.wait_for("the VM's boot", lambda: lab.tpuctl(*ask, expect=None).out) == "on the VM\n"
    assert lab.tpuctl("exec", "--", "echo", "here").out == "e2e-tpu-g1-w0: here\n"

    watch = lab.start("watch")
    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    (heartbeat,) = lab.wait_for("the next TPU", lambda: lab.at(7, incarnation=2))
    assert heartbeat["resumed_from"] >= 5
    lab.hurry()
    lab.end(watch)
    assert "\nstep 150 loss " in lab.tpuctl("logs").out
    lab.tpuctl("down", "--yes")
