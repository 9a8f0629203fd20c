"""Convert xpk's `workload create`, from a script or a command line."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.config.others.conversion import Draft
from orchestrator.config.others.scripts import Variables, configured, options, take_variables

TOOL = "xpk"

_CLUSTER = "there is no Kubernetes cluster: the TPU belongs to the deployment"
_PATHWAYS = "Pathways is not supported"
_NO_SETTING = {
    "--cluster": _CLUSTER, "--scheduler": _CLUSTER, "--priority": "there is no queue of jobs",
    "--project-number": _CLUSTER,
    "--docker-name": "the container is named after the deployment",
    "--docker-image-pull-secret": "the machine's own account pulls the image",
    "--num-nodes": "only for GPUs", "--use-parallel-containers": "one container for each machine",
    "--ttl-seconds-after-finished": "the TPU is deleted when the job is done",
    "--storage": "name data in job.data, disks in tpu.disks",
    "--env-file": "not read: write its variables to job.env, its secrets to job.secrets",
    "--ramdisk-directory": "checkpoints are copied from the disk to the bucket",
    "--mtc-enabled": "see --ramdisk-directory",
    "--debug-dump-gcs": "set XLA_FLAGS in job.env", "--deploy-stacktrace-sidecar": "see: tpuctl logs",
    "--enable-debug-logs": "set TPU_STDERR_LOG_LEVEL and TPU_MIN_LOG_LEVEL in job.env",
    "--restart-on-exit-codes": "each failed start is tried again, up to job.failures without progress",
    "--output-manifest-file": _CLUSTER, "--experiment-name": "no Vertex AI", "--skip-validation": "xpk's own",
    "--use-pathways": _PATHWAYS, "--headless": _PATHWAYS, "--elastic-slices": _PATHWAYS,
    "--max-slice-restarts": _PATHWAYS,
    "--server-image": _PATHWAYS,
    "--proxy-server-image": _PATHWAYS, "--pathways-gcs-location": _PATHWAYS,
    "--dry-run": "see: tpuctl plan",
}  # fmt: skip
_FLAGS = dict.fromkeys((
    "--spot", "--on-demand", "--flex", "--use-vertex-tensorboard", "--enable-debug-logs", "--mtc-enabled",
    "--headless", "--enable-autoprovisioning",
    "--deploy-stacktrace-sidecar", "--use-pathways", "--use-parallel-containers", "--skip-validation", "--dry-run",
    "--private", "--autoscale", "--enable-workload-identity", "--enable-gcsfuse-csi-driver", "--force", "--quiet",
), "")  # fmt: skip


def is_create(words: list[str], what: str) -> bool:
    """Return whether these are the words of `xpk workload create` (or of `cluster create`)."""
    at = next((n for n, word in enumerate(words) if Path(word).name in ("xpk", "xpk.py")), None)
    inside = words[at + 1 :] if at is not None else []
    return inside[:1] == [what] and bool(inside[1:]) and inside[1].startswith("create")


def convert(found: list[list[str]]) -> Draft:
    """Return the draft for the first workload of a script; *found* are the words of its commands."""
    draft = Draft(TOOL)
    variables = Variables(found)
    workloads = [words for words in found if is_create(words, "workload")]
    words = workloads[0]
    given, _ = options(words[words.index("workload") + 2 :], _FLAGS)
    if words[words.index("workload") + 1] == "create-pathways":
        draft.leave("create-pathways", _PATHWAYS)
    cluster = configured(found)
    for one in found:
        if is_create(one, "cluster"):
            cluster |= options(one[one.index("cluster") + 2 :], _FLAGS)[0]
    # For xpk, capacity may be a property of the cluster.
    place = {key: value for key, value in cluster.items() if key in _PLACE and key not in given}
    for name, values in {**place, **given}.items():
        source = "elsewhere: " if name in place else ""
        for raw in values:
            _option(draft, name, raw, source, variables)
    if not {"--spot", "--on-demand", "--flex", "--reservation"} & (given.keys() | place.keys()):
        draft.decide("tpu.spot", "the cluster decides it in xpk; here spot is the default")
    for more in workloads[1:]:
        name = options(more, _FLAGS)[0].get("--workload", ["?"])[0]
        draft.leave(f"workload {name}", "one file is one job: convert it in a folder of its own")
    return draft


_PLACE = (
    "--zone",
    "--project",
    "--spot",
    "--on-demand",
    "--flex",
    "--reservation",
    "--tpu-type",
    "--device-type",
)


def _option(draft: Draft, name: str, raw: str, source: str, variables: Variables) -> None:
    """Convert one option; its value is read with the script's variables, the job's command unchanged."""
    if name == "--command":
        command = raw.strip()
        draft.take("job.command", command, "--command")
        take_variables(draft, command, variables)
        return
    if name in ("--env", "--env-file"):
        _variable(draft, name, raw, variables)
        return
    value = variables.filled(raw)
    theirs = f"{source}{name} {raw}".rstrip()
    if value is None:
        draft.decide(_OURS.get(name, name), f"the script does not set it in plain words: {name} {raw}")
    elif raw and not value:
        draft.decide(_OURS.get(name, name), f"the script leaves it empty: {name} {raw}")
    elif name in _TAKEN:
        _TAKEN[name](draft, value, theirs)
    else:
        draft.leave(theirs, _NO_SETTING.get(name, "tpuctl has nothing like it"))


def _variable(draft: Draft, name: str, raw: str, variables: Variables) -> None:
    key, equals, value = raw.partition("=")
    if name == "--env" and re.fullmatch(r"[A-Za-z_]\w*", key):
        draft.variable(key, variables.filled(value) if equals else None, f"--env {key}")
    else:
        draft.leave(name, _NO_SETTING["--env-file"])


def _flex(draft: Draft, _: str, theirs: str) -> None:
    draft.take("tpu.request", "flex-start", theirs)
    draft.take("tpu.spot", value=False, theirs=theirs)


def _grace(draft: Draft, value: str, theirs: str) -> None:
    draft.take("job.grace", f"{value}s", theirs)


def _slices(draft: Draft, value: str, theirs: str) -> None:
    if value != "1":
        draft.leave(theirs, "a deployment has one slice: choose a larger type")


def _restarts(draft: Draft, value: str, theirs: str) -> None:
    if value.isdigit() and int(value):
        draft.take(
            "job.failures", int(value) + 1, theirs, "preemptions do not count; only starts without progress"
        )
    else:
        draft.leave(theirs, "preemptions never end a job here; failed attempts: job.failures")


_OURS = {"--tpu-type": "tpu.type", "--device-type": "tpu.type", "--zone": "tpu.zones", "--project": "project",
         "--workload": "name", "--reservation": "tpu.reservation"}  # fmt: skip
_TAKEN: Mapping[str, Callable[[Draft, str, str], None]] = {
    "--workload": Draft.name,
    "--tpu-type": lambda draft, value, theirs: draft.tpu([value], theirs),
    "--device-type": lambda draft, value, theirs: draft.tpu([value], theirs),
    "--zone": lambda draft, value, theirs: draft.zones([value], theirs),
    "--project": lambda draft, value, theirs: draft.take("project", value, theirs),
    "--spot": lambda draft, _, theirs: draft.take("tpu.spot", value=True, theirs=theirs),
    "--on-demand": lambda draft, _, theirs: draft.take("tpu.spot", value=False, theirs=theirs),
    "--flex": _flex,
    "--docker-image": Draft.image,
    "--base-docker-image": Draft.image,
    "--reservation": Draft.reservation,
    "--script-dir": Draft.source,
    "--max-restarts": _restarts,
    "--termination-grace-period-seconds": _grace,
    "--use-vertex-tensorboard": lambda draft, _, theirs: draft.take("sidecars.tensorboard", {}, theirs),
    "--num-slices": _slices,
}
"""Function for each option with a counterpart here: the draft, the option's value, and the option itself."""
