"""Delete a deployment: everything that carries its label, proven by lists afterwards."""

import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.cost import known_cost, known_reports
from orchestrator.app.deployment.earlier_costs import keep_cost, open_named
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.session import Session
from orchestrator.app.this_computer.process_lock import refuse_if_busy
from orchestrator.app.this_computer.state_folders import included_file
from orchestrator.domain import names
from orchestrator.domain.all_zones import deletion_command
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.job_progress import unfinished_text
from orchestrator.domain.observation import Absent, Node, Present, Unknown, Vm
from orchestrator.domain.plan import Kind
from orchestrator.domain.text.amounts import size_text, usd_range_text
from orchestrator.emulator.control import stop_if_idle
from orchestrator.engine.adopt import Adoption
from orchestrator.engine.bucket.uncommitted import read_uncommitted
from orchestrator.engine.delete import Deletion
from orchestrator.engine.delete_data import DataDeletion
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.leftover import Leftover
from orchestrator.engine.reconcile.observe import observe
from orchestrator.errors import (
    UNFORESEEN,
    LeaseHeldError,
    LeftoverError,
    TpuctlError,
)
from orchestrator.planning.uncommitted import FETCH
from orchestrator.pricing.cost_breakdown import CostBreakdown
from orchestrator.pricing.cost_so_far import rates_now
from orchestrator.ssh.connect.ssh_settings import KNOWN_HOSTS
from orchestrator.ssh.keys import forget_key

GOING = "what was asked to go is still going, and the rest stays"
NOTHING_GOES = "nothing was deleted"


@dataclass(frozen=True)
class Down:
    """
    The result of `down`.

    *leftovers* are our own resources that still exist; those in zones that neither file nor record names were
    not touched. *remaining_bucket* is the bucket whose data stays, "" if none. *commands* delete what is left.
    *ended_usd_hour* is no longer billed. *cost* is the total cost, None if unknown.
    """

    name: str
    leftovers: tuple[Leftover, ...]
    remaining_bucket: str
    ended_usd_hour: float
    cost: CostBreakdown | None
    commands: tuple[str, ...]
    idle_cloud_stopped: bool

    def as_dict(self) -> dict[str, object]:
        """Return the result as `--json` prints it."""
        return {
            "leftovers": [asdict(item) for item in self.leftovers],
            "data_remains": bool(self.remaining_bucket),
            "ended_usd_hour": self.ended_usd_hour,
            "usd": self.cost.usd if self.cost else None,
            "on_demand_usd": self.cost.on_demand_usd if self.cost else None,
            "saved_usd": self.cost.saved_usd if self.cost else None,
            "lower_saved_usd": self.cost.lower_saved_usd if self.cost else None,
            "unpriced": list(self.cost.unpriced) if self.cost else [],
        }

    def raise_leftovers(self) -> None:
        """Raise LeftoverError if something is left."""
        if self.leftovers:
            items = "; ".join(f"{i.title} {i.name} {i.zone} ({i.state})" for i in self.leftovers)
            raise LeftoverError(
                f"left: {items}",
                hint=f"run: {' ; '.join(self.commands)}",
                changed="everything else is gone",
            )


