"""Render the report of a fleet as one HTML page without network access: nodes, queue, jobs, results, money."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator import __version__
from orchestrator.domain.text.amounts import progress_percent, saved_text, span_text
from orchestrator.planning.fleet.fleet_cost import Amount, FleetUsage, queue_curve, state_of, steps_redone
from orchestrator.planning.fleet.tasks import OPEN, TaskState
from orchestrator.planning.fleet.use import FleetNodeLane, FleetNodeUseSpan, JobHistory
from orchestrator.pricing.use_spans import Use
from orchestrator.report import charts
from orchestrator.report.page import asset, environment, style_hash, usd_range_shown, usd_shown
from orchestrator.report.results_table import ResultsTable
from orchestrator.report.summary import UNKNOWN
from orchestrator.report.sweep_plots import sweep

COLOURS = 6
"""Number of colours for jobs; those after the fifth share the last one."""
PITCHES = ((12, 22), (40, 15), (10_000, 9))
"""(up to this number of nodes, height of a row in pixels)."""
WORDS_APART = 15
"""Least pixels between the names of two rows."""
_KINDS = {
    Use.STARTING: "starting", Use.IDLE: "idle", Use.LOST: "lost", Use.UNKNOWN: "unknown",
}  # fmt: skip


def fleet_page(usage: FleetUsage, tables: Sequence[ResultsTable]) -> str:
    """Return the page; *tables* are the results of the jobs that have parameters or collected files."""
    style = asset("style.css")
    kinds = {job.submission.name: f"job{min(n, COLOURS - 1)}" for n, job in enumerate(usage.jobs)}
    since, until = _time(usage)
    values = {
        **_head(usage), **_rows(usage.lanes, kinds, since, until), **_money(usage, kinds),
        "times": charts.time_ticks(since, until), "queue": _queue(usage, since, until),
        "jobs": [_job(usage, job, kinds) for job in usage.jobs],
        "sweeps": [sweep(table) for table in tables],
        # The only text that is not escaped, because it is our own file.
        "style": environment().filters["as_is"](style), "style_hash": style_hash(style),
    }  # fmt: skip
    return environment().get_template("fleet.html.j2").render(values)


def _time(usage: FleetUsage) -> tuple[float, float]:
    begins = [part.since for lane in usage.lanes for part in lane.use_spans[:1]]
    begins += [job.submission.submitted_at for job in usage.jobs]
    ends = [lane.use_spans[-1].until for lane in usage.lanes if lane.use_spans]
    ends += [end.at for job in usage.jobs for end in job.ends.values()]
    goes_on = any(lane.has_machine for lane in usage.lanes)
    since = min(begins, default=usage.now)
    return since, max(since + 1.0, usage.now if goes_on or not ends else max(ends))


def _counts(usage: FleetUsage, job: JobHistory) -> Counter[TaskState]:
    tasks = range(len(job.submission.parameters))
    return Counter(state_of(job, task, usage.at_work) for task in tasks)


def _head(usage: FleetUsage) -> dict[str, Any]:
    counts = [_counts(usage, job) for job in usage.jobs]
    tasks = sum(len(job.submission.parameters) for job in usage.jobs)
    done = sum(one[TaskState.DONE] for one in counts)
    open_ = sum(one[state] for one in counts for state in OPEN)
    live, cost = sum(lane.has_machine for lane in usage.lanes), usage.cost
    state = "done" if tasks and not open_ else "at work" if usage.at_work else "idle"
    uses = {
        use: sum(p.until - p.since for lane in usage.lanes for p in lane.use_spans if p.use is use)
        for use in Use
    }
    whole = sum(uses.values())
    least = "at least " if usage.incomplete else ""
    spent = usd_shown(cost.usd) if usage.incomplete else usd_range_shown(cost.usd, cost.upper_usd)
    hero = [
        (f"{done:,}", f"of {tasks:,} tasks done"),
        (f"{usage.preemptions or 'no'}", f"preemption{'' if usage.preemptions == 1 else 's'}"),
        (f"{least}{spent}", "at Google's prices" if usage.unbilled else "spent"),
    ]
    saved = saved_text(cost.usd, cost.upper_usd, cost.on_demand_usd)
    if saved and not usage.incomplete:
        hero.append((saved, f"saved ({usd_shown(cost.on_demand_usd)} on demand)"))
    restarts = sum(job.restarts(task) for job in usage.jobs for task in job.starts)
    tiles = [
        ("nodes now", f"{live}", f"of {len(usage.lanes)} that the fleet had"),
        ("training", f"{uses[Use.TRAINING] / whole:.1%}" if whole else "-", "of the time of all nodes"),
        ("lost", f"{uses[Use.LOST] / whole:.1%}" if whole else "-", "work redone, machines gone"),
        ("restarts", f"{restarts:,}", "of tasks"),
        ("time left", _remaining_text(usage, counts) if open_ else "-", ""),
    ]  # fmt: skip
    text = f"{done:,} of {tasks:,} tasks done, {progress_percent(done / max(1, tasks))}"
    bar = {"share": round(100 * done / tasks, 2), "text": text} if tasks else None
    return {
        "name": usage.name, "state": state, "hero": hero, "tiles": tiles, "bar": bar, "now": usage.now,
        "unbilled": usage.unbilled, "unread": usage.unread,
        "foot": f"tpuctl {__version__}. Costs are estimates, not a bill; storage and traffic are not in them.",
    }  # fmt: skip


def _remaining_text(usage: FleetUsage, counts: Sequence[Counter[TaskState]]) -> str:
    """Return when all jobs will end, if that is known for each."""
    both = zip(usage.jobs, counts, strict=True)
    going = [job.submission.name for job, one in both if any(one[state] for state in OPEN)]
    if any(name not in usage.eta for name in going):
        return UNKNOWN
    return f"about {span_text(max(usage.eta[name] for name in going))}"


def _rows(
    lanes: Sequence[FleetNodeLane], kinds: Mapping[str, str], since: float, until: float
) -> dict[str, Any]:
    pitch = next(size for most, size in PITCHES if len(lanes) <= most)
    position = charts.Axis(since, until, (), 1).position
    each = -(-WORDS_APART // pitch)
    common = _common([lane.name for lane in lanes])
    rows: list[dict[str, Any]] = []
    shown: set[str] = set()
    for number, lane in enumerate(lanes):
        bars: list[dict[str, Any]] = []
        for part in lane.use_spans:
            _add(bars, part, kinds, position)
        shown |= {bar["kind"] for bar in bars}
        named = number % each == 0
        rows.append(
            {
                "name": lane.name,
                "y": number * pitch,
                "bars": bars,
                "label": lane.name[common:][-6:] if named else "",
            }
        )
    jobs: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        jobs.setdefault(kind, []).append(name)
    legend = [
        (kind, names[0] if len(names) == 1 else f"{len(names)} other jobs")
        for kind, names in jobs.items()
        if kind in shown
    ]
    legend += [(kind, use.value) for use, kind in _KINDS.items() if kind in shown]
    return {
        "rows": rows, "height": len(rows) * pitch, "bar_height": pitch - 2, "legend": legend,
    }  # fmt: skip


def _common(names: Sequence[str]) -> int:
    """Return the length of the names' common prefix, up to its last '-'."""
    first, last = min(names, default=""), max(names, default="")
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same].rfind("-") + 1


