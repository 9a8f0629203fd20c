"""Take over a TPU, VM or bucket that somebody has made without tpuctl: it becomes the deployment's own."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.app.choice import Choice
from orchestrator.app.known import spec_in
from orchestrator.app.reporter import Reporter, leaving
from orchestrator.app.same_place import check_place
from orchestrator.app.session import Session
from orchestrator.app.state_folders import SPEC_FILE
from orchestrator.app.up import Goal, bring_up
from orchestrator.app.workers import look
from orchestrator.domain import names
from orchestrator.domain.observation import ForeignBucket, ForeignNode, ForeignVm, Present, Unknown, World
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
from orchestrator.planning.vm import missing_vm

UNTOUCHED = "nothing was changed"


@dataclass(frozen=True)
class Adopted:
    """Name the TPU and its incarnation; *changes* is what `up` has done after it."""

    name: str
    zone: str
    incarnation: int
    changes: int


def adopt(
    choice: Choice, name: str, zone: str | None, at_down: str, reporter: Reporter,
    approve: Callable[[ForeignNode], None],
) -> Adopted:  # fmt: skip
    """
    Check that the TPU *name* fits, let *approve* look at it, take it over and start the job on it.

    *zone* is where it is, None for any zone of the file, *at_down* what `down` is to do with it, `yes` where it
    is to ask. Raise UsageError for what does not fit.
    """
    session = Session(choice, reporter)
    with reporter:
        world = look(session)
        found = _find(session, name, zone)
        _refuse_misfit(session, found, world)
        _refuse_unproven(session, found)
    if not is_adopted(session.spec, found.node.labels):
        approve(found)
        # A bucket with code and agent is what a machine needs; the TPU comes last.
        bring_up(choice, reporter, goal=Goal.MACHINE_ROOM)
        session = Session(choice, reporter)
        stays = "the TPU carries no label of the deployment yet, or is its own"
        with leaving(stays, f"tpuctl adopt {name}"), session.holding_lease("adopt"), reporter:
            number = _take(session, found, at_down)
    else:
        number = found.node.incarnation or 0
    done = bring_up(choice, reporter)
    return Adopted(name, found.node.zone, number, done.changes)


def adopt_vm(
    choice: Choice, name: str, zone: str | None, at_down: str, reporter: Reporter,
    approve: Callable[[ForeignVm], None],
) -> ForeignVm:  # fmt: skip
    """
    Check that the VM *name* fits, let *approve* look at it, and take it over: the next `up` uses it as its own.

    *zone* is where it is, None for the file's. *at_down* is what `down` is to do with it. Raise UsageError for
    what does not fit.
    """
    session = Session(choice, reporter)
    with reporter:
        found = _fitting_vm(session, name, zone, at_down)
    if is_adopted(session.spec, found.vm.labels):
        return found
    approve(found)
    # The VM brings the agent from the bucket.
    bring_up(choice, reporter, goal=Goal.MACHINE_ROOM)
    session = Session(choice, reporter)
    again = f"tpuctl adopt --vm {name} --zone {found.vm.zone}"
    stays = f"VM {name} may carry the deployment's labels and SSH key; tpuctl down takes them off"
    with leaving(stays, again), session.holding_lease("adopt"), reporter:
        # Looked at once more under the lease: another one may have been at work meanwhile.
        found = _fitting_vm(session, name, found.vm.zone, at_down)
        try:
            take_vm(session.deployment, found, at_down)
        except TpuctlError as error:
            error.changed = error.changed or stays
            error.hint = error.hint or f"run it again: {again}"
            raise
        finally:
            session.deployment.store_events()
    return found


def _fitting_vm(session: Session, name: str, zone: str | None, at_down: str) -> ForeignVm:
    spec, vms = session.spec, session.cloud.vms
    place = zone or names.vm_zone(spec)
    sight = vms.inspect(name, place)
    mine = vms.labelled(names.DEPLOYMENT_LABEL, spec.name, (place, names.vm_zone(spec)))
    for answer in (sight, mine):
        if isinstance(answer, Unknown):
            raise TransientError(
                f"VM {name} cannot be looked at: {answer.why}", hint=answer.hint, changed=UNTOUCHED
            )
    if not isinstance(sight, Present):
        raise UsageError(
            f"there is no VM {name} in {place}", hint="add --zone, or see: gcloud compute instances list",
            changed=UNTOUCHED, code="TPU-147",
        )  # fmt: skip
    found = sight.value
    others = [vm.name for vm in mine.value if vm.name != name] if isinstance(mine, Present) else []
    _refuse(
        f"VM {name} in {place}", list(vm_obstacles(spec, found, others, at_down)),
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
    Check that the bucket *name* fits, let *approve* look at it, and label it: the next `up` uses it as its own.

    *at_down* is what `down --delete-data` is to do with it. Raise UsageError for what does not fit.
    """
    session = Session(choice, reporter)
    check_place(choice, session.spec.name, session.project, session.folder)
    with reporter:
        found = _fitting_bucket(session, name, at_down)
    if found.bucket.labels.get(names.DEPLOYMENT_LABEL) == session.spec.name:
        return found
    approve(found)
    stays = f"bucket {name} carries the deployment's label, or is as it was"
    with leaving(stays, f"tpuctl adopt --bucket {name}"), reporter:
        try:
            take_bucket(session.deployment, found, at_down)
        except TpuctlError as error:
            error.changed = error.changed or UNTOUCHED
            error.hint = error.hint or f"run it again: tpuctl adopt --bucket {name}"
            raise
    return found