def take_down(
    choice: Choice, reporter: Reporter, approve: Callable[[str, bool], None], *,
    name: str | None = None, delete_data: bool = False, take_over: Callable[[LeaseHeldError], None] | None = None,
    keep: Callable[[Sequence[Node | Vm]], bool] = lambda _: True, at_down: str = "", session: Session | None = None,
) -> Down:  # fmt: skip
    """
    Delete TPU and VM, with *delete_data* the bucket too, after reporting what goes and what stays.

    It is the deployment *name*, or that of the file, or of *session*, a forgiving one. *approve* gets the
    deployment's name and whether data is deleted, and raises to cancel. *keep* decides whether adopted
    machines are given back instead of deleted, if neither *at_down* nor the adoption has decided that.
    *take_over* decides whether to continue while another process holds the lease.
    """
    # Deleting must work without lease, record and bucket, since each of them may be what is broken. A given
    # session is one of several to delete, and its caller knows when the local cloud is idle.
    alone = session is None
    session = session or open_named(choice, name, reporter, "delete", forgiving=True)
    end_expired(session)
    goes = False
    with leaving(lambda: GOING if goes else NOTHING_GOES, "tpuctl down"):
        refuse_if_busy(session.folder, session.holder)
        if take_over is None:
            session.lease.refuse_if_held()
        # Before the lease: a watch goes on and keeps the job alive until the user has agreed.
        deletion = Deletion(session.deployment, under_lease=take_over is None)
        found = _announce(session, deletion, at_down, delete_data=delete_data)
        # A list that failed counts as machines; without any, and with the data kept, nothing is to be approved.
        if found.machines or found.data_goes:
            approve(session.spec.name, found.data_goes)
        given_back = _given_back(found.adopted, keep, at_down)
        with session.holding_lease("down", take_over=take_over):
            if alone:
                # A watch may have replaced a TPU meanwhile, and its record says where to look.
                session.records.load(forgiving=True)
                deletion = Deletion(session.deployment, under_lease=take_over is None)
                _announce_later(session, deletion, found.machines)
            deletion.spares_adopted = True
            deletion.approved = frozenset(node.name for node in found.adopted)
            goes = True
            _give_back(session, deletion, given_back)
            if delete_data:
                # With what was only observed now, as long as there is a record that can tell it.
                deletion.begin()
                found = replace(found, cost=known_cost(session) or found.cost)
            reporter.now("deleting everything that has this deployment's label")
            deletion.report = lambda text: reporter.now(f"being deleted: {text}")
            with reporter:
                leftovers = delete_all(deletion, session.blueprint.bucket if delete_data else "")
            if not leftovers and not delete_data:
                # Again, up to the end of the deletion, or `cost` would show a larger sum a second later.
                found = replace(found, cost=known_cost(session) or found.cost)
            # Only if lists prove that everything is deleted: leftovers are found by these files alone.
            if not leftovers:
                _forget(session, found.cost, delete_data=delete_data, all_gone=not given_back)
    # The local cloud stops with its last deployment, unless it was started by `local start`.
    stops = alone and not leftovers and not found.outside_zones and choice.cloud == "local" and stop_if_idle()
    # One that this command has started only to look is no news.
    return _result(session, found, leftovers, idle_cloud_stopped=stops and not session.started_local_cloud)


@dataclass(frozen=True)
class _Found:
    """
    What there is before anything goes, and what its end saves an hour, in USD.

    *machines* are names, "?" for a list that failed. *outside_zones* carry our label in zones that neither file
    nor record names. *cost* is None where unknown.
    """

    machines: frozenset[str]
    has_data: bool
    data_goes: bool
    adopted: tuple[Node | Vm, ...]
    outside_zones: tuple[Node | Vm, ...]
    ended_usd_hour: float
    cost: CostBreakdown | None


def _announce(session: Session, deletion: Deletion, at_down: str, *, delete_data: bool) -> _Found:
    """Say what goes, what is given back and what stays."""
    with session.reporter:
        adopted = deletion.adopted()
        returning = {one.name for one in _given_back(adopted, lambda _: False, at_down)}
        undecided = {one.name for one in _given_back(adopted, lambda _: True, at_down)}
        fates = dict.fromkeys(undecided, "was adopted: given back unless you choose to delete it")
        fates |= dict.fromkeys(returning, "is given back")
        machines = _announce_machines(session, deletion, fates, reports := known_reports(session))
        has_data, data_goes = _announce_data(session, delete_data=delete_data)
        if not machines:
            session.reporter.say("  there are no machines")
        outside_zones = _elsewhere(session, deletion)
    # Before the approval; once the machines are deleted, the record has no open spans to sum up. Adopted machines
    # stay billed unless the answer is to delete them.
    stay = frozenset(node.name for node in adopted)
    # A `down` that was killed may have deleted machines that the record still counts.
    ended_usd_hour = _end_of_costs(session, stay, deletion.ended()) if machines else 0.0
    cost = known_cost(session, reports)
    if cost is None and machines:
        session.reporter.say(
            "  what it has cost is not known yet: no observation of its machines is recorded"
        )
    return _Found(machines, has_data, data_goes, tuple(adopted), outside_zones, ended_usd_hour, cost)


def _announce_later(session: Session, deletion: Deletion, announced: Container[str]) -> None:
    """Say which machines were made since the others were *announced*: they go, too."""
    with session.reporter:
        for item in deletion.find():
            if item.name not in announced:
                session.reporter.say(f"- {item.title} {item.name} {item.zone} {item.state}, made since then")


def _result(
    session: Session, found: _Found, leftovers: Sequence[Leftover], *, idle_cloud_stopped: bool
) -> Down:  # fmt: skip
    not_touched = [
        Leftover(_kind(one).word, one.name, one.zone, f"{one.state.name}, not touched")
        for one in found.outside_zones
    ]
    stays = f"{session.blueprint.bucket}/{session.spec.bucket.prefix}".rstrip("/")
    again = ["tpuctl down"] if leftovers else []
    return Down(
        session.spec.name, (*leftovers, *not_touched), stays if found.has_data and not found.data_goes else "",
        found.ended_usd_hour, found.cost,
        (*again, *(deletion_command(one, session.project) for one in found.outside_zones)), idle_cloud_stopped,
    )  # fmt: skip