def _add(bars: list[dict[str, Any]], part: FleetNodeUseSpan, kinds: Mapping[str, str], position: Any) -> None:
    """Add a bar; one too short to be seen is joined to the one before of its colour."""
    x, end = position(part.since), position(part.until)
    kind = _KINDS.get(part.use) or kinds[part.job]
    text = f"{part.job}/{part.task}" if part.job else part.use.value
    text = f"lost work of {text}" if part.job and part.use is Use.LOST else text
    last = bars[-1] if bars else None
    if (
        last
        and last["kind"] == kind
        and x - (last["x"] + last["width"]) < charts.LEAST
        and end - last["x"] < 1
    ):
        last["width"] = round(max(last["width"], end - last["x"]), 3)
        last["seconds"] += part.until - part.since
        if text != last["last"]:
            last["last"], last["text"] = text, f"{last['first']} to {text}"
        return
    width = max(charts.LEAST / 3, round(end - x, 3))
    bars.append({
        "x": x, "width": width, "kind": kind, "text": text, "first": text, "last": text,
        "seconds": part.until - part.since,
    })  # fmt: skip


def _queue(usage: FleetUsage, since: float, until: float) -> dict[str, Any] | None:
    curve, unknown = queue_curve(usage.jobs, usage.lanes)
    if not curve:
        return None
    across = charts.Axis(since, until, (), 1)
    upwards = charts.axis(0.0, float(max(1, *(busy + idle for _, busy, idle in curve))))
    return {
        "running": _steps([(at, busy) for at, busy, _ in curve], across, upwards, until),
        "waiting": _steps([(at, busy + idle) for at, busy, idle in curve], across, upwards, until),
        "most_running": max(busy for _, busy, _ in curve), "most_waiting": max(idle for _, _, idle in curve),
        "ys": [charts.Tick(100 - upwards.position(v), upwards.text(v)) for v in upwards.values if v == int(v)],
        "wide": charts.WIDE, "high": charts.LOW, "unknown": unknown,
    }  # fmt: skip


