"""Adopt a TPU, VM or bucket that was created without tpuctl."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.deployment.session import Session
from orchestrator.app.machines.workers import observe
from orchestrator.app.this_computer.known import spec_in
from orchestrator.app.this_computer.same_project import check_project_and_login
from orchestrator.app.this_computer.state_folders import SPEC_FILE
from orchestrator.app.up import Goal, UpOptions, bring_up
from orchestrator.domain import names
from orchestrator.domain.observation import ForeignBucket, ForeignNode, ForeignVm, Present, Unknown, World
from orchestrator.domain.plan import Kind
from orchestrator.engine.adopt import Adoption, take_bucket, take_vm
from orchestrator.errors import NotFoundError, TpuctlError, TransientError, UnknownCloudError, UsageError
from orchestrator.planning.adoption import (
    bucket_obstacles,
    differing_lines,
    is_adopted,
    obstacles,
    vm_lines,
    vm_obstacles,
)
from orchestrator.planning.vm import lacks_named_vm, missing_text

UNTOUCHED = "nothing was changed"


@dataclass(frozen=True)
class Adopted:
    """
    The adopted TPU and its incarnation; *changes* is the number of changes that `up` then made.

    *on_vm* says that the file wants the loop on the VM.
    """

    name: str
    zone: str
    incarnation: int
    changes: int
    on_vm: bool = False


def adopt(
    choice: Choice, name: str, zone: str | None, at_down: str, reporter: Reporter,
    approve: Callable[[ForeignNode], None],
) -> Adopted:  # fmt: skip
    """
    Adopt the TPU *name* and start the job on it, after checks and after *approve*, which may raise.

    *zone* restricts the search; None means all zones of the file. *at_down* is what `down` does with the
    TPU: "keep", "delete", or "yes" to ask. Raise UsageError if the TPU does not fit the deployment.
    """
    session = Session(choice, reporter)
    with reporter:
        world = observe(session)
        found = _find(session, name, zone)
        _refuse_misfit(session, found, world)
        _refuse_unproven(session, found)
    fresh = not is_adopted(session.spec, found.node.labels)
    if fresh:
        approve(found)
        # The machine needs the bucket with code and agent first; the TPU comes last.
        bring_up(choice, reporter, UpOptions(Goal.BUCKET_AND_VM))
        session = Session(choice, reporter)
        stays = "the TPU carries no label of the deployment yet, or is its own"
        with leaving(stays, f"tpuctl adopt {name}"), session.holding_lease("adopt"), reporter:
            number = _take(session, found, at_down)
    else:
        number = found.node.incarnation or 0
    done = bring_up(choice, reporter, UpOptions(says_what_is_sent=not fresh))
    return Adopted(name, found.node.zone, number, done.changes, done.on_vm)


def adopt_vm(
    choice: Choice, name: str, zone: str | None, at_down: str, reporter: Reporter,
    approve: Callable[[ForeignVm], None],
) -> ForeignVm:  # fmt: skip
    """
    Adopt the VM *name* for the next `up`, after checks and after *approve*, which may raise.

    *zone* is its zone, None for the file's. *at_down* says what `down` does with it. Raise UsageError if the
    VM does not fit the deployment.
    """
    session = Session(choice, reporter)
    with reporter:
        found = _fitting_vm(session, name, zone, at_down)
    if is_adopted(session.spec, found.vm.labels):
        return found
    approve(found)
    # The VM downloads the agent from the bucket.
    bring_up(choice, reporter, UpOptions(Goal.BUCKET_AND_VM))
    session = Session(choice, reporter)
    again = f"tpuctl adopt --vm {name} --zone {found.vm.zone}"
    stays = f"VM {name} may carry the deployment's labels and SSH key; `tpuctl down` takes them off"
    with leaving(stays, again), session.holding_lease("adopt"), reporter:
        # Checked again under the lease, as another tpuctl may have changed something meanwhile.
        found = _fitting_vm(session, name, found.vm.zone, at_down)
        try:
            take_vm(session.deployment, found, at_down)
        except TpuctlError as error:
            error.complete(hint=f"run it again: {again}", changed=stays)
            raise
        finally:
            session.deployment.store_events()
    return found


def _fitting_vm(session: Session, name: str, zone: str | None, at_down: str) -> ForeignVm:
    spec, vms = session.spec, session.cloud.vms
    place = zone or names.vm_zone(spec)
    observed = vms.inspect(name, place)
    mine = vms.labelled(names.DEPLOYMENT_LABEL, spec.name, (place, names.vm_zone(spec)))
    for answer in (observed, mine):
        if isinstance(answer, Unknown):
            raise TransientError(
                f"VM {name} cannot be read: {answer.message}", hint=answer.hint, changed=UNTOUCHED
            )
    if not isinstance(observed, Present):
        raise UsageError(
            f"there is no VM {name} in {place}", hint="add --zone, or see: gcloud compute instances list",
            changed=UNTOUCHED, code="TPU-147",
        )  # fmt: skip
    found = observed.value
    others = [vm.name for vm in mine.value if vm.name != name] if isinstance(mine, Present) else []
    _refuse(
        Kind.VM, f"{name} in {place}", list(vm_obstacles(spec, found, others, at_down)),
        list(vm_lines(spec, found, session.blueprint.vm_account)),
    )  # fmt: skip
    try:
        vms.host_keys(name, place)
    except NotFoundError as error:
        raise _unproven(f"VM {name}") from error
    return found


def adopt_bucket(
    choice: Choice, name: str, at_down: str, reporter: Reporter, approve: Callable[[ForeignBucket], None]
) -> ForeignBucket:
    """
    Adopt the bucket *name* for the next `up` by labelling it, after checks and after *approve*.

    *at_down* says what `down --delete-data` does with it. Raise UsageError if it does not fit the deployment.
    """
    session = Session(choice, reporter)
    check_project_and_login(choice, session.spec.name, session.project, session.folder)
    with reporter:
        found = _fitting_bucket(session, name, at_down)
    if found.bucket.labels.get(names.DEPLOYMENT_LABEL) == session.spec.name:
        return found
    approve(found)
    stays = f"bucket {name} carries the deployment's label, or is unchanged"
    with leaving(stays, f"tpuctl adopt --bucket {name}"), reporter:
        try:
            take_bucket(session.deployment, found, at_down)
        except TpuctlError as error:
            error.complete(hint=f"run it again: tpuctl adopt --bucket {name}", changed=UNTOUCHED)
            raise
    return found


def _fitting_bucket(session: Session, name: str, at_down: str) -> ForeignBucket:
    observed = session.cloud.buckets.inspect(name)
    if isinstance(observed, Unknown):
        raise TransientError(
            f"bucket {name} cannot be read: {observed.message}", hint=observed.hint, changed=UNTOUCHED
        )
    if not isinstance(observed, Present):
        raise UsageError(
            f"there is no bucket {name}",
            hint="see: gcloud storage buckets list",
            changed=UNTOUCHED,
            code="TPU-147",
        )
    spec, found = session.spec, observed.value
    stored = session.folder / SPEC_FILE
    # From the stored spec, because the file already names the new bucket.
    earlier = names.bucket_name(spec_in(stored), session.project) if stored.exists() else ""
    _refuse(
        Kind.BUCKET, name, list(bucket_obstacles(spec, found, earlier, at_down)),
        [] if spec.bucket.name == name and not spec.bucket.adopt
        else [f"bucket.name: {name}", *(["bucket.adopt: false"] if spec.bucket.adopt else [])],
    )  # fmt: skip
    return found


def _refuse(kind: Kind, what: str, wrong: list[str], lines: list[str]) -> None:
    """Raise UsageError that lists everything in *wrong* with *what*, if there is anything."""
    if not wrong and not lines:
        return
    message = "".join(f"\n- {one}" for one in wrong)
    if lines:
        message += "\n- it differs from the file, which must say:" + "".join(
            f"\n    {line}" for line in lines
        )
    hint = "change these lines, then run it again"
    if wrong:
        rest = f"what cannot be put right rules this {kind.title} out"
        hint = f"put right what is listed, then run it again; {rest}"
    raise UsageError(
        f"{kind.title} {what} does not fit:{message}", hint=hint, changed=UNTOUCHED, code="TPU-147"
    )


def _take(session: Session, found: ForeignNode, at_down: str) -> int:
    # Checked again under the lease, as another tpuctl may have changed something meanwhile.
    fresh, world = _find(session, found.node.name, found.node.zone), observe(session)
    _refuse_misfit(session, fresh, world)
    adoption = Adoption(session.deployment, session.blueprint.public_key)
    try:
        return adoption.take(fresh, world, at_down)
    except TpuctlError as error:
        error.complete(
            hint=f"run it again: tpuctl adopt {fresh.node.name} --zone {fresh.node.zone}",
            changed=f"{fresh.node.name} may hold this deployment's SSH key; it is not deleted",
        )
        raise
    finally:
        session.deployment.store_events()


def _find(session: Session, name: str, zone: str | None) -> ForeignNode:
    zones = (zone,) if zone else session.spec.tpu.zones
    unknown = ""
    for place in zones:
        observed = session.cloud.nodes.inspect(name, place)
        if isinstance(observed, Present):
            return observed.value
        if isinstance(observed, Unknown):
            unknown = observed.message
    if unknown:
        raise TransientError(f"TPU {name} cannot be read: {unknown}", changed=UNTOUCHED)
    raise UsageError(
        f"there is no TPU {name} in {', '.join(zones)}", hint="add --zone, or see: gcloud compute tpus tpu-vm list",
        changed=UNTOUCHED, code="TPU-147",
    )  # fmt: skip


def _refuse_misfit(session: Session, found: ForeignNode, world: World) -> None:
    """Raise UsageError listing every reason why the TPU does not fit this deployment."""
    name = found.node.name
    if isinstance(world.nodes, Unknown):
        raise TransientError(
            f"the deployment's TPUs cannot be seen: {world.nodes.message}", changed=UNTOUCHED
        )
    others = [node.name for node in world.known_nodes if node.name != name]
    wrong = list(obstacles(session.spec, found, others))
    # Before the TPU: the `up` that follows could not continue without this VM.
    if lacks_named_vm(session.spec, world):
        wrong.append(f"the VM {missing_text(session.spec, session.records.current)}")
    lines = list(differing_lines(session.spec, found, session.blueprint.service_account))
    _refuse(Kind.NODE, f"{name} in {found.node.zone}", wrong, lines)


def _refuse_unproven(session: Session, found: ForeignNode) -> None:
    """Raise if a worker's host key is not in its guest attributes: keys are never trusted on first use."""
    for worker in found.node.workers:
        try:
            session.cloud.nodes.host_keys(found.node.name, found.node.zone, worker.index)
        except (NotFoundError, UnknownCloudError) as error:
            raise _unproven(f"worker {worker.index} of {found.node.name}") from error


def _unproven(what: str) -> UsageError:
    return UsageError(
        f"{what} has published no host key, so any machine could answer for it",
        hint="set enable-guest-attributes=TRUE in its metadata, restart it, then run this again",
        changed=UNTOUCHED, code="TPU-147",
    )  # fmt: skip
