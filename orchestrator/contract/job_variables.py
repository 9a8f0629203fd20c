"""Define the variables in a job's environment, and expand them in the values of `job.env`."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

VARIABLES: Dict[str, str] = {
    "TPU_NAME": "`local`: the TPU of this machine. With `run_on: vm`, the name of the TPU",
    "TPUCTL_NODE": "name of the TPU",
    "ZONE": "its zone",
    "PJRT_DEVICE": "`TPU`, which PyTorch/XLA asks for",
    "TPU_IP_ADDRESS": "with `run_on: vm`: address of the TPU",
    "XRT_TPU_CONFIG": "with `run_on: vm`: the same for the PyTorch/XLA of 2020",
    "TPUCTL_DEPLOYMENT": "`name` of the deployment file",
    "TPUCTL_PROJECT": "project in Google Cloud",
    "TPUCTL_BUCKET": "name of the bucket, without `gs://`",
    "TPUCTL_PREFIX": "its folder in the bucket, with a slash at the end; empty without `bucket.prefix`",
    "TPUCTL_ROLE": "`tpu` or `vm`: the kind of machine",
    "TPUCTL_WORKER_ID": "number of this worker, from 0; over all slices of a fleet's task",
    "TPUCTL_WORKERS": "how many workers there are, in all slices",
    "MEGASCALE_COORDINATOR_ADDRESS": "with several slices: address of worker 0 of slice 0",
    "MEGASCALE_NUM_SLICES": "with several slices: how many",
    "MEGASCALE_SLICE_ID": "with several slices: number of this one, from 0",
    "MEGASCALE_PORT": "with several slices: `8081`, the port of libtpu's coordinator",
    "TPU_WORKER_ID": "with several slices: number of this worker within its slice",
    "TPU_WORKER_HOSTNAMES": "with several slices: addresses of the slice's workers",
    "TPUCTL_INCARNATION": "number of the TPU: 1, then one more after each replacement",
    "TPUCTL_ATTEMPT": "number of the attempt on this TPU, from 1",
    "TPUCTL_JOB": "deployment, incarnation and attempt; marks the processes of the job",
    "TPUCTL_RESUME": "path of the checkpoint to go on from; empty when there is none, and during setup",
    "TPUCTL_RESUME_STEP": "its step; empty when there is none",
    "TPUCTL_CHECKPOINT_DIR": "where to save: a local folder, or `gs://...` with `dir: bucket`",
    "TPUCTL_CHECKPOINT_FORMAT": "`job.checkpoint.format`",
    "TPUCTL_CHECKPOINT_KEEP": "`job.checkpoint.keep`",
    "TPUCTL_CHECKPOINT_MARKER": "`job.checkpoint.marker`",
    "TPUCTL_DATA_DIR": "folder of what `job.data` names",
    "TPUCTL_TENSORBOARD_DIR": "where the deployment's TensorBoard reads: `gs://BUCKET/tensorboard`",
    "TPUCTL_TARGET_STEPS": "`job.target_steps`; empty without",
    "TPUCTL_PROGRESS_FILE": "where the job may write its step: see below",
    "TPUCTL_SAVE_EVERY_SECONDS": "seconds between two saves; empty without `job.checkpoint.every`",
    "TPUCTL_SAVE_EVERY_FILE": "a file with the seconds of the moment; empty without `job.checkpoint.every`",
    "TPUCTL_STOP_SIGNAL": "`job.stop_signal`, which asks for a last save",
    "TPUCTL_GRACE_SECONDS": "`job.grace`: how long that may take; empty for the default of the format",
    "TPUCTL_ROOT": "the machine folder of tpuctl; the job runs in its subfolder `current`",
    "TPUCTL_BUNDLE": "sha256 of the pushed code",
    "JAX_COMPILATION_CACHE_DIR": "folder of compiled programs, which the next machine gets; "
    "not with `warm_start: false`",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "`0`: programs that compile quickly are kept, too",
    "XLA_PERSISTENT_CACHE_PATH": "the same for PyTorch/XLA",
    "PYTHONUNBUFFERED": "`1`, unless `job.env` says otherwise: what the job prints is in the log at once",
}
"""The documented variables. Other variables that begin with TPUCTL_ are internal to the agent."""

NAMES = "TPUCTL_EXPAND"
"""Variable that lists, separated by spaces, the variables of `job.env` whose values contain a dollar sign."""

NAME_IN_VALUE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def expand(text: str, values: Mapping[str, str]) -> str:
    """
    Return *text* with `$NAME` and `${NAME}` replaced if *values* has the name, and `$$` by one `$`.

    Inserted text is not expanded again, and everything else stays as it is.
    """

    def one(found: "re.Match[str]") -> str:
        if found[1]:
            return "$"
        # Kept as it is: an unknown variable may mean something to the job's own shell.
        return values.get(found[2] or found[3], found[0])

    return NAME_IN_VALUE.sub(one, text)


def unknown(text: str) -> Tuple[str, ...]:
    """Return the names in *text* that stay as they are, because no variable of the job has them."""
    names: List[str] = [found[2] or found[3] for found in NAME_IN_VALUE.finditer(text) if not found[1]]
    return tuple(dict.fromkeys(name for name in names if name not in VARIABLES))


def expanded(environ: Mapping[str, str]) -> Dict[str, str]:
    """Return an environment in which the values of `job.env` are expanded."""
    # From the base variables only: if values of the user could refer to each other, their order would matter.
    values = {name: environ[name] for name in VARIABLES if name in environ}
    mine = [name for name in environ.get(NAMES, "").split() if name in environ and name not in VARIABLES]
    return {**environ, **{name: expand(environ[name], values) for name in mine}}
