"""Hold everything that `plan` shows before anything is changed, for people and for programs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from orchestrator.contract.image_names import is_googles
from orchestrator.domain import names
from orchestrator.domain.bucket_grants import shares_account
from orchestrator.domain.catalog import Accelerator, Catalog
from orchestrator.domain.machines.capacity import CapacityHistory
from orchestrator.domain.machines.data_disks import disk_lines
from orchestrator.domain.machines.image_python import python_text
from orchestrator.domain.machines.node_price import ways_to_bucket
from orchestrator.domain.machines.scopes import (
    BUCKET_ROLE,
    LOOP_ROLES,
    PULLER_ROLE,
    READER_ROLE,
    SELF_DELETE_ROLE,
    WRITER_ROLE,
    node_scopes,
    vm_scopes,
)
from orchestrator.domain.machines.tpu_quota import beyond_a_new_project
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.record import Span
from orchestrator.domain.source.secret_refs import grant_line, job_secrets, secret_lines, secret_names
from orchestrator.domain.spec import Spec, TpuSpec
from orchestrator.domain.text.amounts import at_most_text
from orchestrator.planning.safety_nets import safety_nets
from orchestrator.planning.save_interval import SaveInterval, planned_interval
from orchestrator.planning.sidecars import sidecars
from orchestrator.pricing.cost import Hourly, to_budget, to_ttl, upper_to_ttl
from orchestrator.pricing.cost_so_far import hourly_of

DEFAULT_ACCOUNT = "PROJECT_NUMBER-compute@developer.gserviceaccount.com"


@dataclass(frozen=True)
class Preview:
    """
    A plan with what it would create, where, as which account and at what price.

    *project* and *account* are None if only the cloud knows them; *scripts* maps names to texts. *egress*
    holds USD per GiB between the bucket and each other region, None if unknown. *saves* is the interval that
    the first machine will tell its job, None if the job decides. *python* says which Python the job finds,
    empty in a container. *formats* are those in which the job has saved already.
    """

    spec: Spec
    plan: Plan
    hourly: Hourly
    accelerator: Accelerator | None
    project: str | None = None
    account: str | None = None
    notes: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)
    egress: Mapping[str, float | None] = field(default_factory=dict)
    saves: SaveInterval | None = None
    python: str = ""
    formats: tuple[str, ...] = ()

    @property
    def region(self) -> str:
        """Return the region of the first TPU, the VM and, unless it is in a multi-region, the bucket."""
        return names.region_of(self.spec.tpu.zones[0])

    @property
    def bucket(self) -> str | None:
        """Return the bucket's name, None if it depends on a project that is not known yet."""
        if self.spec.bucket.name or self.project:
            return names.bucket_name(self.spec, self.project or "")
        return None

    @property
    def account_text(self) -> str:
        """Return the account that the machines run as, in words."""
        return self._known_account or "the project's default compute account, looked up by `up`"

    @property
    def _known_account(self) -> str | None:
        return self.spec.service_account or self.account

    @property
    def labels(self) -> dict[str, dict[str, str]]:
        """Return the labels by role; the node's are those of the one that is created, else of the first."""
        made = [c.incarnation for c in self.plan.changes if c.requests_tpu]
        found = {
            "bucket": names.labels(self.spec, "bucket"),
            "tpu": names.labels(self.spec, "tpu", (made or [1])[0]),
        }
        return found if self.spec.vm == "none" else {**found, "vm": names.labels(self.spec, "vm")}

    def labels_of(self, change: Change) -> dict[str, str]:
        """Return the labels of what *change* creates; each TPU of a race has its own incarnation."""
        if change.verb is not Verb.CREATE:
            return {}
        if change.kind is Kind.NODE:
            return names.labels(self.spec, "tpu", change.incarnation, change.round)
        return self.labels.get(change.kind.word, {})

    def title(self, change: Change) -> str:
        """Return the name of a change's resource."""
        if change.kind is not Kind.BUCKET:
            return change.name
        return change.name or self.bucket or f"tpuctl-{self.spec.name}-<digest of project and name>"

    def details(self, change: Change) -> dict[str, str]:
        """Return further details of a change for people; for a creation also what is requested."""
        requested = (
            _ORDERED[change.kind](self) if change.verb is Verb.CREATE and change.kind in _ORDERED else {}
        )
        kind = {"type": change.type} if change.substitute else {}
        return {**requested, **kind, **change.details}

    def as_dict(self, *, scripts: bool = False) -> dict[str, object]:
        """Return the preview as `--json` prints it."""
        spec, plan, price = self.spec, self.plan, self.hourly
        budget = spec.watch.budget_usd
        body: dict[str, object] = {
            "name": spec.name,
            "project": self.project,
            "region": self.region,
            "zones": list(spec.tpu.zones),
            "bucket_location": names.home_region(spec),
            "egress_usd_gib": dict(self.egress),
            "bucket": self.bucket,
            "changes": [
                {**c.as_dict(), "name": self.title(c), "details": self.details(c)} for c in plan.changes
            ],
            "waits_for": [asdict(wait) for wait in plan.waits],
            "outcome": plan.outcome.value if plan.outcome else None,
            "message": plan.message,
            "labels": self.labels,
            "service_account": {"email": spec.service_account or self.account, "message": self.account_text},
            "scopes": list(node_scopes(spec)),
            "secrets": {name: ref.text for name, ref in job_secrets(spec).items()},
            # Printed and never run: tpuctl grants no account a role on secrets.
            "grants": [
                grant_line(name, self._known_account or DEFAULT_ACCOUNT) for name in secret_names(spec)
            ],
            "safety_nets": [asdict(net) for net in safety_nets(spec)],
            "price": {
                "zone": price.zone,
                "lines": [line.as_dict() for line in price.lines],
                "spot_usd_hour": _rounded(price.spot_usd),
                "on_demand_usd_hour": _rounded(price.on_demand_usd),
                "billed_usd_hour": _rounded(price.billed_usd),
                "storage_usd_gib_month": price.storage_usd_gib_month,
                "unpriced": list(price.unpriced),
                "ttl_s": float(spec.watch.ttl),
                "to_ttl_usd": _rounded(to_ttl(price, spec.watch.ttl)),
                "to_ttl_upper_usd": _rounded(upper_to_ttl(price, spec.watch.ttl)),
                "budget_usd": budget,
                "budget_lasts_s": None if budget is None else _rounded(to_budget(price, budget)),
                "dates": dict(price.dates),
            },
            "saves": self.saves.as_dict() if self.saves else None,
            "notes": list(self.notes),
        }
        return {**body, "scripts": dict(self.scripts)} if scripts else body


