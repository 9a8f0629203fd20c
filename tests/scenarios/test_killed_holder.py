"""What a command that was killed leaves in the lease, and what others say of it."""

import re

from tests.kit.user import User


def test_status_names_no_loop_whose_process_was_killed_here(cloud, user):
    """On its computer that is known at once; elsewhere the lease has to run out."""
    other = User(cloud, "elsewhere")
    user.up()
    user.write("train.py", "print('other step')\n")
    assert user.run("up", kill=(2, "after")).code is None
    here = user.run("status", "--fresh", "--json").document
    there = other.run("status", "--fresh", "--json").document
    assert here["watcher"] is None
    assert there["watcher"]["alive"]
    assert "not running" in user.run("status", "--fresh").out


def on_vm(cloud, name="home"):
    """Return a computer of the owner, or the VM, with a deployment whose VM may watch."""
    return User(cloud, name, vm={}, watch__on_vm=True)


def test_a_loop_that_has_stopped_its_own_vm_was_not_killed(cloud):
    """The VM may be gone before the loop has released its lease; the deployment had ended well."""
    user, vm = on_vm(cloud), on_vm(cloud, "vm")
    user.up()
    cloud.wait(900)
    cloud.machines.say("demo", phase="done")
    assert vm.run("watch", "--loop", kill=("compute.instances.stop", "after")).code is None
    cloud.wait(120)
    assert list(cloud.vms().values()) == ["TERMINATED"]
    said = user.watch(600)
    assert said.code == 0, said.err
    assert "killed or cut off" not in said.err + user.run("logs", "--events").out


def test_a_loop_on_the_vm_that_was_killed_is_named_as_what_it_is(cloud):
    """Nobody has typed its name: backticks have commands only."""
    user, vm = on_vm(cloud), on_vm(cloud, "vm")
    user.up()
    late = cloud.clock.monotonic() + 200
    assert vm.run("watch", "--loop", kill=lambda *_: cloud.clock.monotonic() > late).code is None
    shown = " ".join(user.run("explain").out.split())
    assert "the loop on the VM works on it" in shown
    assert "tpuctl watch on the VM" not in shown
    cloud.wait(120)
    assert "the loop on the VM has given no sign of life" in " ".join(user.run("explain").out.split())
    user.watch(300)
    (event,) = [line for line in user.run("logs", "--events").out.splitlines() if "cut off" in line]
    assert "the loop on the VM was killed or cut off; this one takes its place" in event


def test_every_command_names_the_watch_that_the_file_wants(cloud):
    """With `watch.on_vm` it is the one on the VM; a VM that is stopped cannot run it, and `up` starts that."""
    user = on_vm(cloud)
    cloud.wait(1)
    assert "is up. Next: tpuctl watch --on-vm" in user.up().err
    assert "If no watcher runs: tpuctl watch --on-vm" in user.up().err
    assert commands(user) == {"tpuctl watch --on-vm"}
    cloud.wait(900)
    cloud.model.preempt("demo-tpu-g1", notice=False)
    cloud.wait(60)
    assert commands(user) == {"tpuctl watch --on-vm"}
    with cloud.model.lock:
        cloud.model.compute.stop("europe-west4-b", "demo-vm")
    cloud.wait(300)
    assert commands(user) == {"tpuctl up"}


def commands(user):
    """Return what `status` and `explain` say to run."""
    said = set(re.findall(r"[Rr]un: (tpuctl \w+(?: --on-vm)?)", " ".join(user.run("status").out.split())))
    items = user.run("explain", "--json").document["items"]
    return said | {one["hint"] for one in items if one["hint"].startswith("tpuctl ")}
