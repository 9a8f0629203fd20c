"""The report of a deployment as one HTML page that needs no network."""

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
from orchestrator.domain.observation import Heartbeat
from orchestrator.domain.record import Record
from orchestrator.pricing.spending import Spending, Stretch, Use, stretches
from orchestrator.report import drawing
from orchestrator.report.curve import Losses
from orchestrator.report.summary import PARTS, Summary
from orchestrator.report.timeline import KINDS, Timeline, timeline

if TYPE_CHECKING:
    from jinja2 import Environment

UNKNOWN = "not known"
NEWEST = 300
"""Events that the page shows; earlier ones are counted."""
USE_KINDS = {
    Use.TRAINING: "train", Use.LOST: "lost", Use.RECOVERING: "recovering", Use.STARTING: "starting",
    Use.IDLE: "idle", Use.UNKNOWN: "unknown",
}  # fmt: skip
SIGNS = (("\N{MULTIPLICATION SIGN}", "preempted or failed"), ("✓", "done"))


@dataclass(frozen=True)
class PageFacts:
    """Hold all that the page tells. *status* is what `status --json` prints; *now* is the end of the account."""

    status: Mapping[str, Any]
    record: Record
    beats: Sequence[Heartbeat]
    events: Sequence[Event]
    summary: Summary
    spending: Spending
    losses: Losses
    now: float
    rehearsed: bool


def page(facts: PageFacts, *, live: bool = False) -> str:
    """Return the page; *live* is for the dashboard, which serves style and script beside it."""
    style = asset("style.css")
    values = {
        **_head(facts),
        **_machines(timeline(facts.record.spans, facts.beats, facts.events, facts.now)),
        **_curve(facts.losses),
        **_money(facts),
        "uses": _uses(facts),
        "goodput": facts.summary.goodput,
        "recoveries": facts.summary.recoveries,
        "parts": PARTS,
        "events": facts.events[-NEWEST:],
        "omitted": max(0, len(facts.events) - NEWEST),
        "live": live,
        # The only text that is not escaped: it is a file of ours.
        "style": _environment().filters["as_is"](style),
        "style_hash": style_hash(style),
    }
    return _environment().get_template("page.html.j2").render(values)


def style_hash(style: str) -> str:
    """Return what a Content-Security-Policy calls this very style by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}"


@cache
def asset(name: str) -> str:
    """Return the text of a file beside the page's template."""
    return next(folder / name for folder in _folders() if (folder / name).is_file()).read_text("utf-8")


