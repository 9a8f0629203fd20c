"""Render the report of a deployment as one HTML page without network access."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record
from orchestrator.domain.status import DeploymentState, DeploymentStatus
from orchestrator.domain.text.amounts import progress_percent, rate_text, saved_text, span_text
from orchestrator.planning.failing import JOB_FAILS
from orchestrator.pricing.cost_breakdown import CostBreakdown
from orchestrator.pricing.use_spans import Use, UseSpan, use_spans
from orchestrator.report import charts
from orchestrator.report.curve_points import Losses, with_reported_points
from orchestrator.report.recoveries import HEADINGS, LEGEND, PARTS, without_row
from orchestrator.report.summary import UNKNOWN, USE_TEXTS, Summary, redone_texts
from orchestrator.report.timeline import Timeline, timeline

if TYPE_CHECKING:
    from jinja2 import Environment

NEWEST = 300
"""Newest events to show; earlier ones are counted."""
NAMED_STARTS = 2
"""Most starts by `up` whose times are all named; of more, the number and the last."""
BAD = frozenset({"failed", "uncommitted", "limit-reached", "refused"})
"""Outcomes that are shown as failures."""


@dataclass(frozen=True)
class PageFacts:
    """
    The content of the page; *now* is the end of the account.

    *points* are the watcher's (time, step, loss, incarnation), *checkpoints* (step, time) of those in the
    bucket.
    """

    status: DeploymentStatus
    record: Record
    heartbeats: Sequence[Heartbeat]
    events: Sequence[Event]
    summary: Summary
    breakdown: CostBreakdown
    losses: Losses
    now: float
    unbilled: bool
    points: Sequence[tuple[float, int, float | None, int]] = ()
    checkpoints: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class LiveFacts:
    """
    What only the dashboard shows: the end of the job's *log*, and this computer's *deployments*.

    Those are the rows of `tpuctl status --all -f`; *shown* is the name of the page's own deployment.
    """

    log: Sequence[str] = ()
    deployments: Sequence[Mapping[str, Any]] = ()
    shown: str = ""


def page(facts: PageFacts, live: LiveFacts | None = None) -> str:
    """Return the page; *live* is for the dashboard, which serves style and script as separate files."""
    style = asset("style.css")
    drawn = timeline(facts.record.spans, facts.heartbeats, facts.events, facts.now, facts.record.up_times)
    points = with_reported_points(facts.points, facts.heartbeats)
    # In the order of all TPUs, so that each has the same line in both drawings.
    dashed = sorted({*facts.losses, *(number for _, _, _, number in points)})[1::2]
    values = {
        **_head(facts),
        **_machines(facts, drawn, points, dashed),
        **_curve(facts, drawn, dashed),
        **_money(facts),
        "uses": _uses(facts),
        "goodput": facts.summary.goodput,
        "has_steps": facts.summary.steps is not None,
        "wall": facts.summary.wall_s,
        "recoveries": facts.summary.recoveries,
        "recovery_gap": without_row(facts.summary.recoveries, facts.summary.preemptions),
        "parts": PARTS,
        "headings": HEADINGS,
        "legend": " ".join(LEGEND),
        "events": facts.events[-NEWEST:],
        "omitted": max(0, len(facts.events) - NEWEST),
        "live": live,
        # The only text that is not escaped, because it is our own file.
        "style": environment().filters["as_is"](style),
        "style_hash": style_hash(style),
    }
    return environment().get_template("page.html.j2").render(values)


def style_hash(style: str) -> str:
    """Return the hash of *style* for a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}"


@cache
def asset(name: str) -> str:
    """Return the text of a file beside the page's template."""
    return next(folder / name for folder in _folders() if (folder / name).is_file()).read_text("utf-8")


