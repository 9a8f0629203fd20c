"""The commands of people as short-lived processes: each has its computer, takes the lease and gives it back."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.expired import remember
from orchestrator.app.down import delete_all
from orchestrator.app.source.wanted import record_wanted
from orchestrator.app.up import Goal, pass_until
from orchestrator.domain.lease import EXPIRES_AFTER
from orchestrator.domain.names import DEPLOYMENT_LABEL, vm_name, vm_zone
from orchestrator.domain.plan import Kind
from orchestrator.engine.adopt import Adoption, take_bucket, take_vm
from orchestrator.engine.loop.loop import Loop
from orchestrator.engine.reconcile.observe import observe
from orchestrator.errors import LeaseHeldError
from orchestrator.planning.adoption import differing_lines, is_adopted, obstacles, vm_lines, vm_obstacles
from tests.crash.crash_lab import ELSEWHERE, HERE
from tests.crash.oracle import asked
from tests.engine.engine_lab import DIGEST, PROJECT, ZONE

THEIRS = "demo-tpu-theirs"
"""A TPU that was made without tpuctl."""
LOOK = 15.0
"""Seconds after which a user whose command met a held lease tries again."""


@contextmanager
def process(lab, spec, place, **options):
    """
    Start a process that may act.

    On the computer of a killed one it is known to be dead; elsewhere its lease must run out first.
    """
    began, found, calls = lab.clock.now(), None, Counter(lab.cloud.calls)
    there = {"beside": True, "who": "there"} if place == ELSEWHERE else {}
    while found is None:
        try:
            found = lab.controller(spec, place, **there, **options)
        except LeaseHeldError:
            assert lab.clock.now() - began <= EXPIRES_AFTER, "nobody could take over from a dead process"
            lab.clock.advance(LOOK)
    try:
        yield found
    finally:
        found.lease.release()
        asked(lab, calls)


def up(lab, spec, place=HERE):
    """`tpuctl up`."""
    # Nobody is logged in there, and settings of one run leave no mark for quick answers.
    where = SimpleNamespace(cloud="local", settings=("tpu.spot=true",))
    retained = SimpleNamespace(spec=spec, project=PROJECT, folder=lab.folder / place, choice=where)
    with process(lab, spec, place) as made:
        lab.step("save the spec", lambda: remember(retained))
        record_wanted(made.deployment, DIGEST["bundle"], DIGEST["agent"])
        return pass_until(Goal.JOB.reached, made.loop, made.deployment, Reporter(), made.turns())


def adopt(lab, spec, place=HERE):
    """`tpuctl adopt theirs`, and the `up` that follows."""
    with process(lab, spec, place) as made:
        record_wanted(made.deployment, DIGEST["bundle"], DIGEST["agent"])
        room = frozenset({Kind.BUCKET, Kind.VM, Kind.BUNDLE})
        maker = Loop(replace(made.deployment, only=room))
        pass_until(Goal.BUCKET_AND_VM.reached, maker, made.deployment, Reporter(), made.turns())
        found = made.cloud.nodes.inspect(THEIRS, ZONE).value
        if not is_adopted(spec, found.node.labels):
            parts = made.deployment
            world = observe(parts.cloud, spec, made.record, lab.bucket, lab.clock.now())
            assert not list(obstacles(spec, found, [n.name for n in world.known_nodes if n.name != THEIRS]))
            assert not list(differing_lines(spec, found, parts.blueprint.service_account))
            Adoption(parts, parts.blueprint.public_key).take(found, world)
        return made.run(Goal.JOB.reached)


def adopt_vm(lab, spec, place=HERE):
    """`tpuctl adopt --vm`, and the `up` that follows."""
    with process(lab, spec, place) as made:
        record_wanted(made.deployment, DIGEST["bundle"], DIGEST["agent"])
        name, zone, parts = vm_name(spec), vm_zone(spec), made.deployment
        found = made.cloud.vms.inspect(name, zone).value
        if not is_adopted(spec, found.vm.labels):
            room = frozenset({Kind.BUCKET, Kind.VM, Kind.BUNDLE})
            pass_until(
                Goal.BUCKET_AND_VM.reached,
                Loop(replace(parts, only=room)),
                parts,
                Reporter(),
                made.turns(),
            )
            found = made.cloud.vms.inspect(name, zone).value
            assert not list(vm_obstacles(spec, found, [], "keep"))
            assert not list(vm_lines(spec, found, parts.blueprint.vm_account))
            take_vm(parts, found, "keep")
        return made.run(Goal.JOB.reached)


def adopt_bucket(lab, spec, place=HERE):
    """`tpuctl adopt --bucket`, and the `up` that follows."""
    with process(lab, spec, place) as made:
        found = made.cloud.buckets.inspect(lab.bucket).value
        if DEPLOYMENT_LABEL not in found.bucket.labels:
            take_bucket(made.deployment, found, "keep")
    return up(lab, spec, place)


def watch(lab, spec, place=HERE):
    """`tpuctl watch`, until there is nothing to do; one that has ended stays so."""
    with process(lab, spec, place) as made:
        return made.run(Goal.JOB.reached)


def down(lab, spec, place=HERE, *, data=False):
    """`tpuctl down`, with --delete-data if *data*; return what it says is left."""
    with process(lab, spec, place, forgiving=True) as made:
        return delete_all(made.deletion(), lab.bucket if data else "")
