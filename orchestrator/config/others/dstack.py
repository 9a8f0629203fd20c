"""Convert dstack's task configuration (its reference: ".dstack.yml", `type: task`)."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.config.others.conversion import Draft
from orchestrator.errors import UsageError

TOOL = "dstack"
KINDS = ("task", "service", "dev-environment", "fleet", "volume", "gateway")

_CONTAINER = "job.image is the only setting of a container: it runs as root, with the TPU and the network"
_IDLE = "the TPU is deleted when the job is done; watch.ttl ends it in any case"
_POOL = "there are no fleets: each deployment has its own TPU"
_NO_SETTING = {
    "docker": _CONTAINER, "privileged": _CONTAINER, "user": _CONTAINER,
    "entrypoint": _CONTAINER,
    "registry_auth": _CONTAINER, "working_dir": "the job starts in the source folder", "home_dir": _CONTAINER,
    "nvcc": "there are no GPUs", "shell": "commands are run by bash",
    "single_branch": "your folder is sent as it is",
    "ports": "no port is opened; reach it with: tpuctl tunnel PORT",
    "volumes": "attach an existing disk with tpu.disks",
    "max_price": "set the whole sum instead: watch.budget_usd",
    "creation_policy": _POOL, "fleets": _POOL, "instances": _POOL, "instance_types": "tpu.type decides it",
    "idle_duration": _IDLE, "utilization_policy": "watch.stall restarts a job that stands still",
    "schedule": "start it with cron: tpuctl up && tpuctl watch", "tags": "tpuctl sets its own labels only",
    "priority": "there is no queue of jobs", "startup_order": "all workers start together",
    "stop_criteria": "the job is done when every worker is done", "backend_options": "dstack's own",
    "nodes": "one TPU with several workers is one type, such as v5litepod-16",
    "groups": "one TPU with several workers is one type, such as v5litepod-16",
    "dstack": "dstack's own",
    "retry": "always on: lost machines are replaced without end; failed attempts: job.failures",
    "setup": "dstack ignores it in a task",
}  # fmt: skip
_HOST = "the TPU's type decides what its machine has"
_INSTALL = re.compile(
    r"(?:sudo )?(?:python3? -m )?(?:uv )?(?:pip3?|apt|apt-get) (?:-\S+ )*(?:install|update|upgrade)\b[^;&|]*"
)
_SECRET = re.compile(r"\$\{\{\s*secrets\.\w+\s*\}\}")


def convert(data: Mapping[str, Any]) -> Draft:
    """Return the draft for a dstack task; raise UsageError for a configuration of another type."""
    if data.get("type") != "task":
        raise UsageError(
            f"this is dstack's type {str(data.get('type'))[:40]}, and tpuctl runs training jobs only",
            hint="use the file of a task", changed="nothing was written", code="TPU-146",
        )  # fmt: skip
    draft = Draft(TOOL)
    if data.get("name"):
        draft.name(data["name"], f"name: {data['name']}")
    _tpu(draft, data.get("resources"))
    _zones(draft, data)
    _spot(draft, data.get("spot_policy"))
    for key, value in data.items():
        _KEYS_OF_A_TASK.get(str(key), _no_setting)(draft, str(key), value)
    return draft


def _no_setting(draft: Draft, key: str, value: Any) -> None:
    if (key, value) not in (("nodes", 1), ("retry", False)):
        draft.leave(key, _NO_SETTING.get(key, "tpuctl has nothing like it"))


def _done(_: Draft, __: str, ___: Any) -> None:
    """Do nothing: this key has been read before."""


def _reservation(draft: Draft, _: str, name: Any) -> None:
    draft.reservation(str(name), f"reservation: {name}")


def _python(draft: Draft, _: str, given: Any) -> None:
    # YAML reads 3.10 as the number 3.1; dstack's oldest version is 3.9.
    version = "3.10" if str(given) == "3.1" else str(given)
    draft.take("job.python", version, f"python: {version}")


def _env(draft: Draft, _: str, given: Any) -> None:
    pairs = given.items() if isinstance(given, Mapping) else (_pair(one) for one in _listed(given))
    for name, value in pairs:
        if isinstance(value, str) and _SECRET.search(value):
            draft.secret(str(name), f"env.{name}")
        else:
            draft.variable(str(name), value, f"env.{name}")


def _tpu(draft: Draft, resources: Any) -> None:
    wanted = resources if isinstance(resources, Mapping) else {}
    gpu = wanted.get("gpu")
    if isinstance(gpu, Mapping):
        names = [str(one) for one in _listed(gpu.get("name")) or [gpu.get("name") or gpu.get("vendor") or ""]]
    else:
        # vendor:name:memory:count, in any order; several names are separated by commas.
        names = [name for part in str(gpu or "").split(":") for name in part.split(",")]
        names = [name for name in names if name[:1].isalpha() and name not in ("tpu", "google")] or names
    if gpu is not None:
        draft.tpu([name.strip() for name in names], f"resources.gpu: {gpu}")
    for key in wanted:
        if key != "gpu":
            draft.leave(f"resources.{key}", _HOST)


def _zones(draft: Draft, data: Mapping[str, Any]) -> None:
    clouds = [str(one) for one in _listed(data.get("backends"))]
    if clouds and "gcp" not in clouds:
        draft.leave(f"backends: {', '.join(clouds)}, and their places", "tpuctl uses Google Cloud only")
        return
    zones = [str(one) for one in _listed(data.get("availability_zones"))]
    if zones:
        draft.zones(zones, f"availability_zones: {', '.join(zones)}")
    for region in _listed(data.get("regions")):
        if not zones:
            draft.region(str(region), f"regions: {region}")
    draft.several_regions("several regions")


def _spot(draft: Draft, policy: Any) -> None:
    if policy is None:
        draft.spot(spot=False, theirs="spot_policy, not given: on demand")
        return
    draft.spot(spot=policy != "on-demand", theirs=f"spot_policy: {policy}")
    if policy == "auto":
        draft.decide("tpu.spot", "on demand is used only to keep a date: set watch.deadline")


def _range(first: int, last: int) -> str:
    return f"commands, number {first}" if first == last else f"commands {first} to {last}"


def _commands(draft: Draft, _: str, given: Any) -> None:
    """Split off the installs at the beginning, which are needed once for each bundle, not at each start."""
    commands = [str(one) for one in _listed(given)]
    count = next((n for n, one in enumerate(commands) if not _INSTALL.fullmatch(one.strip())), len(commands))
    for part, ours, theirs in (
        (commands[:count], "job.setup", _range(1, count)),
        (commands[count:], "job.command", _range(count + 1, len(commands))),
    ):
        if not part:
            continue
        # dstack stops at the first command that fails.
        text = part[0].strip() if len(part) == 1 else "\n".join(["set -e", *(one.strip() for one in part)])
        draft.take(ours, text, theirs if count else "commands")
    if any("git clone" in one or "pip install" in one for one in commands[count:]):
        draft.decide(
            "job.command",
            "clones or installs at each start: move that to job.setup, it must also bear a second run",
        )
    for one in ("DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "DSTACK_MASTER_NODE_IP"):
        if any(one in text for text in commands):
            draft.decide("job.command", f"uses ${one}, which is not set; the worker's number is $WORKER_ID")


def _files(draft: Draft, _: str, given: Any) -> None:
    for one in _listed(given):
        local = one.get("local_path", "") if isinstance(one, Mapping) else str(one).partition(":")[0]
        outside = str(local).startswith(("/", "~")) or ".." in str(local).split("/")
        message = (
            "put it into the folder of tpuctl.yaml" if outside else "the whole folder of tpuctl.yaml is sent"
        )
        draft.leave(f"files: {local}", message)


def _repos(draft: Draft, _: str, given: Any) -> None:
    for one in _listed(given):
        local = one.get("local_path") if isinstance(one, Mapping) else str(one)
        if isinstance(local, str) and "://" not in local and "@" not in local:
            draft.source(local.partition(":")[0], f"repos: {local}")
        else:
            draft.leave("repos", "clone the repository, and put tpuctl.yaml into it")


def _duration(draft: Draft, key: str, value: Any) -> None:
    ours = "watch.ttl" if key == "max_duration" else "job.grace"
    text = f"{value}s" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    if match := re.fullmatch(r"(\d+)w", text):
        text = f"{int(match[1]) * 7}d"
    if re.fullmatch(r"\d+[smhd]", text):
        draft.take(ours, text, f"{key}: {value}")
    else:
        draft.leave(f"{key}: {value}", f"not a length of time; see {ours}")


def _pair(one: Any) -> tuple[str, str | None]:
    name, equals, value = str(one).partition("=")
    return name, value if equals else None


def _listed(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, list | tuple) else []


_KEYS_OF_A_TASK: Mapping[str, Callable[[Draft, str, Any], None]] = {
    "name": _done, "type": _done, "resources": _done, "backends": _done, "regions": _done,
    "availability_zones": _done, "spot_policy": _done,
    "image": lambda draft, _, name: draft.image(str(name), f"image: {name}"),
    "reservation": _reservation, "python": _python, "env": _env, "commands": _commands, "files": _files,
    "repos": _repos, "max_duration": _duration, "stop_duration": _duration,
}  # fmt: skip