def preview(
    spec: Spec,
    plan: Plan,
    catalog: Catalog,
    *,
    project: str | None = None,
    account: str | None = None,
    scripts: Mapping[str, str] | None = None,
    notes: tuple[str, ...] = (),
    there: Span | None = None,
    history: CapacityHistory = (),
    local: bool = False,
    formats: tuple[str, ...] = (),
) -> Preview:
    """
    Return the preview of *plan*; prices are those of the TPU that it creates, else of the one that is *there*.

    Without either they are those of the first zone. *notes* are shown before the deployment file's own ones.
    *history* is what is remembered of zones; *local* is true on the local cloud. *formats* are
    those in which the job has saved already.
    """
    made = next((c for c in plan.changes if c.requests_tpu), None)
    zone, kind = (made.zone, made.type) if made else (there.zone, there.type) if there else ("", "")
    return Preview(
        spec,
        plan,
        hourly_of(spec, plan, catalog, there),
        catalog.accelerator(spec.tpu.type),
        project or spec.project,
        account,
        (*notes, *_notes(spec, catalog)),
        scripts or {},
        ways_to_bucket(spec, catalog),
        planned_interval(spec, history, kind or spec.tpu.type, zone or spec.tpu.zones[0]),
        python_text(spec, catalog, local=local),
        formats,
    )


