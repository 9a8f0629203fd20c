"""One look at a deployment, as a pass does it, and what `status --json` says of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.domain.observation import World
    from orchestrator.domain.plan import Plan
    from orchestrator.domain.record import Record


@dataclass(frozen=True)
class Glance:
    """Hold what one look at a deployment has shown, and what a pass would make of it."""

    world: "World"
    record: "Record"
    usd: float
    plan: "Plan"


def glance(session: "Session") -> Glance:
    """Look once, as a pass does, and change nothing."""
    from orchestrator.engine.observe import observe
    from orchestrator.planning.decide import decide
    from orchestrator.planning.update_record import learn

    record = session.records.current
    world = observe(session.cloud, session.spec, record, session.blueprint.bucket, session.clock.now())
    record = learn(record, world)
    usd = session.cost(record, world.seen_at)
    return Glance(world, record, usd, decide(session.spec, world, record, usd))


def look(session: "Session") -> dict[str, Any]:
    """Return what `status --json` prints, as the cloud shows it now."""
    seen = glance(session)
    return body_of(session, seen, holder_of(session, seen.world))


def body_of(session: "Session", seen: Glance, loop: dict[str, Any] | None) -> dict[str, Any]:
    """Return what `status --json` prints of one look; *loop* says who takes care of the deployment."""
    from orchestrator.domain.observation import Present
    from orchestrator.planning.dead_man import alone
    from orchestrator.planning.on_demand import told
    from orchestrator.planning.sidecars import sidecars
    from orchestrator.planning.unclaimed import kept_text, uncommitted_text

    world, record, plan, spec = seen.world, seen.record, seen.plan, session.spec
    steps = [f"{c.verb.name.lower()} {c.kind.value} {c.name}: {c.why}" for c in plan.changes]
    goes_on = bool(record.started_at) and plan.outcome is None
    watched = loop is not None and loop["alive"]
    poll = float(spec.watch.poll)
    beats = world.heartbeats.value if isinstance(world.heartbeats, Present) else ()
    return {
        "name": spec.name,
        "project": session.project,
        "outcome": plan.outcome.value if plan.outcome else None,
        "reason": plan.reason,
        "uncommitted": uncommitted_text(spec.job.checkpoint, beats),
        "unclaimed": kept_text(beats),
        "incarnation": record.node.incarnation,
        "preemptions": record.node.preemptions,
        "cost_usd": round(seen.usd, 4),
        "resources": _resources(session, world, record),
        "workers": _workers(world),
        "loop": loop,
        "alone": alone(spec, record.started_at),
        "next": steps or list(plan.waiting),
        "look_in_s": min(poll, poll if plan.wake_in is None else plan.wake_in) if watched else None,
        "target_steps": spec.job.target_steps,
        "eta_s": _eta(world, spec.job.target_steps),
        "budget_usd": spec.watch.budget_usd,
        "deadline": told(spec, world, record),
        "ttl_left_s": _age(record.started_at + spec.watch.ttl, world.seen_at) if goes_on else None,
        "sidecars": [{"name": s.name, "role": s.role, "port": s.port} for s in sidecars(spec, "")],
        "seen": {"by": "cloud", "age_s": 0.0},
    }


def aged(body: dict[str, Any], seconds: float, by: str) -> dict[str, Any]:
    """Return a published status with the ages that it has *seconds* later; *by* names who had seen it."""

    def older(row: dict[str, Any], *keys: str) -> dict[str, Any]:
        known = {key: round(row[key] + seconds, 1) for key in keys if row.get(key) is not None}
        return {**row, **known}

    left = {
        key: None if body.get(key) is None else round(max(0.0, body[key] - seconds), 1)
        for key in ("look_in_s", "ttl_left_s", "eta_s")
    }
    workers = [older(row, "checkpoint_age_s", "heartbeat_age_s") for row in body["workers"]]
    loop = older(body["loop"], "renewed_age_s") if body["loop"] else None
    return {
        **body, **left, "workers": workers, "loop": loop, "seen": {"by": by, "age_s": round(seconds, 1)}
    }  # fmt: skip


def _resources(session: "Session", world: "World", record: "Record") -> list[dict[str, str]]:
    from orchestrator.domain import names
    from orchestrator.domain.maintenance import maintenance_text
    from orchestrator.domain.observation import Present, Unknown
    from orchestrator.planning.queued_tpu import state_text

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
            told = maintenance_text(node.maintenance)
            health = ("" if node.healthy else f" ({node.health})") + (f" ({told})" if told else "")
            newest = node.incarnation == record.node.incarnation
            other = newest and record.node.type not in {"", session.spec.tpu.type}
            kind = f" ({record.node.type})" if other else ""
            add("TPU", node.name, node.zone, state_text(node) + health + kind)
    return rows


def holder_of(session: "Session", world: "World") -> dict[str, Any] | None:
    """Say who holds the lease, None when nobody does; *where* is "vm" for the loop on the VM."""
    from orchestrator.domain.lease import Holder
    from orchestrator.domain.observation import Present
    from orchestrator.engine.held import current

    found = current(session.cloud.store) if isinstance(world.bucket, Present) else None
    if found is None:
        return None
    return loop_of(Holder.from_json(found.data), _age(world.seen_at, found.updated) or 0.0)


def loop_of(holder: Any, age: float) -> dict[str, Any]:
    """Return a *holder* of the lease, renewed *age* seconds ago, as `status --json` prints it."""
    from orchestrator.domain.lease import LIFE, LOOP

    return {
        "where": "vm" if holder.command == LOOP else "elsewhere",
        "who": holder.who,
        "command": holder.command,
        "since": holder.since,
        "renewed_age_s": age,
        "alive": age < LIFE,
    }


def _workers(world: "World") -> list[dict[str, Any]]:
    from orchestrator.domain.observation import Present

    beats = (*world.heartbeats.value, *world.boots) if isinstance(world.heartbeats, Present) else ()
    return [
        {
            "worker": b.worker,
            "phase": b.phase.value,
            "step": b.step,
            "loss": b.loss,
            "rate": None if b.rate is None else round(b.rate, 4),
            "total_steps": b.total_steps,
            "progress_from": b.progress_from,
            "checkpoint": b.committed_step,
            "checkpoint_counted": b.committed_counted,
            "format": b.format,
            "checkpoint_age_s": _age(world.seen_at, b.committed_at),
            "heartbeat_age_s": _age(world.seen_at, b.updated),
            "starts": b.starts,
            "message": b.message,
        }
        for b in sorted(beats, key=lambda b: b.worker)
    ]


def _eta(world: "World", target: int | None) -> float | None:
    """Return the seconds until the job's last step, at its rate of the moment."""
    from orchestrator.domain.job_progress import seconds_left
    from orchestrator.domain.observation import Present

    beats = world.heartbeats.value if isinstance(world.heartbeats, Present) else ()
    left = seconds_left(beats, target)
    return None if left is None else round(left, 1)


def _age(now: float, then: float | None) -> float | None:
    """Return seconds; clocks of two machines may disagree by a little, so never less than none."""
    return None if then is None else round(max(0.0, now - then), 1)