def _fitting_bucket(session: Session, name: str, at_down: str) -> ForeignBucket:
    sight = session.cloud.buckets.inspect(name)
    if isinstance(sight, Unknown):
        raise TransientError(
            f"bucket {name} cannot be looked at: {sight.why}", hint=sight.hint, changed=UNTOUCHED
        )
    if not isinstance(sight, Present):
        raise UsageError(
            f"there is no bucket {name}",
            hint="see: gcloud storage buckets list",
            changed=UNTOUCHED,
            code="TPU-147",
        )
    spec, found = session.spec, sight.value
    stored = session.folder / SPEC_FILE
    # By what was brought up: the file names the new one already.
    earlier = names.bucket_name(spec_in(stored), session.project) if stored.exists() else ""
    _refuse(
        f"bucket {name}", list(bucket_obstacles(spec, found, earlier, at_down)),
        [] if spec.bucket.name == name and not spec.bucket.adopt
        else [f"bucket.name: {name}", *(["bucket.adopt: false"] if spec.bucket.adopt else [])],
    )  # fmt: skip
    return found


def _refuse(what: str, wrong: list[str], lines: list[str]) -> None:
    """Raise UsageError with everything that keeps a thing from being this deployment's."""
    if not wrong and not lines:
        return
    why = "".join(f"\n- {one}" for one in wrong)
    if lines:
        why += "\n- it differs from the file, which must say:" + "".join(f"\n    {line}" for line in lines)
    hint = f"this {what.partition(' ')[0]} cannot become part of this deployment as it is"
    raise UsageError(
        f"{what} does not fit:{why}", hint=hint if wrong else "change these lines, then run it again",
        changed=UNTOUCHED, code="TPU-147",
    )  # fmt: skip


def _take(session: Session, found: ForeignNode, at_down: str) -> int:
    # Looked at once more under the lease: another one may have been at work meanwhile.
    fresh, world = _find(session, found.node.name, found.node.zone), look(session)
    _refuse_misfit(session, fresh, world)
    adoption = Adoption(session.deployment, session.blueprint.public_key)
    try:
        return adoption.take(fresh, world, at_down)
    except TpuctlError as error:
        if not error.changed:
            error.changed = f"{fresh.node.name} may hold this deployment's SSH key; it is not deleted"
        if not error.hint:
            error.hint = f"run it again: tpuctl adopt {fresh.node.name} --zone {fresh.node.zone}"
        raise
    finally:
        session.deployment.store_events()


def _find(session: Session, name: str, zone: str | None) -> ForeignNode:
    zones = (zone,) if zone else session.spec.tpu.zones
    unknown = ""
    for place in zones:
        sight = session.cloud.nodes.inspect(name, place)
        if isinstance(sight, Present):
            return sight.value
        if isinstance(sight, Unknown):
            unknown = sight.why
    if unknown:
        raise TransientError(f"TPU {name} cannot be read: {unknown}", changed=UNTOUCHED)
    raise UsageError(
        f"there is no TPU {name} in {', '.join(zones)}", hint="add --zone, or see: gcloud compute tpus tpu-vm list",
        changed=UNTOUCHED, code="TPU-147",
    )  # fmt: skip


def _refuse_misfit(session: Session, found: ForeignNode, world: World) -> None:
    """Raise UsageError with everything that keeps the TPU from being this deployment's."""
    name = found.node.name
    if isinstance(world.nodes, Unknown):
        raise TransientError(f"the deployment's TPUs cannot be seen: {world.nodes.why}", changed=UNTOUCHED)
    others = [node.name for node in world.known_nodes if node.name != name]
    wrong = list(obstacles(session.spec, found, others))
    # Before the TPU: the `up` that follows would not go on without it.
    if missing := missing_vm(session.spec, world, session.records.current):
        wrong.append(f"the VM {missing}")
    lines = list(differing_lines(session.spec, found, session.blueprint.service_account))
    _refuse(f"TPU {name} in {found.node.zone}", wrong, lines)


def _refuse_unproven(session: Session, found: ForeignNode) -> None:
    """Raise when a worker's host key is not in its guest attributes: at first sight, nobody is believed."""
    for worker in found.node.workers:
        try:
            session.cloud.nodes.host_keys(found.node.name, found.node.zone, worker.index)
        except (NotFoundError, UnknownCloudError) as error:
            raise _unproven(f"worker {worker.index} of {found.node.name}") from error


def _unproven(what: str) -> UsageError:
    return UsageError(
        f"{what} has published no host key, so anybody could answer",
        hint="set enable-guest-attributes=TRUE in its metadata, restart it, then run this again",
        changed=UNTOUCHED, code="TPU-147",
    )  # fmt: skip
