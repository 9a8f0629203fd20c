"""
tpuctl status: what exists and how far the job is.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import deployment_options

if TYPE_CHECKING:
    from orchestrator.cli.wiring import Session
    from orchestrator.core.world import World


@click.command("status")
@deployment_options
def command(file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool) -> None:
    """
    Show bucket, VM, TPU and job as the cloud shows them now. Changes nothing.
    """
    from orchestrator.cli.output import EventPrinter, print_json
    from orchestrator.cli.wiring import Choice, Session
    from orchestrator.core.decide import decide
    from orchestrator.core.history import learn
    from orchestrator.engine.observe import observe

    session = Session(Choice(file, settings, cloud, as_json), EventPrinter(as_json=as_json))
    history = session.record.history
    world = observe(session.cloud, session.spec, history, session.blueprint.bucket, session.clock.now())
    history = learn(history, world)
    usd = session.cost(history, world.seen_at)
    plan = decide(session.spec, world, history, usd)
    steps = [f"{c.verb.name.lower()} {c.kind.value} {c.name}: {c.why}" for c in plan.changes]
    body: dict[str, Any] = {
        "name": session.spec.name,
        "project": session.project,
        "outcome": plan.outcome.value if plan.outcome else None,
        "incarnation": history.incarnation,
        "preemptions": history.preemptions,
        "cost_usd": round(usd, 4),
        "resources": _resources(session, world),
        "workers": _workers(world),
        "next": steps or list(plan.waiting),
    }
    if as_json:
        print_json("status", body)
    else:
        _show(body, session)


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
            "checkpoint_age_s": round(world.seen_at - b.committed_at, 1) if b.committed_at else None,
            "heartbeat_age_s": round(max(0.0, world.seen_at - b.updated), 1),
            "starts": b.starts,
            "message": b.message,
        }
        for b in beats
    ]


def _show(body: dict[str, Any], session: "Session") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(soft_wrap=False, highlight=False)
    head = f"{body['name']}  incarnation {body['incarnation']}, {body['preemptions']} preemptions"
    console.print(f"{head}, about {body['cost_usd']:.2f} USD so far (estimate)", markup=False)
    table = Table(box=None, pad_edge=False)
    for title in ("", "name", "zone", "state"):
        table.add_column(title, overflow="fold")
    for row in body["resources"]:
        table.add_row(row["kind"], row["name"], row["zone"], row["state"])
    console.print(table)
    for worker in body["workers"]:
        console.print(_worker_line(worker), markup=False)
    if body["outcome"]:
        console.print(f"outcome: {body['outcome']}", markup=False)
    for line in body["next"]:
        console.print(f"next: {line}", markup=False)
    if not body["next"] and not body["outcome"]:
        console.print("next: nothing to do while the job runs", markup=False)


def _worker_line(worker: dict[str, Any]) -> str:
    parts = [f"worker {worker['worker']}: {worker['phase']}"]
    if worker["step"] is not None:
        parts.append(f"step {worker['step']}")
    if worker["loss"] is not None:
        parts.append(f"loss {worker['loss']:.4g}")
    if worker["checkpoint"] is not None:
        age = worker["checkpoint_age_s"]
        parts.append(
            f"checkpoint {worker['checkpoint']}" + (f" ({age:.0f} s old)" if age is not None else "")
        )
    parts.append(f"heard {worker['heartbeat_age_s']:.0f} s ago")
    if worker["message"]:
        parts.append(worker["message"])
    return ", ".join(parts)
