"""Export the deployment as plain scripts with the gcloud commands that a person would run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.domain import names
from orchestrator.domain.machines.scopes import node_scopes, vm_scopes
from orchestrator.domain.source.secret_refs import job_secrets
from orchestrator.domain.spec import Spec, VmSpec
from orchestrator.errors import UsageError
from orchestrator.scripts.exports.job_script import grace, own_bucket, word
from orchestrator.scripts.render import check_environment, render

_FILES = (
    "README.md", "settings.sh", "common.sh", "create-bucket.sh", "push.sh", "create-tpu.sh", "watch.sh",
    "crontab.txt", "status.sh", "ssh.sh", "fetch.sh", "delete.sh", "machine/startup.sh", "machine/environment.sh",
    "machine/run-job.sh", "machine/copy.sh", "machine/shutdown.sh", "machine/tpuctl-venv",
)  # fmt: skip


@dataclass(frozen=True)
class DataSource:
    """The source of one entry of job.data: a *bucket*, or a local file or folder."""

    path: str
    bucket: bool
    is_file: bool


def export_files(spec: Spec, project: str, folder: Path, source: Path, base: Path) -> dict[str, str]:
    """
    Return the scripts by their path in *folder*; they contain no secret's value.

    *source* is the source folder, *base* the folder that local paths of job.data are relative to. Raise
    UsageError for a deployment that plain scripts cannot run.
    """
    _check(spec)
    check_environment(spec)
    values = _values(spec, project, folder, source, base)
    wanted = (*_FILES, "create-vm.sh") if spec.vm != "none" else _FILES
    return {name: render(f"export/{name}.j2", values) for name in wanted}


def _check(spec: Spec) -> None:
    refused = {
        f"tpu.request: {spec.tpu.request}": spec.tpu.request != "node",
        "tpu.disks": bool(spec.tpu.disks),
        "job.image": bool(spec.job.image),
        "job.run_on: vm": spec.job.run_on == "vm",
        "os_login": spec.os_login,
        "impersonate": spec.impersonate is not None,
    }
    wrong = [name for name, there in refused.items() if there]
    if wrong:
        raise UsageError(
            f"plain scripts cannot do this: {', '.join(wrong)}",
            hint="leave it out for the export, for example --set tpu.request=node", changed="nothing was written",
        )  # fmt: skip


def _values(spec: Spec, project: str, folder: Path, source: Path, base: Path) -> dict[str, Any]:
    saving = spec.job.checkpoint
    data = [(name, _data_source(one, base)) for name, one in spec.job.data.items()]
    secrets = [(name, ref.name, ref.version) for name, ref in job_secrets(spec).items()]
    # Names differ from tpuctl's own, so that neither side takes the other's machines for its own.
    return {
        "project": project,
        "label": f"{spec.name}-scripts",
        "deployment": spec.name,
        "bucket": own_bucket(spec, project, "scripts"),
        "bucket_location": names.home_region(spec),
        "tpu": f"{spec.name}-scripts-tpu",
        "type": spec.tpu.type,
        "runtime": spec.tpu.runtime or "",
        "zones": spec.tpu.zones,
        "tpu_flags": _tpu_flags(spec),
        "service_account": spec.service_account or "",
        "ttl": int(spec.watch.ttl),
        "source": str(source),
        "folder": str(folder.absolute()),
        "vm": f"{spec.name}-scripts-vm" if spec.vm != "none" else "",
        "vm_zone": names.vm_zone(spec),
        "vm_flags": _vm_flags(spec, spec.vm) if isinstance(spec.vm, VmSpec) else (),
        "data": data,
        "local_data": [(name, one) for name, one in data if not one.bucket],
        "in_bucket": saving.dir == "bucket",
        "checkpoint_path": saving.dir if saving.dir.startswith("/") else "",
        "marker": saving.marker,
        "target_steps": "" if spec.job.target_steps is None else spec.job.target_steps,
        "stop_signal": spec.job.stop_signal,
        "grace": grace(spec),
        "setup": spec.job.setup,
        "command": spec.job.command,
        "variables": [(name, word(text)) for name, text in spec.job.env.items()],
        "secrets": secrets,
    }


def _data_source(text: str, base: Path) -> DataSource:
    if "://" in text:
        return DataSource(text, bucket=True, is_file=False)
    path = base / Path(text).expanduser()
    return DataSource(str(path), bucket=False, is_file=path.is_file())


def _tpu_flags(spec: Spec) -> list[str]:
    tpu = spec.tpu
    given: Mapping[str, bool] = {
        "--spot": tpu.spot,
        "--internal-ips": not tpu.external_ip,
        "--shielded-secure-boot": spec.secure_boot,
        f"--network={spec.network}": spec.network != "default",
        f"--subnetwork={spec.subnetwork}": spec.subnetwork is not None,
        f"--tags={','.join(spec.tags)}": bool(spec.tags),
    }
    return [f"--scopes={','.join(node_scopes(spec))}", *(flag for flag, wanted in given.items() if wanted)]


def _vm_flags(spec: Spec, vm: VmSpec) -> list[str]:
    given: Mapping[str, bool] = {
        "--provisioning-model=SPOT": vm.spot,
        "--no-address": not vm.external_ip,
        "--shielded-secure-boot": spec.secure_boot,
        f"--network={spec.network}": spec.network != "default",
        f"--subnet={spec.subnetwork}": spec.subnetwork is not None,
        f"--tags={','.join(spec.tags)}": bool(spec.tags),
        f"--image={vm.image}": vm.image is not None,
        "--image-family=ubuntu-2404-lts-amd64": vm.image is None,
        "--image-project=ubuntu-os-cloud": vm.image is None,
        f"--service-account={vm.service_account or spec.service_account}": bool(
            vm.service_account or spec.service_account
        ),
    }
    return [
        f"--machine-type={vm.machine_type}", f"--boot-disk-size={vm.disk_gb}GB",
        f"--scopes={','.join(vm_scopes(spec))}",
        f"--max-run-duration={int(spec.watch.ttl)}s", "--instance-termination-action=STOP",
        *(flag for flag, wanted in given.items() if wanted),
    ]  # fmt: skip
