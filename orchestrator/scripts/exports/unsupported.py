"""What each export target cannot do. The command prints it; README.md and the documentation have it too."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from orchestrator.config.setting_types import Setting, settings
from orchestrator.domain.spec import Spec

Target = Literal["jobset", "skypilot", "ray"]
TARGETS: tuple[Target, ...] = ("jobset", "skypilot", "ray")


@dataclass(frozen=True)
class Unsupported:
    """A setting of the file or a promise of tpuctl that a target lacks, and what replaces it."""

    what: str
    message: str


PROMISES = (
    Unsupported(
        "verified checkpoints",
        "no manifest, no checksum: a save that was cut may be found. TPUCTL_RESUME is empty: the job looks for its "
        "newest checkpoint by itself, and old ones stay",
    ),
    Unsupported("fencing", "a host that was believed gone may write beside its successor"),
    Unsupported("cost", "no budget, no price, no report: nothing counts money"),
    Unsupported(
        "progress",
        "nothing reads step and loss, or notices a job that stands still; done means exit status 0",
    ),
    Unsupported("warm starts", "each start installs and compiles again"),
    Unsupported(
        "variables",
        "not set: ZONE, TPU_NAME, TPUCTL_NODE, TPUCTL_ROOT, TPUCTL_INCARNATION, TPUCTL_ATTEMPT, TPUCTL_JOB, "
        "TPUCTL_SAVE_EVERY_SECONDS and _FILE, the folders of compiled programs",
    ),
    Unsupported("failed attempts", "counted in all, not in a row without progress"),
)  # fmt: skip
"""What tpuctl always does, without any setting, and no target does."""

_CLUSTER = "the cluster decides it"
_POOLS = "node pools of the cluster decide it; README.md has the command that makes one"
_CLIENT = "a setting of SkyPilot's own file, ~/.sky/config.yaml"
_MACHINE = "the image decides it"
_LOOP = ("its controller has a loop of its own",) * 3
_NONE = ("there is nothing like it",) * 3

UNSUPPORTED: dict[str, tuple[str, str, str]] = {
    "project": ("", "the project of the login", _CLUSTER),
    "impersonate": ("log in as that account", "log in as that account", "log in as that account"),
    "service_account": ("", _CLIENT, _CLUSTER),
    "network": (_CLUSTER, _CLIENT, _CLUSTER), "subnetwork": (_CLUSTER, _CLIENT, _CLUSTER),
    "tags": (_CLUSTER, _CLIENT, _CLUSTER), "secure_boot": (_POOLS, *_NONE[:1], _CLUSTER),
    "os_login": _NONE,
    "bucket.name": ("the export has a bucket of its own",) * 3,
    "bucket.adopt": ("the export has a bucket of its own",) * 3,
    "bucket.prefix": ("the export has a bucket of its own",) * 3,
    "bucket.soft_delete": ("set it when you make the bucket",) * 3,
    "bucket.location": ("", "where SkyPilot makes the bucket: the region of the TPU", _CLUSTER),
    "tpu.zones": (_POOLS, "", _CLUSTER),
    "tpu.across_regions": (_POOLS, "", _CLUSTER),
    "tpu.runtime": (_MACHINE, "", _CLUSTER),
    "tpu.other_types": ("one topology for each file: export again with --set tpu.type=", "",
                        "one topology for each file: export again with --set tpu.type="),
    "tpu.strategy": (_POOLS, "zones are tried one after the other", _CLUSTER),
    "tpu.request": ("Kueue's queue takes its place", "queued is kept; flex-start is not known to it", _CLUSTER),
    "tpu.max_run_duration": _NONE, "tpu.wait": _NONE,
    "tpu.reservation": ("", _CLIENT, _CLUSTER),
    "tpu.disks": ("name a PersistentVolumeClaim in the file", "see its volumes", _CLUSTER),
    "tpu.spot": ("", "", _CLUSTER),
    "tpu.external_ip": (_POOLS, _CLIENT, _CLUSTER),
    "tpu.scope": (_POOLS, _CLIENT, _CLUSTER),
    "vm": ("the cluster has a control plane of its own", "SkyPilot makes a controller of its own",
           "the cluster has a head of its own"),
    "job.data": ("", "", "copied by hand to the folder that all hosts see; README.md has the commands"),
    "job.warm_start": _NONE, "job.caches": _NONE,
    "job.image": ("", "", _CLUSTER),
    "job.python": (_MACHINE, "SkyPilot brings its own; install another in setup", _CLUSTER),
    "job.secrets": ("", "", "not sent: Ray shows the variables of a job to all who see its dashboard"),
    "job.checkpoint.keep": ("the job removes old checkpoints; it gets the number",) * 3,
    "job.checkpoint.every": ("nothing learns from saves: the job decides when to save",) * 3,
    "job.checkpoint.save_pause": ("nothing learns from saves: the job decides when to save",) * 3,
    "job.progress": ("nothing reads it",) * 3,
    "job.memory": ("for `tpuctl check` only",) * 3,
    "job.target_steps": ("the job gets the number; done means exit status 0",) * 3,
    "job.stop_signal": ("", "no signal before a preemption: save often", ""),
    "job.grace": ("", "no time before a preemption: save often", ""),
    "job.run_on": ("refused",) * 3,
    "watch.budget_usd": ("nothing counts money",) * 3,
    "watch.ttl": ("counted from zero after each restart", *_NONE[:2]),
    "watch.deadline": _NONE, "watch.last_resort": _NONE, "watch.stall": _NONE,
    "watch.self_delete": _NONE, "watch.on_vm": _LOOP, "watch.poll": _LOOP, "watch.listen": _LOOP,
    "notify": _NONE, "sidecars": _NONE, "fleet": ("refused",) * 3,
}  # fmt: skip
"""For each setting or section, why it is unsupported by each of TARGETS; "" if it is not."""

EVERYWHERE = (
    "name", "tpu.type", "job.command", "job.source", "job.setup", "job.env", "job.failures",
    "job.checkpoint.format", "job.checkpoint.dir", "job.checkpoint.marker",
)  # fmt: skip
"""Settings that every target supports."""


def entry(key: str) -> str:
    """Return the key of UNSUPPORTED for a setting: itself, else the nearest section above it, else ""."""
    while key and key not in UNSUPPORTED:
        key = key.rpartition(".")[0]
    return key


def unsupported(spec: Spec, target: Target) -> tuple[Unsupported, ...]:
    """Return what the target lacks of this deployment: all promises, and each changed setting without a place."""
    changed = dict.fromkeys(
        entry(setting.dotted_name) for setting in settings().values() if _changed(spec, setting)
    )
    rows = (Unsupported(key, UNSUPPORTED[key][TARGETS.index(target)]) for key in changed if key)
    return (*PROMISES, *(row for row in rows if row.message))


def _changed(spec: Spec, setting: Setting) -> bool:
    if setting.section:
        return False
    value: Any = spec
    for part in setting.path:
        if not is_dataclass(value):
            # The section is a plain value, such as `vm: none`.
            return False
        value = getattr(value, part)
    return bool(setting.required or value != setting.default)


def readme(title: str, steps: Iterable[tuple[str, str]], rows: Iterable[Unsupported]) -> str:
    """Return README.md: the steps in order, and what is unsupported."""
    return "\n".join((
        f"# {title}", "", "Made by `tpuctl export`. Nothing is created yet.",
        *(line for n, (what, command) in enumerate(steps, 1) for line in ("", f"{n}. {what}", "", *_code(command))),
        "", "## What is unsupported", "", "| what | why, and what takes its place |", "| --- | --- |",
        *(f"| {row.what} | {row.message} |" for row in rows), "",
    ))  # fmt: skip


def _code(command: str) -> Iterator[str]:
    return (f"       {line}" for line in command.split("\n"))


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the documented table: the setting, and for each target the reason or "kept"."""
    for key in EVERYWHERE:
        yield (key, *("kept",) * 3)
    for key, whys in UNSUPPORTED.items():
        jobset, skypilot, ray = (message or "kept" for message in whys)
        yield key, jobset, skypilot, ray