def _given_back(
    adopted: Sequence[Node | Vm], keep: Callable[[Sequence[Node | Vm]], bool], at_down: str
) -> list[Node | Vm]:  # fmt: skip
    """Return the machines to give back: by *at_down*, else by the choice at adoption, else by *keep*."""
    if at_down:
        return list(adopted) if at_down == "keep" else []
    said = [(node, node.labels.get(names.ADOPTED_LABEL)) for node in adopted]
    unsaid = [node for node, word in said if word not in (*names.AT_DOWN, names.ADOPTING)]
    returned = [node for node, word in said if word in ("keep", names.ADOPTING)]
    return returned + (unsaid if unsaid and keep(unsaid) else [])


def _give_back(session: Session, deletion: Deletion, machines: Sequence[Node | Vm]) -> None:
    """Give adopted *machines* back, and say how each is deleted: its owner pays for it from now on."""
    if not machines:
        return
    with session.reporter:
        messages = give_back(session.deployment, deletion, machines)
    for text in messages:
        session.reporter.say(f"  {text}")
    for one in machines:
        command = deletion_command(one, session.project)
        session.reporter.say(
            f"  {_kind(one).title} {one.name} is given back, and billed on. To delete it: {command}"
        )


def give_back(deployment: Deployment, deletion: Deletion, adopted: Sequence[Node | Vm]) -> tuple[str, ...]:
    """Stop the job on adopted machines and remove our labels; return the machines for which that failed."""
    adoption = Adoption(deployment, deployment.blueprint.public_key)
    # Record first: after a kill, a TPU without labels must not be taken for a lost one and replaced.
    deletion.begin()
    deletion.given_back = frozenset(node.name for node in adopted)
    world = observe(
        deployment.cloud,
        deployment.spec,
        deployment.records.current,
        deployment.blueprint.bucket,
        deployment.clock.now(),
    )
    messages = []
    for node in adopted:
        try:
            adoption.stop_job(node, world)
        except TpuctlError as error:
            then = "; then: sudo rm -f /etc/cron.d/tpuctl*" if isinstance(node, Vm) else ""
            messages.append(f"the job on {node.name} could not be stopped: {error.message}{then}")
        adoption.give_back(node)
    return tuple(messages)


def delete_all(deletion: Deletion, bucket: str = "") -> list[Leftover]:
    """Delete the machines, then the *bucket* or, without one, close its record; return what is left."""
    # Recorded first, so that after a kill no watch recreates machines. The record is closed last.
    deletion.begin()
    leftovers = list(deletion.machines())
    if not bucket:
        # For a report: that the machines were deleted, and what was only seen now.
        deletion.deployment.store_events()
    if not leftovers:
        if bucket:
            deletion.report(f"bucket {bucket} and its data")
        undeleted = (
            DataDeletion(deletion.deployment, deletion.close).delete(bucket) if bucket else deletion.close()
        )
        leftovers += [undeleted] if undeleted else []
    return leftovers


def _announce_machines(
    session: Session, deletion: Deletion, fates: Mapping[str, str], reports: tuple[Heartbeat, ...]
) -> frozenset[str]:
    """Say each machine, with its fate where it may stay (by name), and the job that runs; return their names."""
    found = deletion.find()
    for item in found:
        what = f"{item.title} {item.name} {item.zone} {item.state}"
        session.reporter.say(f"  {what}, {fates[item.name]}" if item.name in fates else f"- {what}")
    spec, newest = session.spec, session.records.current.node.incarnation
    job = unfinished_text([one for one in reports if one.incarnation == newest], spec.job.target_steps)
    works = any(item.kind == spec.job.run_on and item.state in {"READY", "RUNNING"} for item in found)
    if job and works:
        session.reporter.say(f"  the job runs and is not done: {job}")
    return frozenset(item.name for item in found)