def _folders() -> list[Path]:
    """Return the folders with templates: in the wheel's package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    return [package / "templates" / "report", package.parent / "templates" / "report"]


@cache
def environment() -> "Environment":
    """Return the Jinja environment for the page's templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    # autoescape: names, messages and events come from machines, and the page runs in the user's browser.
    made = Environment(
        loader=FileSystemLoader(_folders()),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        span=span_text, stamp=stamp, percent=lambda share: f"{share:.1%}", usd=usd_shown,
        as_is=Markup,
    )  # fmt: skip
    return made


def stamp(at: float) -> str:
    """Return a time as UTC text for the page."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def usd_shown(usd: float | None) -> str:
    """Return an amount with at least two significant digits: a rehearsal costs fractions of a cent."""
    if usd is None:
        return UNKNOWN
    if 0 < usd < 0.0001:
        return "<$0.0001"
    return f"${usd:,.2f}" if usd >= 0.1 or not usd else f"${usd:.3f}" if usd >= 0.01 else f"${usd:.4f}"


def usd_range_shown(usd: float, most: float) -> str:
    """Return an amount between two ends, as one amount if they read alike."""
    low, high = usd_shown(usd), usd_shown(max(usd, most))
    return low if low == high else f"{low} to {high}"


def _head(facts: PageFacts) -> dict[str, Any]:
    status, summary = facts.status, facts.summary
    outcome = status.outcome
    nexts = "; ".join(one.text for one in status.upcoming)
    headline = (facts.record.message or "the deployment has ended") if outcome else nexts
    if status.state is DeploymentState.DOWN:
        headline = "`tpuctl down` has run: nothing exists that is billed but the data, which is kept"
    if not headline:
        headline = "the job runs" if status.workers else "nothing runs"
    headline = JOB_FAILS if status.failing_message and not outcome else headline
    # Between two failures, and without its checkpoint, a job runs as any other.
    trouble = "" if outcome else status.failing_message or status.ignored_message
    reported = [w.checkpoint_step for w in status.workers if w.checkpoint_step is not None]
    # Without machines no report names one; the bucket still has it.
    saved = reported or [step for step in [status.checkpoint_step] if step is not None]
    ages = [w.checkpoint_age_s for w in status.workers if w.checkpoint_age_s is not None]
    redone, redone_message = redone_texts(summary)
    lowest = min((loss for part in facts.losses.values() for _, loss in part), default=None)
    # Not the newest number: a refused request used a number without creating a TPU.
    used = len({span.name for span in facts.record.spans if span.kind is Kind.NODE})
    free = " A run on the local cloud: nothing is billed." if facts.unbilled else ""
    return {
        "name": status.name,
        "state": status.state.phrase,
        "headline": f"{headline}: {trouble}" if trouble else headline,
        "alarm": outcome in BAD or bool(trouble),
        "over": bool(outcome),
        "about": f"Project {status.project}, {_began_text(facts.record)}as of {stamp(facts.now)} UTC.{free}",
        "unbilled": facts.unbilled,
        "hero": _hero(facts),
        "bar": _bar(facts),
        "tiles": [
            _tile("newest checkpoint", f"step {min(saved):,}" if saved else "none",
                  f"committed {span_text(max(ages))} ago" if ages and not outcome else ""),
            _tile("loss", UNKNOWN if summary.loss is None else f"{summary.loss:.4g}",
                  "" if lowest is None else f"lowest: {lowest:.4g}"),
            _tile("TPUs used", f"{used}", ""),
            _tile("steps redone", redone, redone_message),
            _tile("useful time", UNKNOWN if summary.goodput is None else f"{summary.goodput:.0%}",
                  "" if summary.goodput is None else "of the time went into steps that count"),
        ],
        "foot": f"tpuctl {__version__}. {facts.breakdown.prices.date_text}. Costs are estimates, not a bill.",
    }  # fmt: skip


def _began_text(record: Record) -> str:
    """Return when the deployment began, as its timeline does, and each time that `up` started it again."""
    times = record.up_times or ((record.started_at,) if record.started_at else ())
    if not times:
        return ""
    began = min([*times, *(span.since for span in record.spans)])
    again = [f"{stamp(at)} UTC" for at in times[1:]]
    if not again:
        return f"began {stamp(began)} UTC, "
    when = f"at {' and '.join(again)}"
    if len(again) > NAMED_STARTS:
        when = f"{len(again)} times, the last at {again[-1]}"
    return (
        f"began {stamp(began)} UTC, started again by `tpuctl up` {when} (the time between is not counted), "
    )


def _tile(title: str, value: str, more: str) -> dict[str, str]:
    return {"title": title, "value": value, "more": more}


def _hero(facts: PageFacts) -> list[dict[str, str]]:
    """Return the headline figures of a run: steps, time, preemptions, and money."""
    summary, spent = facts.summary, facts.breakdown
    lost = summary.preemptions
    found = [] if summary.steps is None else [_tile("", f"{summary.steps:,}", "steps")]
    if summary.wall_s:
        found.append(
            _tile("in", span_text(summary.wall_s), "in all" if len(facts.record.up_times) > 1 else "")
        )
    # A preemption counts as survived once the job trains again or has succeeded, not in the first minute.
    survived = "survived" if facts.status.outcome == "done" or _trains(facts) else ""
    found.append(
        _tile("", f"{lost or 'no'}", f"preemption{'' if lost == 1 else 's'} {survived if lost else ''}")
    )
    if spent.usd:
        known = usd_range_shown(spent.usd, spent.upper_usd)
        found.append(_tile("", known, "at Google's prices" if facts.unbilled else "spent"))
    # An item without a known price would distort the saving.
    share = saved_text(spent.usd, spent.counted_upper_usd, spent.on_demand_usd)
    if share and not spent.unpriced:
        found.append(_tile("", share, f"saved ({usd_shown(spent.on_demand_usd)} on demand)"))
    return found


def _trains(facts: PageFacts) -> bool:
    """Return whether the newest TPU trains: every worker reports that its job runs."""
    workers = facts.status.workers
    return bool(workers) and all(worker.phase == "run" for worker in workers)


def _target(facts: PageFacts) -> int | None:
    totals = (worker.reported_target_steps for worker in facts.status.workers)
    return facts.status.target_steps or next(filter(None, totals), None)


def _bar(facts: PageFacts) -> dict[str, Any] | None:
    """Return the job's progress, None if its end is not known."""
    target, step = _target(facts), facts.summary.steps
    if not target or step is None:
        return None
    text = f"step {step:,} of {target:,}, {progress_percent(min(1.0, step / target))}"
    workers = facts.status.workers
    rates = [worker.steps_per_second for worker in workers if worker.steps_per_second]
    if _trains(facts) and len(rates) == len(workers):
        text += f", {rate_text(min(rates))}"
    eta = facts.status.eta_s
    if eta is not None and not facts.status.outcome:
        until = stamp(facts.now + eta)[0 if eta > 86400 else 11 : 16]
        text += f", about {span_text(eta)} left (until {until} UTC)"
    return {"share": round(min(100.0, 100 * step / target), 2), "text": text}


