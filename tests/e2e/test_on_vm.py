"""The loop on the VM: the computer that started it is not needed; the loop outlives its own death and its VM's."""

import json
import urllib.request

import pytest

from tests.e2e.process_lab import ProcessLab, _read, kill

pytestmark = pytest.mark.e2e
VM = "/compute/v1/projects/local-project/zones/europe-west4-b/instances/e2e-vm"


def loops(lab: ProcessLab) -> list[int]:
    """Return the loops that run on machines of this cloud."""
    lines = ((pid, _read(pid, "cmdline").split(b"\0")) for pid, _ in lab.processes())
    return [pid for pid, words in lines if b"--loop" in words and b"-I" in words]


def holder(lab: ProcessLab) -> dict:
    """Return who holds the lease."""
    return json.loads(lab.read(".tpuctl/lease") or b"{}")


def stop_the_vm(lab: ProcessLab) -> None:
    """Stop the VM as somebody with another tool does."""
    address = json.loads((lab.cloud / "daemon.json").read_text())["endpoint"]
    with urllib.request.urlopen(urllib.request.Request(f"{address}{VM}/stop", data=b"")) as answer:
        assert answer.status == 200
    lab.wait_for("the VM's end", lambda: json.loads(lab.get(VM))["status"] == "TERMINATED")


def test_the_loop_on_the_vm_needs_no_other_computer(lab):
    """It replaces a TPU, comes back after its death and its VM's, lets people go first, and ends the deployment."""
    tpu = "v5litepod-8, external_ip: false"
    lab.use_example(steps=600, tpu=tpu, vm="{machine_type: e2-small}", watch=", on_vm: true")
    lab.tpuctl("up")
    assert "this computer is not needed any more" in lab.tpuctl("watch", "--on-vm").err
    (first,) = loops(lab)
    assert holder(lab)["command"] == "watch on the VM"
    again = json.loads(lab.tpuctl("watch", "--on-vm", "--json").out)
    assert (again["changes_count"], loops(lab)) == (0, [first])
    (key,) = lab.cloud.glob("machines/vm-*/opt/tpuctl/controller/current/id_ed25519")
    assert key.stat().st_mode & 0o777 == 0o600

    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    lab.wait_for("incarnation 2", lambda: lab.at(1, incarnation=2))
    written = lab.tpuctl("ssh", "--vm", "--", "tail -n 30 $TPUCTL_ROOT/log/watch.log").out
    assert "TPU e2e-tpu-g1 is PREEMPTED" in written

    kill(first)
    second = lab.wait_for("the loop after its death", lambda: [p for p in loops(lab) if p != first])
    lab.wait_for("its lease", lambda: holder(lab).get("pid") in second)

    stop_the_vm(lab)
    assert loops(lab) == []
    step = lab.heartbeats()[0]["step"]
    lab.wait_for("training without VM and loop", lambda: lab.at(step + 3, incarnation=2))
    # The user has brought the key of his records there: without it he would be asked.
    (other := lab.folder / "another computer" / "local").mkdir(parents=True)
    (other / "record.key").write_bytes((lab.cloud / "deployments/record.key").read_bytes())
    lab.environment["TPUCTL_STATE_DIR"] = str(lab.folder / "another computer")
    lab.tpuctl("up")
    lab.wait_for("the loop after the VM's boot", lambda: loops(lab))
    lab.wait_for("its lease", lambda: holder(lab).get("pid") in loops(lab))
    body = lab.status()
    assert (body["watcher"]["on"], body["watcher"]["alive"], body["incarnation"]) == ("vm", True, 2)

    # People go first, from any computer.
    watch = lab.start("watch")
    lab.wait_for("a watch in a terminal", lambda: holder(lab).get("command") == "watch")
    del lab.environment["TPUCTL_STATE_DIR"]
    lab.tpuctl("watch", "--on-vm", "--stop")
    assert "`tpuctl watch --on-vm` of " in lab.end(watch, 6).err
    assert loops(lab) == []
    assert list(lab.cloud.glob("machines/vm-*/etc/cron.d/tpuctl-watch")) == []
    lab.tpuctl("watch", "--on-vm")

    lab.hurry()
    lab.wait_for("the end", lambda: not [m for m in lab.machines() if m["running"]])
    record = json.loads(lab.read(".tpuctl/record.json"))
    assert record["history"]["outcome"] == "done"
    reported = lab.tpuctl("logs", "--events").out
    assert "TPU e2e-tpu-g1 is PREEMPTED" in reported
    assert reported.index("Deleting TPU e2e-tpu-g2") < reported.index("Stopping VM e2e-vm")
    lab.tpuctl("down", "--yes", "--delete-data")
    assert lab.bucket() == ""
