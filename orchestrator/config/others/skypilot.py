"""Convert SkyPilot's task file (its reference: "SkyPilot YAML")."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.config.others.conversion import Draft, no_type, tpu_type

TOOL = "SkyPilot"
KEYS = ("run", "setup", "resources", "file_mounts", "workdir", "num_nodes", "envs", "secrets", "service")

_HOST = "the TPU's type decides what its machine has"
_NO_SETTING = {
    "resources.cpus": _HOST, "resources.memory": _HOST, "resources.instance_type": _HOST,
    "resources.disk_size": "a TPU's boot disk has one size; for more, attach a disk: tpu.disks",
    "resources.disk_tier": "a TPU's boot disk has one kind",
    "resources.network_tier": "not a setting of a TPU",
    "resources.ports": "no port is opened; reach it with: tpuctl tunnel PORT",
    "resources.image_id": "the machine's own image is tpu.runtime",
    "resources.labels": "tpuctl sets its own labels only",
    "resources.autostop": "the TPU is deleted when the job is done; watch.ttl ends it in any case",
    "resources.priority": "there is no queue of jobs",
    "service": "tpuctl trains; it serves nothing",
    "config": "settings of the SkyPilot client", "experimental": "settings of the SkyPilot client",
    "event_callback": "see notify in tpuctl.yaml",
    "volumes": "attach disks with tpu.disks",
    "inputs": "not a setting of a TPU", "outputs": "not a setting of a TPU",
}  # fmt: skip
_UNKNOWN = "tpuctl has nothing like it"
_SET = "tpuctl sets it itself"
_VARIABLES = {
    "SKYPILOT_NODE_RANK": "$WORKER_ID", "SKYPILOT_NUM_NODES": "the number of workers of the type",
    "SKYPILOT_NODE_IPS": "JAX and PyTorch/XLA find the other workers by themselves",
    "SKYPILOT_TASK_ID": "$TPUCTL_BUCKET is the same for every start", "SKYPILOT_NUM_GPUS_PER_NODE": "no GPUs",
}  # fmt: skip


def convert(data: Mapping[str, Any]) -> Draft:
    """Return the draft for a SkyPilot task."""
    draft = Draft(TOOL)
    if data.get("name"):
        draft.name(data["name"], f"name: {data['name']}")
    given = data.get("resources")
    _resources(draft, given if isinstance(given, Mapping) else {})
    for key, value in data.items():
        _KEYS_OF_A_TASK.get(str(key), _no_setting)(draft, str(key), value)
    return draft


def _no_setting(draft: Draft, key: str, _: Any) -> None:
    draft.leave(key, _NO_SETTING.get(key, _UNKNOWN))


def _done(_: Draft, __: str, ___: Any) -> None:
    """Do nothing: this key has been read before."""


def _workdir(draft: Draft, _: str, folder: Any) -> None:
    if isinstance(folder, str):
        draft.source(folder, f"workdir: {folder}")
    else:
        draft.leave("workdir", "clone the repository, and put tpuctl.yaml into it")


def _nodes(draft: Draft, _: str, nodes: Any) -> None:
    if nodes not in (None, 1):
        draft.leave(f"num_nodes: {nodes}", "one TPU with several workers is one type, such as v5litepod-16")


def _envs(draft: Draft, _: str, given: Any) -> None:
    for name, value in _named(given):
        if name.startswith("TPUCTL_") or (name, value) == ("PYTHONUNBUFFERED", "1"):
            draft.leave(f"envs.{name}", _SET)
        else:
            draft.variable(name, value, f"envs.{name}")


def _secrets(draft: Draft, _: str, given: Any) -> None:
    for name, _value in _named(given):
        draft.secret(name, f"secrets.{name}")


def _mounts(draft: Draft, _: str, given: Any) -> None:
    for target, source in _named(given):
        _mount(draft, target, source)


def _script(draft: Draft, key: str, text: Any) -> None:
    ours = "job.setup" if key == "setup" else "job.command"
    if not isinstance(text, str) or not text.strip():
        return
    while match := re.match(r"export (TPUCTL_\w+)=.*\n", text):
        draft.leave(f"{key}: {match[1]}", _SET)
        text = text[match.end() :]
    draft.take(ours, text.strip("\n").rstrip(), key)
    for name, here in _VARIABLES.items():
        if name in text:
            draft.decide(ours, f"uses ${name}; here: {here}")


_KEYS_OF_A_TASK: Mapping[str, Callable[[Draft, str, Any], None]] = {
    "name": _done, "resources": _done, "workdir": _workdir, "num_nodes": _nodes, "envs": _envs, "secrets": _secrets,
    "file_mounts": _mounts, "setup": _script, "run": _script,
}  # fmt: skip


def _resources(draft: Draft, given: Mapping[str, Any]) -> None:
    choices = [one for key in ("ordered", "any_of") for one in _listed(given.get(key))]
    every = [{**given, **one} for one in choices if isinstance(one, Mapping)] or [dict(given)]
    usable = [one for one in every if _cloud(one) in ("", "gcp", "*")]
    on_gke = [one for one in every if _cloud(one) in ("k8s", "kubernetes")]
    for one in every:
        if one not in usable:
            cloud = "there is no Kubernetes cluster" if one in on_gke else "tpuctl uses Google Cloud only"
            draft.leave(f"resources: {_cloud(one)}", cloud)
    _types(draft, usable + on_gke)
    _zones(draft, usable)
    _spot(draft, usable)
    arguments = list(dict.fromkeys(pair for one in usable for pair in _named(one.get("accelerator_args"))))
    for name, value in arguments:
        theirs = f"resources.accelerator_args.{name}: {value}"
        if sum(name == other for other, _ in arguments) > 1:
            draft.leave(theirs, "each type has another one; tpuctl knows that of each")
        else:
            _argument(draft, name, value, theirs)
    image = str(given.get("image_id") or "")
    if image.startswith("docker:"):
        draft.image(image.partition(":")[2], f"resources.image_id: {image}")
    _recovery(draft, given.get("job_recovery", given.get("spot_recovery")))
    for key in dict.fromkeys(str(key) for one in every for key in one):
        if key not in _READ_ABOVE and not (key == "image_id" and image.startswith("docker:")):
            draft.leave(f"resources.{key}", _NO_SETTING.get(f"resources.{key}", _UNKNOWN))


_READ_ABOVE = (
    "accelerators", "accelerator_args", "use_spot", "infra", "cloud", "region", "zone", "any_of", "ordered",
    "job_recovery", "spot_recovery",
)  # fmt: skip


def _types(draft: Draft, every: Sequence[Mapping[str, Any]]) -> None:
    kinds = list(dict.fromkeys(kind for one in every for kind in _accelerators(one.get("accelerators"))))
    if kinds:
        draft.tpu(kinds, f"resources.accelerators: {', '.join(kinds)}")
    for kind in kinds:
        if not tpu_type(kind) and "tpu.type" in draft.values:
            draft.leave(f"resources.accelerators: {kind}", no_type(kind))


def _zones(draft: Draft, every: Sequence[Mapping[str, Any]]) -> None:
    for one in every:
        region, zone = _region_and_zone(one)
        if zone:
            draft.zones([zone], f"resources: zone {zone}")
        elif region:
            draft.region(region, f"resources: region {region}")
    draft.several_regions("resources in several regions")


def _argument(draft: Draft, name: str, value: Any, theirs: str) -> None:
    if name == "runtime_version":
        draft.take("tpu.runtime", str(value), theirs)
    elif name == "gcp_queued_resource":
        draft.take("tpu.request", "queued" if value else "node", theirs)
    elif name == "tpu_vm" and value is False:
        draft.leave(theirs, "TPU nodes are no longer offered: the code runs on the TPU's own machine")
    elif name != "tpu_vm":
        draft.leave(theirs, "names come from the deployment's name")


def _spot(draft: Draft, every: Sequence[Mapping[str, Any]]) -> None:
    asked = [one["use_spot"] for one in every if one.get("use_spot") is not None]
    theirs = f"resources.use_spot: {str(asked[0]).lower()}" if asked else "use_spot, not given: on demand"
    draft.spot(spot=True in asked, theirs=theirs)


def _recovery(draft: Draft, given: Any) -> None:
    """Convert the recovery of managed jobs: a text, or a mapping with a strategy."""
    recovery = given if isinstance(given, Mapping) else {} if given is None else {"strategy": given}
    for name, value in _named(recovery):
        theirs = f"resources.job_recovery.{name}: {value}"
        if name == "strategy" and str(value).upper() == "FAILOVER":
            draft.take("tpu.strategy", "failover", theirs)
        elif name == "strategy":
            draft.leave(theirs, "zones are tried in their order: list those of other regions in tpu.zones")
        elif name == "max_restarts_on_errors" and isinstance(value, int) and not isinstance(value, bool):
            draft.take(
                "job.failures", value + 1, theirs, "attempts in a row without progress, the first included"
            )
        else:
            draft.leave(theirs, _UNKNOWN)


def _mount(draft: Draft, target: str, source: Any) -> None:
    """Convert one file mount to `job.data`, or add a row that says why not."""
    theirs = f"file_mounts.{target}"
    if isinstance(source, Mapping):
        if source.get("store") == "volume":
            draft.leave(theirs, "attach an existing disk with tpu.disks")
            return
        mode = str(source.get("mode", "MOUNT")).upper()
        origin = source.get("source") or (f"gs://{source['name']}" if source.get("name") else "")
        if mode != "COPY" and not source.get("source"):
            message = (
                "a bucket to write to: save to $TPUCTL_CHECKPOINT_DIR, the agent copies it to the bucket"
            )
            draft.leave(theirs, message)
            return
    else:
        mode, origin = "COPY", source
    inside = re.sub(r"^(?:~/sky_workdir/|~/|\./|/+)", "", target).strip("/")
    origin = origin if isinstance(origin, str) else ""
    if "://" in origin and not origin.startswith("gs://"):
        draft.leave(theirs, "copy it to a bucket of Google Cloud first, then name it in job.data")
        return
    if origin.startswith(("/", "~")) or ".." in origin.split("/"):
        # A file from elsewhere could name a key, so nothing outside of the project is sent.
        draft.leave(
            theirs, f"{origin} is outside the project: if it shall be sent, name it in job.data yourself"
        )
        return
    if not inside or not origin or "$" in target + origin:
        draft.leave(theirs, "name it in job.data yourself: its path or source is not known here")
        return
    draft.take("job.data", {inside: origin}, f"{theirs}: {origin}")
    if not target.startswith(("~/sky_workdir/", "./")) and target.startswith(("/", "~")):
        message = f"the job reads {target}; here it is {inside} in its own folder"
        draft.decide("job.data", message, item=inside)
    if mode != "COPY":
        draft.decide(
            "job.data",
            "it is copied before the job starts, not mounted; what is written stays there",
            item=inside,
        )


def _accelerators(given: Any) -> list[str]:
    """Return the accelerators' names in order, each with its count."""
    if isinstance(given, str):
        return [part.strip() for part in given.split(",") if part.strip()]
    if isinstance(given, Mapping):
        # A YAML set has no values; a mapping has the counts.
        return [
            f"{name}:{count}" if count not in (None, 1) and ":" not in str(name) else str(name)
            for name, count in given.items()
        ]
    return [str(one) for one in _listed(given)]


def _cloud(one: Mapping[str, Any]) -> str:
    infra = one.get("infra")
    return str(infra).partition("/")[0].lower() if infra else str(one.get("cloud") or "").lower()


def _region_and_zone(one: Mapping[str, Any]) -> tuple[str, str]:
    """Return region and zone, empty if any will do."""
    _, region, zone = (*str(one.get("infra") or "").split("/"), "", "", "")[:3]
    region, zone = str(one.get("region") or region), str(one.get("zone") or zone)
    return region.replace("*", ""), zone.replace("*", "")


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else []


def _named(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield the items of a mapping; other values yield nothing."""
    if isinstance(given, Mapping):
        yield from ((str(name), value) for name, value in given.items())
    # SkyPilot also accepts a list of NAME=VALUE.
    for one in _listed(given):
        name, equals, value = str(one).partition("=")
        yield name, value if equals else None
