"""
tpuctl status: what exists and how far the job is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import deployment_options
from orchestrator.cli.words import span_text, usd_text

if TYPE_CHECKING:
    from orchestrator.cli.wiring import Session
    from orchestrator.core.history import History
    from orchestrator.core.plan import Plan
    from orchestrator.core.world import World


@click.command("status")
@deployment_options
def command(file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool) -> None:
    """
    Show bucket, VM, TPU and job as the cloud shows them now. Changes nothing of them.
    """
    from orchestrator.cli.events import EventPrinter
    from orchestrator.cli.expired import sweep_expired
    from orchestrator.cli.output import print_json
    from orchestrator.cli.wiring import Choice, Session

    session = Session(Choice(file, settings, cloud, as_json), EventPrinter())
    sweep_expired(session)
    body = look(session)
    if as_json:
        print_json("status", body)
    else:
        _show(body, session)


@dataclass(frozen=True)
class Glance:
    """
    Hold what one look at a deployment has shown, and what a pass would make of it.
    """

    world: "World"
    history: "History"
    usd: float
    plan: "Plan"


def glance(session: "Session") -> Glance:
    """
    Look once, as a pass does, and change nothing.
    """
    from orchestrator.core.decide import decide
    from orchestrator.core.history import learn
    from orchestrator.engine.observe import observe

    history = session.record.history
    world = observe(session.cloud, session.spec, history, session.blueprint.bucket, session.clock.now())
    history = learn(history, world)
    usd = session.cost(history, world.seen_at)
    return Glance(world, history, usd, decide(session.spec, world, history, usd))


def look(session: "Session") -> dict[str, Any]:
    """
    Return what `status --json` prints.
    """
    from orchestrator.core.dead_man import alone

    seen = glance(session)
    world, history, plan, usd = seen.world, seen.history, seen.plan, seen.usd
    steps = [f"{c.verb.name.lower()} {c.kind.value} {c.name}: {c.why}" for c in plan.changes]
    return {
        "name": session.spec.name,
        "project": session.project,
        "outcome": plan.outcome.value if plan.outcome else None,
        "incarnation": history.incarnation,
        "preemptions": history.preemptions,
        "cost_usd": round(usd, 4),
        "resources": _resources(session, world),
        "workers": _workers(world),
        "loop": holder_of(session, world),
        "alone": alone(session.spec, history.started_at),
        "next": steps or list(plan.waiting),
    }


def _resources(session: "Session", world: "World") -> list[dict[str, str]]:
    from orchestrator.core import names
    from orchestrator.core.world import Present, Unknown

    rows = []

    def add(kind: str, name: str, zone: str, state: str) -> None:
        rows.append({"kind": kind, "name": name, "zone": zone, "state": state})

    def word(sight: object) -> str:
        return f"unknown: {sight.why}" if isinstance(sight, Unknown) else "absent"

    bucket = world.bucket
    place = bucket.value.location if isinstance(bucket, Present) else ""
    add("bucket", session.blueprint.bucket, place, "present" if place else word(bucket))
    if session.spec.vm != "none":
        vm = world.vm
        zone = names.vm_zone(session.spec)
        add(
            "VM",
            names.vm_name(session.spec),
            zone,
            vm.value.state.value if isinstance(vm, Present) else word(vm),
        )
    if not isinstance(world.nodes, Present):
        add("TPU", "?", "", word(world.nodes))
    elif not world.nodes.value:
        add("TPU", "-", "", "absent")
    else:
        for node in world.nodes.value:
            health = "" if node.healthy else f" ({node.health})"
            add("TPU", node.name, node.zone, node.state.name + health)
    return rows


def holder_of(session: "Session", world: "World") -> dict[str, Any] | None:
    """
    Say who holds the lease, None when nobody does; *where* is "vm" for the loop on the VM.
    """
    from orchestrator.core.lease import LIFE, LOOP, Holder
    from orchestrator.core.names import LEASE
    from orchestrator.core.world import Present

    found = session.cloud.store.read(LEASE) if isinstance(world.bucket, Present) else None
    if found is None:
        return None
    holder, age = Holder.from_json(found.data), _age(world.seen_at, found.updated) or 0.0
    return {
        "where": "vm" if holder.command == LOOP else "elsewhere",
        "who": holder.who,
        "command": holder.command,
        "since": holder.since,
        "renewed_age_s": age,
        "alive": age < LIFE,
    }


def _workers(world: "World") -> list[dict[str, Any]]:
    from orchestrator.core.world import Present

    beats = world.heartbeats.value if isinstance(world.heartbeats, Present) else ()
    return [
        {
            "worker": b.worker,
            "phase": b.phase.value,
            "step": b.step,
            "loss": b.loss,
            "checkpoint": b.committed_step,
            "checkpoint_age_s": _age(world.seen_at, b.committed_at),
            "heartbeat_age_s": _age(world.seen_at, b.updated),
            "starts": b.starts,
            "message": b.message,
        }
        for b in beats
    ]


def _age(now: float, then: float | None) -> float | None:
    """
    Return seconds; clocks of two machines may disagree by a little, so never less than none.
    """
    return None if then is None else round(max(0.0, now - then), 1)


def _show(body: dict[str, Any], session: "Session") -> None:
    count = body["preemptions"]
    head = f"{body['name']}  incarnation {body['incarnation']}, {count} preemption{'' if count == 1 else 's'}"
    billed = "nothing is billed" if session.choice.cloud == "local" else "not a bill"
    click.echo(head)
    for line in resource_lines(body["resources"]):
        click.echo(line)
    click.echo(f"cost: about {usd_text(body['cost_usd'])} so far (an estimate, {billed})")
    for worker in body["workers"]:
        click.echo(_worker_line(worker))
    if line := _loop_line(body):
        click.echo(line)
    if body["outcome"]:
        click.echo(f"outcome: {body['outcome']}")
    for line in body["next"]:
        click.echo(f"next: {line}")
    if not body["next"] and not body["outcome"]:
        click.echo("next: nothing to do while the job runs")


def _loop_line(body: dict[str, Any]) -> str:
    """
    Say who takes care of the deployment; nothing when it is over and nobody has to.
    """
    loop = body["loop"]
    vm = next((row["state"] for row in body["resources"] if row["kind"] == "VM"), "")
    there = bool(loop) and loop["where"] == "vm"
    if loop is None or not loop["alive"] or (there and vm != "RUNNING"):
        cure = "tpuctl watch"
        if there:
            cure = "the one on the VM is silent: tpuctl watch --on-vm"
            cure = cure if vm == "RUNNING" else f"the VM is {vm}: tpuctl up"
        lone = f"\nalone: {body['alone']}" if body.get("alone") else ""
        return "" if body["outcome"] else f"loop: none runs; a preempted TPU is not replaced ({cure}){lone}"
    where = "on the VM" if there else f"tpuctl {loop['command']} of {loop['who']}"
    return f"loop: {where}, last renewed {span_text(loop['renewed_age_s'])} ago"


def resource_lines(rows: list[dict[str, str]]) -> list[str]:
    """
    Return one line for each resource, in columns; a long reason comes last, where it may wrap.
    """
    titles = ("kind", "zone", "name")
    width = {title: max(len(row[title]) for row in rows) for title in titles}
    return ["  ".join([*(row[t].ljust(width[t]) for t in titles), row["state"]]) for row in rows]


def _worker_line(worker: dict[str, Any]) -> str:
    parts = [f"worker {worker['worker']}: {worker['phase']}"]
    if worker["step"] is not None:
        parts.append(f"step {worker['step']}")
    if worker["loss"] is not None:
        parts.append(f"loss {worker['loss']:.4g}")
    if worker["checkpoint"] is not None:
        age = worker["checkpoint_age_s"]
        parts.append(
            f"checkpoint {worker['checkpoint']}" + ("" if age is None else f" ({span_text(age)} old)")
        )
    parts.append(f"heard {span_text(worker['heartbeat_age_s'])} ago")
    if worker["message"]:
        parts.append(worker["message"])
    return ", ".join(parts)
