"""Make the bash that a host of another system runs: the job's variables, data, setup and command."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.contract.job_variables import NAME_IN_VALUE, VARIABLES
from orchestrator.domain.spec import Spec
from orchestrator.scripts.render import bash_word, check_environment, render

GRACE = 20
"""Seconds for a last save, if `job.grace` is not set."""


@dataclass(frozen=True)
class JobHost:
    """
    The environment of the job on an exported host.

    *bucket* is mounted at *mount*; *worker* is the number of the host in its slice. Both are words of bash.
    """

    project: str
    bucket: str
    mount: str
    worker: str
    workers: int


def own_bucket(spec: Spec, project: str, system: str) -> str:
    """Return the export's bucket name. It differs from tpuctl's, so that neither uses the other's checkpoints."""
    digest = hashlib.sha256(f"{project}/{spec.name}/export".encode()).hexdigest()[:10]
    return f"{spec.name}-{system}-{digest}"


def word(text: str) -> str:
    """Return a value of job.env as a word of bash; only references to documented job variables are expanded."""
    found, at = "", 0
    for one in NAME_IN_VALUE.finditer(text):
        name = one[2] or one[3]
        literal = "$" if one[1] else None if name in VARIABLES else one[0]
        found += bash_word(text[at : one.start()] + (literal or ""))
        found += f'"${name}"' if literal is None else ""
        at = one.end()
    return re.sub(r"''(?=.)", "", found + bash_word(text[at:])) if found else bash_word(text)


def variables(spec: Spec, host: JobHost) -> dict[str, str]:
    """Return the job's variables as words of bash, ordered so that a variable follows those it refers to."""
    check_environment(spec)
    saving = spec.job.checkpoint
    return {
        "TPUCTL_DEPLOYMENT": bash_word(spec.name), "TPUCTL_PROJECT": bash_word(host.project),
        "TPUCTL_BUCKET": bash_word(host.bucket), "TPUCTL_ROLE": "tpu", "PJRT_DEVICE": "TPU",
        "PYTHONUNBUFFERED": "1", "TPUCTL_WORKER_ID": host.worker, "TPUCTL_WORKERS": str(host.workers),
        "TPUCTL_DATA_DIR": '"$PWD"',
        # Nothing verifies checkpoints on these systems; the job finds its newest one by itself.
        "TPUCTL_RESUME": "", "TPUCTL_RESUME_STEP": "",
        "TPUCTL_CHECKPOINT_DIR": _checkpoints(spec, host),
        "TPUCTL_CHECKPOINT_FORMAT": saving.format, "TPUCTL_CHECKPOINT_KEEP": str(saving.keep),
        "TPUCTL_CHECKPOINT_MARKER": bash_word(saving.marker),
        "TPUCTL_TENSORBOARD_DIR": f"gs://{host.bucket}/tensorboard",
        "TPUCTL_TARGET_STEPS": "" if spec.job.target_steps is None else str(spec.job.target_steps),
        "TPUCTL_PROGRESS_FILE": "/tmp/tpuctl-progress.json",  # noqa: S108 - a host of the export runs this job alone
        "TPUCTL_STOP_SIGNAL": spec.job.stop_signal, "TPUCTL_GRACE_SECONDS": str(grace(spec)),
        **{name: word(text) for name, text in spec.job.env.items()},
    }  # fmt: skip


def grace(spec: Spec) -> int:
    """Return the seconds for a last save after a stop signal."""
    return int(spec.job.grace or GRACE)


def job_script(
    spec: Spec, host: JobHost, system: Literal["ray", "jobset", "skypilot"], words: Mapping[str, str], *,
    links: bool = True, linked: Sequence[str] = (), shared: bool = False, digest: str = "",
) -> str:  # fmt: skip
    """
    Return the script of a host: *words* are its variables, *linked* the paths of data that lies in the bucket.

    *links* says whether the bucket's checkpoint folder is linked to where the job saves. With *shared* a
    script for Ray asks for its folder; *digest* is the sha256 of the code, which a script for JobSet unpacks.
    """
    saves = spec.job.checkpoint.dir
    return render(
        "export/job.sh.j2",
        {
            "system": system, "shared": shared, "digest": digest, "mount": host.mount, "folder": _folder(host),
            "variables": words.items(), "linked": linked,
            "checkpoint_path": saves.rstrip("/") if links and saves.startswith("/") else "",
            "makes_folder": links and saves != "bucket",
            "setup": spec.job.setup, "command": spec.job.command, "stop_signal": spec.job.stop_signal,
        },
    )  # fmt: skip


def _checkpoints(spec: Spec, host: JobHost) -> str:
    if spec.job.checkpoint.dir == "bucket":
        return f"gs://{host.bucket}/checkpoints"
    if spec.job.checkpoint.dir.startswith("/"):
        return bash_word(spec.job.checkpoint.dir)
    return _folder(host)


def _folder(host: JobHost) -> str:
    """Return this worker's checkpoint folder in the mounted bucket; each worker has its own, as with tpuctl."""
    if host.workers == 1:
        return f"{host.mount}/checkpoints"
    return f'{host.mount}/checkpoints"$([ {host.worker} = 0 ] || echo -worker-{host.worker})"'
