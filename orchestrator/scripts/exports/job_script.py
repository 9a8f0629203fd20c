"""Generate the bash that a host of another system runs: the job's variables, data, setup and command."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.contract.job_variables import NAME_IN_VALUE, VARIABLES
from orchestrator.domain.spec import Spec
from orchestrator.scripts.render import check_environment, quote

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
        found += quote(text[at : one.start()] + (literal or ""))
        found += f'"${name}"' if literal is None else ""
        at = one.end()
    return re.sub(r"''(?=.)", "", found + quote(text[at:])) if found else quote(text)


def variables(spec: Spec, host: JobHost) -> dict[str, str]:
    """Return the job's variables as words of bash, ordered so that a variable follows those it refers to."""
    check_environment(spec)
    saving = spec.job.checkpoint
    return {
        "TPUCTL_DEPLOYMENT": quote(spec.name), "TPUCTL_PROJECT": quote(host.project),
        "TPUCTL_BUCKET": quote(host.bucket), "TPUCTL_ROLE": "tpu", "PJRT_DEVICE": "TPU", "PYTHONUNBUFFERED": "1",
        "TPUCTL_WORKER_ID": host.worker, "TPUCTL_WORKERS": str(host.workers), "TPUCTL_DATA_DIR": '"$PWD"',
        # Nothing verifies checkpoints on these systems; the job finds its newest one by itself.
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
    """Yield one `export` line for each variable."""
    return (f"export {name}={text}" for name, text in words.items())


def grace(spec: Spec) -> int:
    """Return the seconds for a last save after a stop signal."""
    return int(spec.job.grace or GRACE)


def folders(spec: Spec, host: JobHost) -> Iterator[str]:
    """Yield the lines that link the bucket's checkpoint folder to where the job saves."""
    if spec.job.checkpoint.dir.startswith("/"):
        path = quote(spec.job.checkpoint.dir.rstrip("/"))
        yield f'mkdir -p {_folder(host)} "$(dirname {path})"'
        yield f"ln -sfn {_folder(host)} {path}"
    elif spec.job.checkpoint.dir != "bucket":
        yield 'mkdir -p "$TPUCTL_CHECKPOINT_DIR"'


def linked(paths: Iterable[str], host: JobHost) -> Iterator[str]:
    """Yield the lines that link data of the mounted bucket to its places below the code, as job.data says."""
    for path in paths:
        yield f'mkdir -p "$(dirname {quote(path)})"'
        yield f"ln -sfn {host.mount}/data/{quote(path)} {quote(path)}"


def _checkpoints(spec: Spec, host: JobHost) -> str:
    if spec.job.checkpoint.dir == "bucket":
        return f"gs://{host.bucket}/checkpoints"
    if spec.job.checkpoint.dir.startswith("/"):
        return quote(spec.job.checkpoint.dir)
    return _folder(host)


def _folder(host: JobHost) -> str:
    """Return this worker's checkpoint folder in the mounted bucket; each worker has its own, as with tpuctl."""
    if host.workers == 1:
        return f"{host.mount}/checkpoints"
    return f'{host.mount}/checkpoints"$([ {host.worker} = 0 ] || echo -worker-{host.worker})"'
