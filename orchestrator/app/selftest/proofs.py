"""Prove what the product's own commands do not show: chips, quota, leftovers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.advice.selftest.recording import RecordingRedactor, placeholders
from orchestrator.app.deployment.session import Session
from orchestrator.domain import names
from orchestrator.domain.all_zones import ObservedAllZones
from orchestrator.domain.machines.tpu_quota import beyond, taken
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.errors import Retry, TpuctlError
from orchestrator.google.project_reader import ProjectReader
from orchestrator.scripts.shipped import remote_script


class StageError(Exception):
    """What a stage wanted to prove is not so; the text says what was found instead."""


class StageSkipError(Exception):
    """A stage cannot prove anything here, which is no failure."""


def check_needs(session: Session, zone: str, tpu_type: str, *, tpu: bool) -> None:
    """Check that everything that the stages need exists. Raise StageError if it is missing or Unknown."""
    reader, spec = ProjectReader(session.clients), session.spec
    machine = spec.vm.machine_type if spec.vm != "none" else ""
    region = names.region_of(zone)
    asked: dict[str, Any] = {
        "the TPU API": reader.tpu_api(zone),
        "the type": reader.offers(zone, tpu_type),
        "the runtime": reader.has_runtime(zone, spec.tpu.runtime or ""),
        "Compute Engine": reader.machine_account(),
        "Cloud Storage": reader.storage_api(),
        "the image": reader.vm_image(machine),
        "the quota of CPUs": reader.cpus(region, zone, machine),
    }
    of_tpu = {"the TPU API", "the type", "the runtime"}
    needed = [name for name in asked if tpu or name not in of_tpu]
    missing = [name for name in needed if not isinstance(asked[name], Present)]
    # Here Absent is good: it means that there is no limit.
    if isinstance(asked["the quota of CPUs"], Absent):
        missing.remove("the quota of CPUs")  # The region has no limit.
    if missing:
        raise StageError(f"not there, or not to be seen: {', '.join(missing)}")


def chips_text(output: Mapping[str, str], wanted: int, *, local: bool) -> str:
    """
    Return what a program on a TPU machine sees of its chips. Raise StageError if some are missing.

    Local machines have none, which the text says.
    """
    if not {"chips", "devices", "opened"} <= set(output):
        raise StageError("the program that looks for chips said nothing")
    chips, devices, opened = (int(output[key]) for key in ("chips", "devices", "opened"))
    text = f"{chips} chips on PCI, {devices} devices, {opened} of them open"
    if local and not devices:
        return f"{text}: machines of the local cloud have no accelerator"
    if max(chips, devices) < wanted or not opened:
        raise StageError(f"{text}; the type has {wanted} chips in each machine")
    return text


def ask_beyond_quota(session: Session, zone: str, tpu_type: str) -> str:
    """
    Request the smallest type that exceeds the project's quota; return the refusal's code.

    Nothing that might be granted is requested: raise StageSkipError if the quota is unknown or excludes
    nothing. Raise StageError for another refusal or a grant.
    """
    found = taken(session.spec, session.catalog)
    if found is None:
        raise StageSkipError(f"the quota of {tpu_type} is not known")
    limits = ProjectReader(session.clients).tpu_limits(found[1].id, (zone,))
    limit = limits.value.get(zone) if isinstance(limits, Present) else None
    if limit is None:
        raise StageSkipError(
            "the limit is not to be read (gcloud services enable cloudquotas.googleapis.com)"
        )
    larger = beyond(session.catalog, tpu_type, zone, limit)
    if not larger:
        raise StageSkipError(f"no type of this quota is beyond the project's limit ({limit})")
    new = session.blueprint.new_node(session.records.current, zone, 1)
    new = replace(new, name=f"{session.spec.name}-tpu-beyond", type=larger)
    try:
        session.cloud.nodes.create(new)
    except TpuctlError as error:
        # Any other refusal does not prove that quota errors are understood.
        if error.retry is not Retry.QUOTA:
            raise StageError(f"{larger} was not refused for quota: {error.code} {error.message}") from error
        return f"{larger} is refused, the limit is {limit}: {error.code}"
    # It was granted and is billed: delete it first, then fail the stage.
    session.cloud.nodes.delete(new.name, zone)
    raise StageError(f"{larger} was not refused though the limit is {limit}; its deletion is requested")


def still_there(session: Session, name: str, zone: str, bucket: str, say: Callable[[str], None]) -> list[str]:
    """
    List resources by label, in the zone used and in all zones; a failed list counts as a leftover.

    An unused zone that does not answer is only reported.
    """
    label, cloud = names.DEPLOYMENT_LABEL, session.cloud
    here: dict[str, Any] = {
        "TPU": cloud.nodes.labelled(label, name, (zone,)),
        "VM": cloud.vms.labelled(label, name, (zone,)),
        "queued resource": cloud.queued.labelled(label, name, (zone,)),
    }
    all_zones: dict[str, ObservedAllZones[Any]] = {
        "TPU": cloud.nodes.list_all_zones(label, name),
        "VM": cloud.vms.list_all_zones(label, name),
        "queued resource": cloud.queued.list_all_zones(label, name),
    }
    # Only a complete list proves a deletion, so Unknown counts as left.
    leftovers = [
        kind for kind, observed in here.items() if not (isinstance(observed, Present) and not observed.value)
    ]
    for kind, wide in all_zones.items():
        if isinstance(wide, Unknown):
            leftovers.append(f"{kind} in other zones ({wide.message})")
            continue
        leftovers += [f"{kind} {one.name} in {one.zone}" for one in wide.value.found if one.zone != zone]
        if wide.value.unreachable:
            say(f"no answer for a {kind} from {', '.join(wide.value.unreachable)}")
    if not isinstance(cloud.buckets.observe(bucket), Absent):
        leftovers.append(f"bucket {bucket}")
    return leftovers


NO_SUCH_TYPE, NO_SUCH_ZONE = "v5litepod-3", "us-central1-zz"

_VALUE = re.compile(r"[A-Za-z0-9][\w.-]{0,31}")
SAVES = 20
"""Steps between two saves of the job."""
TRAIN = """\
import os, time
from pathlib import Path

