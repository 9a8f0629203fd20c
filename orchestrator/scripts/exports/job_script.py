"""What a host of another system runs, as bash: the job's variables, its data, setup and command."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.contract.job_variables import NAME_IN_VALUE, VARIABLES
from orchestrator.domain.spec import Spec
from orchestrator.scripts.render import check_environment, quote

GRACE = 20
"""Seconds for a last save, where the file says nothing."""


@dataclass(frozen=True)
class JobHost:
    """
    Describe what the job finds on a host.

    *bucket* is mounted at *mount*; *worker* is the number of the host in its slice. Both are words of bash.
    """

    project: str
    bucket: str
    mount: str
    worker: str
    workers: int


def own_bucket(spec: Spec, project: str, system: str) -> str:
    """Return the export's bucket. Not tpuctl's own: neither may take the other's checkpoints for its own."""
    digest = hashlib.sha256(f"{project}/{spec.name}/export".encode()).hexdigest()[:10]
    return f"{spec.name}-{system}-{digest}"


def word(text: str) -> str:
    """Return a value of job.env as a word of bash in which only what the job is promised is replaced."""
    found, at = "", 0
    for one in NAME_IN_VALUE.finditer(text):
        name = one[2] or one[3]
        literal = "$" if one[1] else None if name in VARIABLES else one[0]
        found += quote(text[at : one.start()] + (literal or ""))
        found += f'"${name}"' if literal is None else ""
        at = one.end()
    return re.sub(r"''(?=.)", "", found + quote(text[at:])) if found else quote(text)


def variables(spec: Spec, host: JobHost) -> dict[str, str]:
    """Return the job's variables, each as a word of bash; those that others need come first."""
    check_environment(spec)
    saving = spec.job.checkpoint
    return {
        "TPUCTL_DEPLOYMENT": quote(spec.name), "TPUCTL_PROJECT": quote(host.project),
        "TPUCTL_BUCKET": quote(host.bucket), "TPUCTL_ROLE": "tpu", "PJRT_DEVICE": "TPU", "PYTHONUNBUFFERED": "1",
        "TPUCTL_WORKER_ID": host.worker, "TPUCTL_WORKERS": str(host.workers), "TPUCTL_DATA_DIR": '"$PWD"',
        # Nothing verifies a checkpoint here: the job looks for its newest one by itself.
        "TPUCTL_RESUME": "", "TPUCTL_RESUME_STEP": "",
        "TPUCTL_CHECKPOINT_DIR": _checkpoints(spec, host),
        "TPUCTL_CHECKPOINT_FORMAT": saving.format, "TPUCTL_CHECKPOINT_KEEP": str(saving.keep),
        "TPUCTL_CHECKPOINT_MARKER": quote(saving.marker),
        "TPUCTL_TENSORBOARD_DIR": f"gs://{host.bucket}/tensorboard",
        "TPUCTL_TARGET_STEPS": "" if spec.job.target_steps is None else str(spec.job.target_steps),
        "TPUCTL_PROGRESS_FILE": "/tmp/tpuctl-progress.json",  # noqa: S108 - a host of the export runs this job alone
        "TPUCTL_STOP_SIGNAL": spec.job.stop_signal, "TPUCTL_GRACE_SECONDS": str(grace(spec)),
        **{name: word(text) for name, text in spec.job.env.items()},
    }  # fmt: skip


def exports(words: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that give the job its variables."""
    return (f"export {name}={text}" for name, text in words.items())


def grace(spec: Spec) -> int:
    """Return the seconds that a last save may take."""
    return int(spec.job.grace or GRACE)


def folders(spec: Spec, host: JobHost) -> Iterator[str]:
    """Yield the lines that put the folder of the checkpoints where the job saves."""
    if spec.job.checkpoint.dir.startswith("/"):
        place = quote(spec.job.checkpoint.dir.rstrip("/"))
        yield f'mkdir -p {_folder(host)} "$(dirname {place})"'
        yield f"ln -sfn {_folder(host)} {place}"
    elif spec.job.checkpoint.dir != "bucket":
        yield 'mkdir -p "$TPUCTL_CHECKPOINT_DIR"'


def linked(places: Iterable[str], host: JobHost) -> Iterator[str]:
    """Yield the lines that let what lies in the mounted bucket appear below the code, as job.data has it."""
    for place in places:
        yield f'mkdir -p "$(dirname {quote(place)})"'
        yield f"ln -sfn {host.mount}/data/{quote(place)} {quote(place)}"


def _checkpoints(spec: Spec, host: JobHost) -> str:
    if spec.job.checkpoint.dir == "bucket":
        return f"gs://{host.bucket}/checkpoints"
    if spec.job.checkpoint.dir.startswith("/"):
        return quote(spec.job.checkpoint.dir)
    return _folder(host)


def _folder(host: JobHost) -> str:
    """Return the folder of this worker in the mounted bucket: each has its own, as on a machine of tpuctl."""
    if host.workers == 1:
        return f"{host.mount}/checkpoints"
    return f'{host.mount}/checkpoints"$([ {host.worker} = 0 ] || echo -worker-{host.worker})"'