def _notes(spec: Spec, catalog: Catalog) -> tuple[str, ...]:
    hidden = [
        f"{zone} is not in Google's public list for {spec.tpu.type}: some projects cannot use it"
        for zone in spec.tpu.zones
        if not catalog.is_documented(spec.tpu.type, zone)
    ]
    return (*hidden, *beyond_a_new_project(spec, catalog))


def _bucket(preview: Preview) -> dict[str, str]:
    return {
        "location": names.home_region(preview.spec),
        "access": "uniform, never public",
        "soft delete": _soft_delete(preview.spec),
        **_grant(preview.spec),
    }


def _soft_delete(spec: Spec) -> str:
    """Return how long Google keeps what is deleted, and what that costs; the default of a bucket is a week."""
    age = spec.bucket.soft_delete
    return (
        f"{age}, for which deleted objects are billed on" if age else "off, so what is deleted costs no more"
    )


def _grant(spec: Spec) -> dict[str, str]:
    """Return what the machines' accounts may do in the bucket, and the roles for it."""
    narrow = "machines read all, and write all but code, data sets and tpuctl's record"
    roles = f"{BUCKET_ROLE}, {READER_ROLE} and, with a condition, {WRITER_ROLE}"
    if not spec.watch.on_vm:
        return {"grant": narrow, "roles": roles}
    if shares_account(spec):
        words = "machines read and write all: the job runs as the account of the loop on the VM"
        return {"grant": words, "roles": f"{WRITER_ROLE}, without a condition"}
    return {"grant": f"{narrow}; the VM's own account writes all", "roles": f"a condition on {WRITER_ROLE}"}


def _vm(preview: Preview) -> dict[str, str]:
    vm = preview.spec.vm
    if vm == "none":
        return {}
    capacity = "spot" if vm.spot else "standard"
    # Google's own limit on the VM, which also holds when no tpuctl runs any more.
    lifetime = f"deleted by Google after {preview.spec.watch.ttl}"
    more = (
        {"lifetime": lifetime + " and an hour", **_loop(preview)}
        if preview.spec.watch.on_vm
        else {"lifetime": lifetime}
    )
    beside = {**secret_lines(preview.spec, "vm"), **_beside(preview.spec, "vm")}
    hidden = "internal only: SSH goes through Identity-Aware Proxy"
    way = {"address": "external and internal" if vm.external_ip else hidden}
    shape = {
        "machine type": f"{vm.machine_type}, {capacity}",
        "disk": f"{vm.disk_gb} GB",
        **_python(preview, "vm"),
        **way,
    }
    return {**shape, **more, **beside}


def _loop(preview: Preview) -> dict[str, str]:
    """Return what the loop on the VM may do, and the roles that its account needs."""
    scopes = ", ".join(scope.rsplit("/", 1)[-1] for scope in vm_scopes(preview.spec))
    return {
        "scope": f"{scopes}, so that `tpuctl watch --on-vm` can replace the TPU from here",
        "its account needs": f"{', '.join(LOOP_ROLES)}; tpuctl grants none of these",
    }


def _beside(spec: Spec, role: str) -> dict[str, str]:
    """Return the sidecars on one kind of machine, in words."""
    found = [f"{s.name} (127.0.0.1:{s.port})" for s in sidecars(spec, "") if s.on == role]
    return {"sidecars": ", ".join(found)} if found else {}