ENDS = {ends}
folder = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
done = [int(p.name[5:]) for p in folder.glob("step-*") if (p / "COMPLETE").exists()]
step = max(done, default=0)
last = step + {steps} if ENDS else float("inf")
while step < last:
    time.sleep(0.1)  # What a step of training would take: the job must last long enough to be killed.
    step += 1
    if step % {saves} == 0:
        part = folder / f"step-{{step:06d}}"
        part.mkdir(parents=True, exist_ok=True)
        (part / "state").write_text(str(step))
        (part / "COMPLETE").write_text("")
    print(f"step {{step}} loss {{1 / step:.4f}}", flush=True)
"""
DESCRIBE, COUNT_CHIPS = "describe-machine", "count-chips"
"""The scripts of templates/remote/ that describe a machine."""


def machine_facts(text: str) -> dict[str, str]:
    """Return what such a script printed, limited to its own keys and short values."""
    describe, count = remote_script(DESCRIBE).text, remote_script(COUNT_CHIPS).text
    programs = " ".join(re.findall(r"\bfor one in ([^;]+);", describe)).split()
    asked = {*re.findall(r"\bsay ([a-z-]+) ", describe), *re.findall(r"\"([a-z]+)=%", count), *programs}
    # Users send this file to others, so a machine's output is limited to known keys and short plain values.
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value for key, _, value in pairs if key in asked and _VALUE.fullmatch(value)}


def redactor_for(session: Session) -> RecordingRedactor:
    """Return a redactor that masks our own names and passes those of the catalogue."""
    account, catalog = session.cloud.account.default_service_account, session.catalog
    zones = set(catalog.zones)
    public = {*zones, *(names.region_of(zone) for zone in zones), *catalog.accelerators, *catalog.runtimes}
    public |= {NO_SUCH_TYPE, NO_SUCH_ZONE, "e2-small"}
    mine = (
        ("account", account),
        ("number", account.partition("-")[0]),
        ("project", session.project),
        ("bucket", session.blueprint.bucket),
        ("deployment", session.spec.name),
    )
    return RecordingRedactor(placeholders(mine), frozenset(public))
