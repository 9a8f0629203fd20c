"""The loop on the VM: the computer that started it is not needed; the loop outlives its own death and its VM's."""

import json
import urllib.request

import pytest

from tests.e2e.stage import Stage, _read, kill

pytestmark = pytest.mark.e2e
VM = "/compute/v1/projects/local-project/zones/europe-west4-b/instances/e2e-vm"


def loops(stage: Stage) -> list[int]:
    """Return the loops that run on machines of this cloud."""
    lines = ((pid, _read(pid, "cmdline").split(b"\0")) for pid, _ in stage.processes())
    return [pid for pid, words in lines if b"--loop" in words and b"-I" in words]


def holder(stage: Stage) -> dict:
    """Return who holds the lease."""
    return json.loads(stage.read(".tpuctl/lease") or b"{}")


def stop_the_vm(stage: Stage) -> None:
    """Stop the VM as somebody with another tool does."""
    address = json.loads((stage.cloud / "daemon.json").read_text())["endpoint"]
    with urllib.request.urlopen(urllib.request.Request(f"{address}{VM}/stop", data=b"")) as answer:
        assert answer.status == 200
    stage.wait_for("the VM's end", lambda: json.loads(stage.get(VM))["status"] == "TERMINATED")


def test_the_loop_on_the_vm_needs_no_other_computer(stage):
    """It replaces a TPU, comes back after its death and its VM's, lets people go first, and ends the deployment."""
    tpu = "v5litepod-8, external_ip: false"
    stage.use_example(steps=600, tpu=tpu, vm="{machine: e2-small}", watch=", on_vm: true")
    stage.tpuctl("up")
    assert "this computer is not needed any more" in stage.tpuctl("watch", "--on-vm").err
    (first,) = loops(stage)
    assert holder(stage)["command"] == "watch on the VM"
    again = json.loads(stage.tpuctl("watch", "--on-vm", "--json").out)
    assert (again["changes_count"], loops(stage)) == (0, [first])
    (key,) = stage.cloud.glob("machines/vm-*/opt/tpuctl/controller/current/id_ed25519")
    assert key.stat().st_mode & 0o777 == 0o600

    stage.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    stage.wait_for("incarnation 2", lambda: stage.at(1, incarnation=2))

    kill(first)
    second = stage.wait_for("the loop after its death", lambda: [p for p in loops(stage) if p != first])
    stage.wait_for("its lease", lambda: holder(stage).get("pid") in second)

    stop_the_vm(stage)
    assert loops(stage) == []
    step = stage.beats()[0]["step"]
    stage.wait_for("training without VM and loop", lambda: stage.at(step + 3, incarnation=2))
    # The user has brought the key of his records there: without it he would be asked.
    (other := stage.folder / "another computer" / "local").mkdir(parents=True)
    (other / "record.key").write_bytes((stage.cloud / "deployments/record.key").read_bytes())
    stage.environment["TPUCTL_STATE_DIR"] = str(stage.folder / "another computer")
    stage.tpuctl("up")
    stage.wait_for("the loop after the VM's boot", lambda: loops(stage))
    stage.wait_for("its lease", lambda: holder(stage).get("pid") in loops(stage))
    body = stage.status()
    assert (body["watcher"]["on"], body["watcher"]["alive"], body["incarnation"]) == ("vm", True, 2)

    # People go first, from any computer.
    watch = stage.start("watch")
    stage.wait_for("a watch in a terminal", lambda: holder(stage).get("command") == "watch")
    del stage.environment["TPUCTL_STATE_DIR"]
    stage.tpuctl("watch", "--on-vm", "--stop")
    assert "`tpuctl watch --on-vm` of " in stage.end(watch, 6).err
    assert loops(stage) == []
    assert list(stage.cloud.glob("machines/vm-*/etc/cron.d/tpuctl-watch")) == []
    stage.tpuctl("watch", "--on-vm")

    stage.hurry()
    stage.wait_for("the end", lambda: not [m for m in stage.machines() if m["running"]])
    record = json.loads(stage.read(".tpuctl/record.json"))
    assert record["history"]["outcome"] == "done"
    reported = stage.tpuctl("logs", "--controller").out
    assert "TPU e2e-tpu-g1 is PREEMPTED" in reported
    assert reported.index("Deleting TPU e2e-tpu-g2") < reported.index("Stopping VM e2e-vm")
    stage.tpuctl("down", "--yes", "--delete-data")
    assert stage.bucket() == ""