def _node(preview: Preview) -> dict[str, str]:
    tpu, accelerator = preview.spec.tpu, preview.accelerator
    shape = {}
    if accelerator:
        workers = "1 worker" if accelerator.hosts == 1 else f"{accelerator.hosts} workers"
        chips = "1 chip" if accelerator.chips == 1 else f"{accelerator.chips} chips"
        shape = {"shape": f"{chips} ({accelerator.topology}), {workers}"}
    way = "SSH works from its own network" if preview.spec.vm == "none" else "SSH goes through the VM"
    address = "external and internal" if tpu.external_ip else f"internal only: {way}"
    runtime = tpu.runtime or (accelerator.runtime if accelerator else None) or "unknown: set tpu.runtime"
    return {
        "type": f"{tpu.type}, {_class(tpu)}",
        **shape,
        "runtime": runtime,
        **_python(preview, "tpu"),
        "address": address,
        **_disks(preview.spec),
        **_queue(tpu),
        **_deadline(preview),
        **_timer(preview),
        **secret_lines(preview.spec, "tpu"),
        **_image(preview.spec),
        **_beside(preview.spec, "tpu"),
    }


def _python(preview: Preview, role: str) -> dict[str, str]:
    """Return which Python the job finds, on the kind of machine that it runs on."""
    return {"python": preview.python} if preview.python and preview.spec.job.run_on == role else {}


def _image(spec: Spec) -> dict[str, str]:
    """Return the image that the job runs in, and the role that the machines' account needs to pull it."""
    if not spec.job.image:
        return {}
    needs = f"{PULLER_ROLE} on the repository; tpuctl does not grant it" if is_googles(spec.job.image) else ""
    said = "by its tag, pinned at the first pull" if "@sha256:" not in spec.job.image else "by its digest"
    return {"image": f"{spec.job.image}, {said}", **({"to pull the image": needs} if needs else {})}


def _disks(spec: Spec) -> dict[str, str]:
    """Return the attached disks, which belong to the user, in words."""
    named = ", ".join(disk_lines(spec))
    return {"disks": f"{named}; they exist already, and are neither formatted nor deleted"} if named else {}


def _class(tpu: TpuSpec) -> str:
    return "flex-start" if tpu.request == "flex-start" else "spot" if tpu.spot else "on demand"


def _queue(tpu: TpuSpec) -> dict[str, str]:
    """Return how the TPU is requested, in words; empty if at once."""
    if tpu.request == "node":
        return {}
    taken = {}
    if tpu.reservation:
        taken = {"reservation": f"{tpu.reservation}; its own price is not known here"}
    wait = f"for {tpu.wait} in each zone" if tpu.wait else "without end"
    if tpu.request == "flex-start":
        most = tpu.max_run_duration or "7d"
        lifetime = f"flex-start: Google ends it {most} after it was given, then the next one is requested"
        taken = {"lifetime": lifetime, "price": "flex-start is not in the price tables; on demand is counted"}
    asked = f"through the zone's queue, waiting {wait}; nothing is billed while it waits"
    return {"request": asked, **taken}


def _deadline(preview: Preview) -> dict[str, str]:
    """Return the highest cost of a deadline: on demand for all of the time."""
    deadline, on_demand = preview.spec.watch.deadline, preview.hourly.on_demand_usd
    if deadline is None:
        return {}
    hour = "an unknown price" if on_demand is None else f"{on_demand:.2f} USD an hour"
    whole = on_demand is not None and deadline.after is not None
    # The highest cost: on demand for all of the time, the worst case of a deadline.
    most = f", {at_most_text((on_demand or 0.0) * (deadline.after or 0.0) / 3600)} in all" if whole else ""
    first = "flex-start, else " if preview.spec.watch.last_resort == "flex-start" else ""
    return {"deadline": f"{deadline}; where spot does not do, {first}on demand at {hour}{most}"}


def _timer(preview: Preview) -> dict[str, str]:
    """Return when a TPU deletes itself, and the role that its account needs for it."""
    if not preview.spec.watch.self_delete:
        return {}
    needs = (
        f"{SELF_DELETE_ROLE} and the scope cloud-platform, to delete its own TPU; tpuctl grants neither role"
    )
    return {"lifetime": f"deletes itself after {preview.spec.watch.ttl}", "its account needs": needs}


_ORDERED = {Kind.BUCKET: _bucket, Kind.VM: _vm, Kind.NODE: _node}


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 6)