def _announce_data(session: Session, *, delete_data: bool) -> tuple[bool, bool]:
    """Say what becomes of the bucket; return whether there may be one, and whether its data goes."""
    bucket = session.blueprint.bucket
    place = f"gs://{bucket}/{names.prefix_of(session.spec)}"
    # An unreadable bucket counts as existing: its data must not be lost because of an Unknown.
    observed = session.deployment.cloud.buckets.observe(bucket)
    if isinstance(observed, Absent):
        session.reporter.say(f"  there is no bucket {bucket}")
        return False, False
    goes_back = isinstance(observed, Present) and names.is_given_back(observed.value.labels)
    # The deployment's folder in a shared bucket is ours, also in a bucket of others.
    goes = delete_data and (bool(session.spec.bucket.prefix) or not goes_back)
    again = ": it was adopted, and is given back" if goes_back and delete_data else ""
    if session.spec.bucket.prefix:
        going, staying = f"- the data in {place}", f"  the data in {place} is kept"
    else:
        going, staying = f"- bucket {bucket} with all its data", f"  bucket {bucket} is kept{again}"
    session.reporter.say(going if goes else staying)
    _name_uncommitted(session, delete_data=goes)
    return True, goes


def _elsewhere(session: Session, deletion: Deletion) -> tuple[Node | Vm, ...]:
    """Return machines with our label in zones that neither file nor record names, and report them; they stay."""
    tpus, vms = deletion.outside_zones()
    for kind, observed in (("TPU", tpus), ("VM", vms)):
        # Reported, because silence would read as "nothing there".
        if isinstance(observed, Unknown):
            session.reporter.say(f"  other zones were not checked for a {kind}: {observed.message}")
        elif observed.value.unreachable:
            silent = ", ".join(observed.value.unreachable)
            session.reporter.say(f"  not checked for a {kind}, since they did not answer: {silent}")
    found: list[Node | Vm] = []
    found += tpus.value.found if isinstance(tpus, Present) else ()
    found += vms.value.found if isinstance(vms, Present) else ()
    for one in found:
        what = f"{_kind(one).title} {one.name} {one.zone} {one.state.name}"
        session.reporter.say(
            f"  {what} carries our label, and neither file nor record names its zone: it stays."
        )
        session.reporter.say(f"  To delete it: {deletion_command(one, session.project)}")
    return tuple(found)


def _kind(machine: Node | Vm) -> Kind:
    return Kind.VM if isinstance(machine, Vm) else Kind.NODE


def _name_uncommitted(session: Session, *, delete_data: bool) -> None:
    """Report files that no checkpoint contains, which may be the only copy of the model."""
    # No failure of the bucket, and nothing found in it, may prevent the deletion of machines.
    with suppress(TpuctlError, *UNFORESEEN):
        uncommitted = read_uncommitted(session.cloud.store)
        count, size = sum(one.count for one in uncommitted), sum(one.size for one in uncommitted)
        goes = "and with it" if delete_data else "with"
        if uncommitted:
            session.reporter.say(
                f"  {goes} {count} uncommitted file{'' if count == 1 else 's'}, {size_text(size)} ({FETCH})"
            )


def _end_of_costs(session: Session, stay: frozenset[str], ended: frozenset[str]) -> float:
    """
    Report and return the hourly cost of what is deleted, in USD; 0 if nothing is known to be billed.

    Machines that *stay* are not included; those that have *ended* neither, as in any pass (`update_record`), but
    for the disk of a stopped VM.
    """
    try:
        record = session.records.current
        spans = tuple(span for span in record.spans if span.name not in stay | ended)
        disks = tuple(span for span in record.disks if span.name not in stay)
        least, most = rates_now(session.spec, session.catalog, replace(record, spans=spans, disks=disks))
    except UNFORESEEN as error:
        session.reporter.say(
            f"  what it costs is not known ({type(error).__name__}); it is deleted all the same"
        )
        return 0.0
    if least:
        session.reporter.say(f"  this ends about {usd_range_text(least, most)} an hour (an estimate)")
    return round(least, 4)


def _forget(session: Session, cost: CostBreakdown | None, *, delete_data: bool, all_gone: bool) -> None:
    """Delete local files of what was deleted, with the data or only with the machines; keep the cost."""
    if delete_data and cost is not None:
        try:
            # Before the folder with the record is deleted, after which only this file tells the cost.
            keep_cost(session, cost)
        except TpuctlError as error:
            session.reporter.say(f"what it has cost could not be kept: {error.message}", style="warning")
    if delete_data:
        included_file(session.choice.cloud, session.project, session.spec.name).unlink(missing_ok=True)
        shutil.rmtree(session.folder, ignore_errors=True)
    else:
        forget_key(session.folder)
        # A new VM of that name has other host keys; by these one that was given back is known again.
        if all_gone:
            shutil.rmtree(session.folder / KNOWN_HOSTS, ignore_errors=True)