def _folders() -> list[Path]:
    """Return where templates lie: in the wheel's package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    return [package / "templates" / "report", package.parent / "templates" / "report"]


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    # autoescape: names, messages and events come from machines, and the page runs in the user's browser.
    made = Environment(
        loader=FileSystemLoader(_folders()), undefined=StrictUndefined, autoescape=True, trim_blocks=True
    )
    made.filters.update(
        span=_span, stamp=_stamp, percent=lambda share: f"{share:.1%}", usd=_usd,
        as_is=Markup,
    )  # fmt: skip
    return made


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}" if usd < 1 else f"{usd:.2f}"


def _head(facts: PageFacts) -> dict[str, Any]:
    status, summary = facts.status, facts.summary
    outcome = status["outcome"]
    nexts = "; ".join(status["next"])
    headline = f"{outcome}: {facts.record.reason or 'the deployment has ended'}" if outcome else nexts
    if not outcome and not nexts:
        headline = "the job runs" if status["workers"] else "nothing runs"
    phases = sorted({worker["phase"] for worker in status["workers"]})
    target = status["target_steps"]
    saved = [w["checkpoint"] for w in status["workers"] if w["checkpoint"] is not None]
    ages = [w["checkpoint_age_s"] for w in status["workers"] if w["checkpoint_age_s"] is not None]
    age = f"{_span(max(ages))} old" if ages and not outcome else ""
    least = "at least " if summary.redone_at_least else ""
    counted = f"{least}{summary.steps_redone} steps redone"
    redone = f"steps redone: {UNKNOWN}" if summary.steps_redone is None else counted
    began = f"began {_stamp(facts.record.started_at)} UTC, " if facts.record.started_at else ""
    return {
        "name": status["name"],
        "headline": headline,
        "alarm": outcome in {"failed", "unclaimed", "spent", "refused"},
        "about": f"Project {status['project']}, {began}as of {_stamp(facts.now)} UTC",
        "rehearsed": facts.rehearsed,
        "tiles": [
            _tile("state", outcome or ", ".join(phases) or "-", f"incarnation {status['incarnation']}"),
            _tile(
                "step",
                UNKNOWN if summary.steps is None else f"{summary.steps}",
                f"of {target}" if target else "",
            ),
            _tile("newest checkpoint", f"{min(saved)}" if saved else "none", age),
            _tile("preemptions", f"{summary.preemptions}", redone),
            _tile(
                "goodput",
                UNKNOWN if summary.goodput is None else f"{summary.goodput:.0%}",
                "time for kept steps",
            ),
            _tile(
                "cost",
                f"{_usd(facts.spending.usd)} USD",
                "a rehearsal: nothing is billed" if facts.rehearsed else "an estimate",
            ),
        ],
        "foot": f"tpuctl {__version__}. {facts.spending.prices.date_text}. Costs are estimates, not a bill.",
    }


def _tile(title: str, value: str, more: str) -> dict[str, str]:
    return {"title": title, "value": value, "more": more}


def _machines(drawn: Timeline) -> dict[str, Any]:
    shown = {bar.kind for lane in drawn.lanes for bar in lane.bars}
    kinds = {mark.kind for lane in drawn.lanes for mark in lane.marks}
    signs = [sign for sign, due in zip(SIGNS, (kinds - {"done"}, "done" in kinds), strict=True) if due]
    return {
        "lanes": drawing.lanes(drawn),
        "times": drawing.time_ticks(drawn.since, drawn.until),
        "kinds": [(kind, text) for kind, text in KINDS.items() if kind in shown],
        "signs": signs,
    }


def _curve(losses: Losses) -> dict[str, Any]:
    points = [(number, *point) for number, part in losses.items() for point in part]
    first, last = (
        (f"{p[2]:.4g} at step {p[1]}" if p else "" for p in (points[0], points[-1])) if points else ("", "")
    )
    return {"curve": drawing.curve(losses), "first_loss": first, "last_loss": last}


def _uses(facts: PageFacts) -> list[dict[str, Any]]:
    """Return for each use its time, its share of all time, and what it cost."""
    parts: Sequence[Stretch] = stretches(facts.record.spans, facts.beats, facts.now)
    seconds = {use: sum(p.until - p.since for p in parts if p.use is use) for use in Use}
    whole, at = sum(seconds.values()), 0.0
    rows = []
    for use, lasted in seconds.items():
        if not lasted:
            continue
        width = 100 * lasted / whole
        rows.append(
            {
                "text": use.value, "kind": USE_KINDS[use], "seconds": lasted, "share": lasted / whole,
                "x": round(at, 3), "width": round(width, 3), "usd": facts.spending.uses.get(use.value, 0.0),
            }
        )  # fmt: skip
        at += width
    return rows


def _money(facts: PageFacts) -> dict[str, Any]:
    spent = facts.spending
    notes = [f"Wasted by preemptions: {_usd(spent.wasted_usd)} USD."]
    if spent.rate_usd:
        notes.append(f"What exists now costs {_usd(spent.rate_usd)} USD per hour.")
    if spent.budget_usd is not None:
        notes.append(f"Budget: {spent.budget_usd:g} USD, {spent.usd / spent.budget_usd:.0%} spent.")
    if spent.unknown:
        notes.append(f"No price is known for {', '.join(spent.unknown)}; the sums leave it out.")
    return {
        "items": spent.items, "cost_usd": spent.usd, "ondemand_usd": spent.ondemand_usd,
        "cost_notes": [*notes, "Storage and traffic are not in it."],
    }  # fmt: skip
