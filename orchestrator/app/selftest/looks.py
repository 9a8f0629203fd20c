"""What a self-test looks at besides the product's own commands: the chips of a TPU, quota, what is left."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.cli.console import say
from orchestrator.domain import names
from orchestrator.domain.all_zones import Survey
from orchestrator.domain.observation import Absent, Present, Unknown
from orchestrator.domain.tpu_quota import beyond, taken
from orchestrator.errors import Retry, TpuctlError

if TYPE_CHECKING:
    from orchestrator.app.session import Session


class StepError(Exception):
    """End a step that did not go as it must."""


class StepSkipError(Exception):
    """End a step that cannot show anything here; that is no failure."""


def look(session: "Session", zone: str, kind: str, *, tpu: bool) -> None:
    """Ask whether all is there that the steps need; raise StepError where it is not, or is not to be seen."""
    from orchestrator.google.project_probe import Probe

    probe, spec = Probe(session.clients), session.spec
    machine = spec.vm.machine if spec.vm != "none" else ""
    region = names.region_of(zone)
    asked: dict[str, Any] = {
        "the TPU API": probe.tpu_api(zone),
        "the type": probe.offers(zone, kind),
        "the runtime": probe.has_runtime(zone, spec.tpu.runtime or ""),
        "Compute Engine": probe.machine_account(),
        "Cloud Storage": probe.storage_api(),
        "the image": probe.vm_image(machine),
        "the quota of CPUs": probe.cpus(region, zone, machine),
    }
    of_tpu = {"the TPU API", "the type", "the runtime"}
    needed = [name for name in asked if tpu or name not in of_tpu]
    missing = [name for name in needed if not isinstance(asked[name], Present)]
    if isinstance(asked["the quota of CPUs"], Absent):
        missing.remove("the quota of CPUs")  # A region without a limit.
    if missing:
        raise StepError(f"not there, or not to be seen: {', '.join(missing)}")


def chips_seen(told: Mapping[str, str], wanted: int, *, local: bool) -> str:
    """
    Return what a program on a TPU machine saw of its chips; raise StepError where some are missing.

    The machines of the local cloud have none: that is said, and nothing else is claimed.
    """
    if not {"chips", "devices", "opened"} <= set(told):
        raise StepError("the program that looks for chips said nothing")
    chips, devices, opened = (int(told[key]) for key in ("chips", "devices", "opened"))
    seen = f"{chips} chips on PCI, {devices} devices, {opened} of them open"
    if local and not devices:
        return f"{seen}: machines of the local cloud have no accelerator"
    if max(chips, devices) < wanted or not opened:
        raise StepError(f"{seen}; the type has {wanted} chips in each machine")
    return seen


def ask_beyond_quota(session: "Session", zone: str, kind: str) -> str:
    """
    Ask for the smallest type that the project's own limit excludes; return the refusal's code.

    What might be granted is not asked for: StepSkipError where the limit is not known or excludes nothing.
    """
    from orchestrator.google.project_probe import Probe

    found = taken(session.spec, session.catalog)
    if found is None:
        raise StepSkipError(f"the quota of {kind} is not known")
    limits = Probe(session.clients).tpu_limits(found[1].id, (zone,))
    limit = limits.value.get(zone) if isinstance(limits, Present) else None
    if limit is None:
        raise StepSkipError("the limit is not to be read (gcloud services enable cloudquotas.googleapis.com)")
    larger = beyond(session.catalog, kind, zone, limit)
    if not larger:
        raise StepSkipError(f"no type of this quota is beyond the project's limit ({limit})")
    order = session.blueprint.node_order(session.records.current, zone, 1)
    order = replace(order, name=f"{session.spec.name}-tpu-beyond", type=larger)
    try:
        session.cloud.nodes.create(order)
    except TpuctlError as error:
        if error.retry is not Retry.QUOTA:
            raise StepError(f"{larger} was not refused for quota: {error.code} {error.message}") from error
        return f"{larger} is refused, the limit is {limit}: {error.code}"
    session.cloud.nodes.delete(order.name, zone)
    raise StepError(f"{larger} was not refused though the limit is {limit}; its deletion is asked for")


def still_there(session: "Session", name: str, zone: str, bucket: str) -> list[str]:
    """
    List by label in the zone used and over all zones; what cannot be listed is not proven gone.

    A zone without an answer that was never used is told, and proves nothing.
    """
    label, cloud = names.DEPLOYMENT_LABEL, session.cloud
    here: dict[str, Any] = {
        "TPU": cloud.nodes.labelled(label, name, (zone,)),
        "VM": cloud.vms.labelled(label, name, (zone,)),
        "queued resource": cloud.queued.labelled(label, name, (zone,)),
    }
    everywhere: dict[str, Survey[Any]] = {
        "TPU": cloud.nodes.everywhere(label, name),
        "VM": cloud.vms.everywhere(label, name),
        "queued resource": cloud.queued.everywhere(label, name),
    }
    left = [kind for kind, seen in here.items() if not (isinstance(seen, Present) and not seen.value)]
    for kind, wide in everywhere.items():
        if isinstance(wide, Unknown):
            left.append(f"{kind} in other zones ({wide.why})")
            continue
        left += [f"{kind} {one.name} in {one.zone}" for one in wide.value.found if one.zone != zone]
        if wide.value.unreachable:
            say(f"no answer for a {kind} from {', '.join(wide.value.unreachable)}")
    if not isinstance(cloud.buckets.observe(bucket), Absent):
        left.append(f"bucket {bucket}")
    return left
