"""Facts of a run with two preemptions, for tests of the page."""

from dataclasses import replace

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.domain.record import Span
from orchestrator.domain.status import DeploymentStatus
from orchestrator.pricing.cost_breakdown import cost_breakdown
from orchestrator.report.curve_points import losses
from orchestrator.report.page import PageFacts
from orchestrator.report.summary import summarise
from tests.kit.records import record_of
from tests.planning.planning_kit import a_spec

T = 1_800_000_000.0
ZONE = "europe-west4-b"


def heartbeat(incarnation, began, step, resumed_from=None, **more):
    """Return the last heartbeat of worker 0 of one TPU that began at *began*."""
    marks = ("boot", "fetched", "restored", "spawned", "first_step")
    timings = {name: began + 40 + 5 * index for index, name in enumerate(marks)}
    known = {
        "committed_step": step - 7,
        "committed_at": began + 900,
        "progress_at": began + 1000,
        "loss": 2.5,
    }
    return Heartbeat(
        incarnation, 0, more.pop("phase", Phase.RUN), began + 1010, step=step, resumed_from=resumed_from,
        timings=timings, **{**known, **more},
    )  # fmt: skip


def facts(name="mine", *, event="TPU mine-tpu-g1 is PREEMPTED", message="", reason="", now=T + 5000, **more):
    """Return all that a report contains; the texts are what others could have written."""
    spec = replace(a_spec(), name=name)
    heartbeats = (
        heartbeat(1, T, 120, message=message),
        heartbeat(2, T + 1200, 260, 113),
        heartbeat(3, T + 2400, 400, 253, phase=Phase.DONE, committed_step=400),
    )
    nodes = [
        Span(Kind.NODE, f"{name}-tpu-g{n + 1}", ZONE, T + 1200 * n, T + 1200 * n + 1100) for n in range(3)
    ]
    record = record_of(
        started_at=T - 10, incarnation=3, preemptions=2, bundle="b", outcome=Outcome.DONE,
        message=reason or "all is done",
        spans=(Span(Kind.VM, f"{name}-vm", ZONE, T, None), *nodes),
    )  # fmt: skip
    events = [
        Event(T + 1050, "preempted", event, {"incarnation": 1}),
        Event(T + 1200, "tpu-create", "TPU asked for", {"incarnation": 2}),
        Event(T + 2250, "preempted", "TPU is PREEMPTED", {"incarnation": 2}),
        *more.pop("events", ()),
    ]
    catalog = load_catalog()
    summary = summarise(heartbeats, events, preemptions=2, wall=3400, usd=1.5, on_demand_usd=4.0)
    worker = {"worker": 0, "phase": "done", "step": 400, "loss": 2.5, "checkpoint_step": 400}
    status = DeploymentStatus.from_dict({
        "name": name, "project": "p", "outcome": record.outcome and record.outcome.value,
        "state": record.outcome.value if record.outcome else "running",
        "incarnation": 3, "preemptions": 2, "resources": [], "watcher": None, "safety_nets": [],
        "next_pass_in_s": None,
        "budget_usd": None, "ttl_remaining_s": None, "sidecars": [], "source": {"by": "cloud", "age_s": 0.0},
        "usd": 1.5, "next_changes": [], "target_steps": 400,
        "workers": [{**worker, "checkpoint_age_s": 9.0, "heartbeat_age_s": 1.0}],
    })  # fmt: skip
    points = [(T + n, n, 4.0 - n / 200, 1 if n < 120 else 2 if n < 260 else 3) for n in range(1, 400, 5)]
    return PageFacts(
        status=status, record=record, heartbeats=heartbeats, events=events,
        summary=summary,
        breakdown=cost_breakdown(spec, catalog, record, heartbeats, now), losses=losses(points, heartbeats),
        now=now, unbilled=False,
        **more,
    )  # fmt: skip
