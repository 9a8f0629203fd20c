"""
Export to SkyPilot: `task.yaml`, which config/others can read back.

Source: the task schema and code of SkyPilot 0.14. Not tried with a cloud.
"""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.names import region_of
from orchestrator.domain.source.secret_refs import job_secrets
from orchestrator.domain.spec import Spec
from orchestrator.scripts.exports.job_script import JobHost, job_script, own_bucket, variables
from orchestrator.scripts.exports.yaml_document import document
from orchestrator.scripts.render import bash_word


def skypilot_files(spec: Spec, project: str, workers: int) -> dict[str, str]:
    """Return the task file by name."""
    host = JobHost(
        project, own_bucket(spec, project, "skypilot"), "/tpuctl", '"$SKYPILOT_NODE_RANK"', workers
    )
    return {
        "task.yaml": document(
            "Made by tpuctl export --to skypilot, for SkyPilot 0.14. Run it in the folder of tpuctl.yaml, for "
            "workdir and local data start there. README.md says how, and what is unsupported.",
            _task(spec, host),
        ),
    }  # fmt: skip


def skypilot_steps(spec: Spec, source: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the steps, each with its commands."""
    secrets = job_secrets(spec)
    launch = " ".join(
        ("sky jobs launch", *(f"--secret {name}" for name in secrets), bash_word(str(folder / "task.yaml")))
    )
    yield (
        "SkyPilot with Google Cloud, in an environment of its own:",
        "pip install 'skypilot[gcp]'\nsky check gcp",
    )
    if (source / ".tpuctlignore").is_file():
        ignored = bash_word(str(source / ".tpuctlignore"))
        yield "It reads one file of what is not to be sent:", f"cat {ignored} .gitignore >.skyignore"
    if secrets:
        # In the environment: a command line is visible to all users of the computer.
        read = (
            f'export {name}="$(gcloud secrets versions access {ref.version} --secret={ref.name})"'
            for name, ref in secrets.items()
        )
        yield "Secrets: their values are in no file.", "\n".join(read)
    yield "Go, in the folder of tpuctl.yaml, and look:", f"{launch}\nsky jobs queue\nsky jobs logs"


def _task(spec: Spec, host: JobHost) -> dict[str, Any]:
    words, links = variables(spec, host), True
    mount = host.mount
    if host.workers == 1 and spec.job.checkpoint.dir != "bucket":
        # Mount the bucket at the checkpoint folder itself, so that the job's command needs no preamble.
        mount = spec.job.checkpoint.dir if spec.job.checkpoint.dir.startswith("/") else f"{mount}/checkpoints"
        words, links = {**words, "TPUCTL_WORKER_ID": "0", "TPUCTL_CHECKPOINT_DIR": bash_word(mount)}, False
    # SkyPilot's envs are the same on each host and cannot refer to other variables.
    own = {name: text for name, text in words.items() if "$" in text}
    task = {
        "name": spec.name, "workdir": spec.job.source, "resources": _resources(spec),
        "envs": {name: "".join(shlex.split(text)) for name, text in words.items() if name not in own},
        # The user passes the values with `sky jobs launch --secret NAME`.
        "secrets": dict.fromkeys(job_secrets(spec)),
        "file_mounts": {
            mount: {"name": host.bucket, "store": "gcs", "mode": "MOUNT"},
            **{f"~/sky_workdir/{place}": {"source": source, "mode": "COPY"} if "://" in source else source
               for place, source in spec.job.data.items()},
        },
        "setup": spec.job.setup.strip(),
        "run": job_script(spec, host, "skypilot", own, links=links) + spec.job.command.strip(),
    }  # fmt: skip
    return {key: value for key, value in task.items() if value}


def _resources(spec: Spec) -> dict[str, Any]:
    tpu = spec.tpu
    choices = [_choice(spec, tpu_type) for tpu_type in (tpu.type, *tpu.other_types)]
    places = [{"infra": f"gcp/{region_of(zone)}/{zone}"} for zone in tpu.zones]
    common = {
        "use_spot": tpu.spot,
        **({"image_id": f"docker:{spec.job.image}"} if spec.job.image else {}),
        "job_recovery": {"strategy": "failover", "max_restarts_on_errors": spec.job.failures - 1},
    }
    if len(choices) > 1:
        return {**common, "ordered": [{**choice, **place} for choice in choices for place in places]}
    return {**choices[0], **common, **(places[0] if len(places) == 1 else {"ordered": places})}


def _choice(spec: Spec, tpu_type: str) -> dict[str, Any]:
    # Always explicit: SkyPilot's default runtime for a v5e is that of a v5p.
    runtime = spec.tpu.runtime or load_catalog().runtime_for(tpu_type)
    arguments = {
        **({"runtime_version": runtime} if runtime else {}),
        **({"gcp_queued_resource": True} if spec.tpu.request == "queued" else {}),
    }
    return {"accelerators": f"tpu-{tpu_type}", **({"accelerator_args": arguments} if arguments else {})}