def _machines(
    facts: PageFacts, drawn: Timeline, points: Sequence[tuple[float, int, float | None, int]],
    dashed: Sequence[int],
) -> dict[str, Any]:  # fmt: skip
    lanes = charts.lanes(drawn)
    shown = {(bar["kind"], bar["text"]) for lane in lanes for bar in lane["bars"]}
    order = [*(use.name.lower() for use in Use), "vm"]
    kinds = {mark.kind for lane in drawn.lanes for mark in lane.marks}
    position = charts.Axis(drawn.since, drawn.until, (), 1).position
    inside = [(step, at) for step, at in facts.checkpoints if drawn.since <= at <= drawn.until]
    return {
        "lanes": lanes,
        "times": charts.time_ticks(drawn.since, drawn.until),
        "kinds": sorted(shown, key=lambda one: order.index(one[0])),
        "signs": [(sign, kind.value) for kind, sign in charts.SIGNS.items() if kind in kinds],
        "preempted_at": [(position(at), number) for number, at in drawn.preemptions.items()],
        "progress": charts.progress(points, drawn, _target(facts), dashed),
        "saved_at": [(position(at), step) for step, at in inside],
    }


def _curve(facts: PageFacts, drawn: Timeline, dashed: Sequence[int]) -> dict[str, Any]:
    found = charts.curve(facts.losses, dashed)
    if found is None:
        return {"curve": None, "preempted_by_step": [], "saved_by_step": []}
    reached = {number: part[-1][0] for number, part in facts.losses.items()}
    reached.update({b.incarnation: b.step for b in facts.heartbeats if b.worker == 0 and b.step is not None})
    position, points = found.pop("position"), [point for part in facts.losses.values() for point in part]
    first, last = (f"{loss:.4g} at step {step:,}" for step, loss in (points[0], points[-1]))
    low, high = min(step for step, _ in points), max(step for step, _ in points)
    return {
        "curve": {**found, "first": first, "last": last},
        "preempted_by_step": [
            (position(reached[n]), n) for n in drawn.preemptions if low <= reached.get(n, -1) <= high
        ],
        "saved_by_step": [(position(step), step) for step, _ in facts.checkpoints if low <= step <= high],
    }