def _steps(
    curve: Sequence[tuple[float, int]], across: charts.Axis, upwards: charts.Axis, until: float
) -> str:
    """Return the corners of the area below a step curve, at most two for each unit of width."""
    corners: list[tuple[float, float]] = [(across.position(curve[0][0]), 100.0)]
    for at, value in curve:
        x, y = across.position(at), 100 - upwards.position(value)
        corners += [(x, corners[-1][1]), (x, y)]
    end = across.position(until)
    corners += [(end, corners[-1][1]), (end, 100.0)]
    return " ".join(f"{x * charts.WIDE / 100:.1f},{y * charts.LOW / 100:.1f}" for x, y in corners)


def _job(usage: FleetUsage, job: JobHistory, kinds: Mapping[str, str]) -> dict[str, Any]:
    name, counts = job.submission.name, _counts(usage, job)
    lost = [steps_redone(job, task) for task in job.starts]
    known = sum(one for one in lost if one is not None)
    amount, eta = usage.cost.jobs.get(name, Amount()), usage.eta.get(name)
    over = not any(counts[state] for state in OPEN)
    return {
        "name": name, "kind": kinds[name], "tasks": len(job.submission.parameters),
        **{state.value: counts[state] for state in (TaskState.DONE, *OPEN)},
        "failed": counts[TaskState.FAILED] + counts[TaskState.UNCOMMITTED],
        "restarts": sum(job.restarts(task) for task in job.starts),
        "steps_redone": f"at least {known:,}" if None in lost else f"{known:,}",
        "seconds": amount.seconds, "usd": amount.usd,
        "eta": "-" if over else UNKNOWN if eta is None else span_text(eta),
    }  # fmt: skip


def _money(usage: FleetUsage, kinds: Mapping[str, str]) -> dict[str, Any]:
    cost, at = usage.cost, 0.0
    words = {use.value: kind for use, kind in _KINDS.items()}
    every = [(name, kinds[name], one) for name, one in cost.jobs.items() if name in kinds]
    every += [(f"({name})", words.get(name, "vm"), one) for name, one in cost.others.items()]
    rows = []
    for name, kind, one in every:
        share = one.usd / cost.usd if cost.usd else 0.0
        rows.append(
            {"name": name, "kind": kind, "seconds": one.seconds, "usd": one.usd, "on_demand_usd": one.on_demand_usd,
             "lost_usd": one.lost_usd, "share": share, "x": round(at, 3), "width": round(100 * share, 3)}
        )  # fmt: skip
        at += 100 * share
    notes = ["In brackets: what no task had."]
    if usage.budget_usd is not None:
        spent = f"{cost.upper_usd / usage.budget_usd:.0%} spent at the upper prices"
        notes.append(f"Budget: {usd_shown(usage.budget_usd)}, {spent}.")
    if usage.incomplete:
        notes.append("At least: a price or the record of a node is not known, and left out.")
    return {"money": rows, "usd": cost.usd, "on_demand_usd": cost.on_demand_usd, "cost_notes": notes}
