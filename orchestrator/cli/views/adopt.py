"""Show what an adoption will change, and its result."""

from orchestrator.app.adopt import Adopted
from orchestrator.cli.console import print_json, say, talk
from orchestrator.domain.lease import watch_command
from orchestrator.domain.observation import ForeignBucket, ForeignNode, ForeignVm

_AT_DOWN = {
    None: "`tpuctl down` asks separately whether to delete it",
    "keep": "`tpuctl down` gives it back",
    "delete": "`tpuctl down` deletes it with the rest",
}


def show_change(found: ForeignNode | ForeignVm | ForeignBucket, at_down: str | None) -> None:
    """Show the resource, what will and will not be changed on it, and what `down` will do with it."""
    if isinstance(found, ForeignVm):
        _vm_change(found, at_down or "keep")
        return
    if isinstance(found, ForeignBucket):
        _bucket_change(found, at_down or "keep")
        return
    node = found.node
    capacity = "spot" if node.spot else "on demand"
    count = f"{len(node.workers)} worker{'' if len(node.workers) == 1 else 's'}"
    talk(f"TPU {node.name} in {node.zone}: {found.type}, {found.runtime}, {capacity}, {count}")
    talk("  changed: labels of the deployment; in its metadata our SSH key, and guest attributes on")
    talk("  on its machines: tpuctl's agent and a cron job in /opt/tpuctl; the job starts at once")
    talk("  not changed: your labels, keys, startup script and files. What runs there goes on: stop it first")
    talk("  from then on it is deleted and replaced after a preemption, and deleted when the job is done or")
    talk(f"  its time or budget is over, as every TPU of the deployment. {_AT_DOWN[at_down]}")


def _vm_change(found: ForeignVm, at_down: str) -> None:
    vm = found.vm
    talk(
        f"VM {vm.name} in {vm.zone}: {vm.machine_type}, {vm.disk_gb} GB, {'spot' if vm.spot else 'standard'}"
    )
    talk("  changed: labels of the deployment; in its metadata our SSH key")
    talk("  on its disk: tpuctl's agent and cron jobs in /opt/tpuctl and /etc/cron.d")
    talk("  not changed: your labels, keys, startup script and files. What runs there goes on")
    talk("  from then on it is started when it is stopped, and stopped when the job is done or its time or")
    talk(f"  budget is over, as the VM of every deployment. {_AT_DOWN[at_down]}")


def _bucket_change(found: ForeignBucket, at_down: str) -> None:
    bucket = found.bucket
    content = "not empty" if found.objects else "empty"
    talk(f"bucket {bucket.name} in {bucket.location}: {found.storage_class}, {content}")
    talk("  changed: labels of the deployment; with the next `tpuctl up` what its machines may do in it")
    talk("  not changed: its other settings and what is in it, but objects of the names that tpuctl uses")
    if bucket.soft_delete_seconds:
        days = bucket.soft_delete_seconds / 86400
        talk(f"  it keeps deleted objects for {days:.0f} days, billed as stored: old checkpoints too")
    talk(f"  {_BUCKET_AT_DOWN[at_down]}")


_BUCKET_AT_DOWN = {
    "keep": "`tpuctl down --delete-data` gives it back with all that is in it",
    "delete": "`tpuctl down --delete-data` deletes it, unless others have put something into it",
}


def show(done: Adopted, *, as_json: bool) -> None:
    """Show the adopted TPU and the next step."""
    if as_json:
        body = {
            "tpu": done.name,
            "zone": done.zone,
            "incarnation": done.incarnation,
            "changes_count": done.changes,
        }
        print_json("adopt", body)
    else:
        watch = watch_command(on_vm=done.on_vm)
        text = f"{done.name} runs the job as TPU #{done.incarnation}. Next: {watch}"
        say(text, style="green")


def show_vm(found: ForeignVm, at_down: str, *, as_json: bool) -> None:
    """Show the adopted VM and the next step."""
    if as_json:
        print_json("adopt-vm", {"vm": found.vm.name, "zone": found.vm.zone, "at_down": at_down})
    else:
        say(f"VM {found.vm.name} is the deployment's. Next: tpuctl up", style="green")


def show_bucket(found: ForeignBucket, at_down: str, *, as_json: bool) -> None:
    """Show the adopted bucket and the next step."""
    if as_json:
        print_json("adopt-bucket", {"bucket": found.bucket.name, "at_down": at_down})
    else:
        say(f"bucket {found.bucket.name} is the deployment's. Next: tpuctl up", style="green")