def _uses(facts: PageFacts) -> list[dict[str, Any]]:
    """Return for each use its time, its share of all time, and its cost."""
    parts: Sequence[UseSpan] = use_spans(
        facts.record.spans, facts.heartbeats, facts.now, facts.record.up_times
    )
    seconds = {use: sum(p.until - p.since for p in parts if p.use is use) for use in Use}
    if parts:
        # Before the first TPU, and between TPUs of two lifetimes, no TPU had work either.
        seconds[Use.IDLE] += max(0.0, facts.summary.wall_s - sum(seconds.values()))
    whole, at = sum(seconds.values()), 0.0
    rows = []
    for use, lasted in seconds.items():
        if not lasted:
            continue
        width = 100 * lasted / whole
        rows.append(
            {
                "text": use.value, "what": USE_TEXTS[use], "kind": use.name.lower(),
                "seconds": lasted, "share": lasted / whole,
                "x": round(at, 3), "width": round(width, 3), "usd": facts.breakdown.uses.get(use.value, 0.0),
            }
        )  # fmt: skip
        at += width
    return rows


def _money(facts: PageFacts) -> dict[str, Any]:
    spent = facts.breakdown
    differ = spent.counted_upper_usd > 1.01 * spent.usd
    lowest = " at the lowest prices" if differ else ""
    notes = [f"Wasted by preemptions: {usd_shown(spent.preemptions_usd)}{lowest} (lost and recovering)."]
    if spent.usd_hour:
        rate = usd_range_shown(spent.usd_hour, spent.upper_usd_hour)
        notes.append(f"What exists now costs {rate} per hour.")
    if spent.budget_usd is not None:
        share = f"{spent.machines_upper_usd / spent.budget_usd:.0%} spent at the upper prices"
        notes.append(f"Budget: {usd_shown(spent.budget_usd)}, {share}.")
    if differ:
        highest = usd_shown(spent.counted_upper_usd)
        notes.append(
            f"Public price lists differ. The tables have the lowest prices; by the highest it is {highest}."
        )
    notes += [end.text for end in spent.unwatched_ends]
    if spent.unpriced:
        notes.append(f"No price is known for {', '.join(spent.unpriced)}; the sums leave it out.")
    stored = "Storage is in it for what the bucket holds now" if spent.storage_gib else "Storage is not in it"
    return {
        "items": spent.items, "usd": spent.usd, "on_demand_usd": spent.on_demand_usd,
        "cost_notes": [*notes, f"{stored}; requests and traffic are not."],
    }  # fmt: skip
