"""Show a fleet's queue, its cost, and a job's results, in lines of at most 80 characters on a terminal."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.app.context.choice import Choice
from orchestrator.app.fleet.queue import Queue
from orchestrator.app.fleet.usage import QueueObserver
from orchestrator.cli.console import columns, print_json, put, say, talk
from orchestrator.cli.views.redraw import repeat
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.text.amounts import saved_text, span_text, usd_range_text, usd_text
from orchestrator.planning.fleet.fleet_cost import Amount, FleetUsage, by_user, steps_redone
from orchestrator.planning.fleet.gate import Gate, Hold
from orchestrator.planning.fleet.tasks import OPEN, JobRow, TaskRow, TaskState
from orchestrator.planning.fleet.users import NORMAL
from orchestrator.planning.ignored import ignored_text
from orchestrator.planning.uncommitted import uncommitted_text
from orchestrator.report.results_table import ResultsTable, Value

GAP = 2
LEAST = 6
"""Characters that a cell keeps when its table must become narrower."""
MARK = "..."
RARE = frozenset({TaskState.FAILED, TaskState.UNCOMMITTED, TaskState.CANCELLED})
"""States that have a column only if a task is in one of them."""


def put_table(rows: Sequence[Sequence[str]], *, elastic: int = 0) -> None:
    """Print rows in columns; the column *elastic* is cut to fit the terminal."""
    for line in table_lines(rows, columns(), elastic=elastic):
        put(line)


def table_lines(rows: Sequence[Sequence[str]], width: int, *, elastic: int = 0) -> list[str]:
    """Return rows in columns of at most *width* characters if possible; 0 means no limit."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    elastic %= len(widths)
    if width:
        over = sum(widths) + GAP * (len(widths) - 1) - width
        widths[elastic] = max(min(LEAST, widths[elastic]), widths[elastic] - max(0, over))
    return [
        (" " * GAP)
        .join(_cut(cell, size).ljust(size) for cell, size in zip(row, widths, strict=True))
        .rstrip()
        for row in rows
    ]


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: max(0, size - len(MARK))]}{MARK}"[:size]


def show_queue(observer: QueueObserver, choice: Choice, *, tasks: bool, follow: bool) -> None:
    """Print a row for each job or, with *tasks*, for each task; with *follow* until all are over."""
    if not follow:
        found, usage = observer.observe()
        if choice.as_json:
            print_json("fleet-queue", queue_body(found, usage))
            return
        for line in _queue_lines(found, usage, columns(), tasks=tasks):
            put(line)
        return

    def observe() -> tuple[Any, bool]:
        found, usage = observer.observe()
        states = [task.state for job in found.jobs for task in job.tasks]
        # Without an answer of Slurm, a task that seems to wait may be running.
        over = bool(states) and all(state not in OPEN for state in states)
        return (queue_body(found, usage) if choice.as_json else (found, usage)), over

    def draw(body: Any) -> str:
        lines = _queue_lines(body[0], body[1], columns(), tasks=tasks)
        room = max(5, shutil.get_terminal_size().lines - 2)
        if len(lines) > room:
            lines = [
                *lines[: room - 1],
                f"... and {len(lines) - room + 1} more; `tpuctl fleet queue` shows all",
            ]
        return "\n".join([*lines, f"as of {time.strftime('%H:%M:%S')}; Ctrl-C ends this display, no task"])

    def news(body: Any) -> list[tuple[Any, str]]:
        found, usage = body
        return [
            (tuple((job.name, *(job.count(state) for state in TaskState)) for job in found.jobs), line)
            for line in [_sum_line(found, usage)]
        ]

    repeat(choice, observer.clock, "fleet-queue", observe, draw, news)


def queue_body(found: Queue, usage: FleetUsage) -> dict[str, Any]:
    """Return the queue as in `--json`."""
    jobs = []
    for job in found.jobs:
        history, amount = usage.job(job.name), usage.cost.jobs.get(job.name, Amount())
        tasks = []
        for task in job.tasks:
            step, loss = history.progress(task.number)
            tasks.append(
                {
                    "number": task.number, "state": task.state.value, "node": task.node,
                    "restarts": _restarts(usage, job, task), "parameters": dict(task.parameters),
                    "step": step, "loss": loss,
                    "steps_redone": steps_redone(history, task.number),
                    "usd": round(usage.cost.tasks.get((job.name, task.number), Amount()).usd, 6),
                    "uncommitted_message": _uncommitted(usage, job, task),
                    "ignored_message": _ignored(usage, job, task),
                }
            )  # fmt: skip
        jobs.append(
            {"name": job.name, "submitted_at": job.submitted_at, "user": found.submissions[job.name].user,
             "priority": found.submissions[job.name].priority or NORMAL,
             "hold_reason": found.gates[job.name].hold.value,
             "after": list(found.gates[job.name].waits), "tasks": tasks, "usd": round(amount.usd, 6),
             "node_seconds": round(amount.seconds, 1), "eta_s": usage.eta.get(job.name),
             "shortage": found.lacks[job.name].text if job.name in found.lacks else ""}
        )  # fmt: skip
    unread = {name: error.message for name, error in found.unread.items()}
    return {"jobs": jobs, "message": found.message, "unread": unread}


def _note(gate: Gate) -> str:
    """Return why no task of a job may start, "" if they may."""
    if gate.hold is Hold.ASKED:
        return "is held; next: tpuctl fleet release"
    if gate.hold is Hold.OVER_BUDGET:
        return f"does not begin: {gate.cause} has spent the budget (docs/fleet.md)"
    if gate.hold is Hold.AFTER:
        return (
            f"does not begin, because {gate.cause} has not ended well; next: tpuctl fleet retry {gate.cause}"
        )
    return f"waits for {', '.join(gate.waits)}" if gate.waits else ""


def _restarts(usage: FleetUsage, job: JobRow, task: TaskRow) -> int:
    # Slurm forgets ended tasks, and the bucket is slightly behind Slurm; so take the larger number.
    return max(task.restarts, usage.job(job.name).restarts(task.number))


def _uncommitted(usage: FleetUsage, job: JobRow, task: TaskRow) -> str:
    """Return what a running task has done that is in no checkpoint, "" if nothing says so."""
    return uncommitted_text(usage.job(job.name).submission.job.checkpoint, _running_report(usage, job, task))


def _ignored(usage: FleetUsage, job: JobRow, task: TaskRow) -> str:
    """Return that a running task has not loaded its checkpoint, "" if nothing says so."""
    return ignored_text(_running_report(usage, job, task))


def _running_report(usage: FleetUsage, job: JobRow, task: TaskRow) -> list[Heartbeat]:
    """Return the last report of a task that runs, if there is one."""
    heartbeat = usage.job(job.name).last_heartbeat(task.number)
    return [heartbeat] if task.state is TaskState.RUNNING and heartbeat is not None else []


def _save_lines(job: JobRow, usage: FleetUsage) -> list[str]:
    """Return a line for the first task that saves in vain, with how many others do: they run the same program."""
    lines = []
    for text_of in (_ignored, _uncommitted):
        found = [(task.number, text) for task in job.tasks if (text := text_of(usage, job, task))]
        rest = f"; {len(found) - 1} more of its tasks too" if len(found) > 1 else ""
        lines += [f"{job.name}/{number}: {text}{rest}" for number, text in found[:1]]
    return lines


def _queue_lines(found: Queue, usage: FleetUsage, width: int, *, tasks: bool) -> list[str]:
    unread = [f"{error.message}; {error.next_step}" for error in found.unread.values()]
    if not found.jobs and not unread:
        return ["no job was submitted yet; next: tpuctl fleet submit JOB.yaml"]
    lines = [_sum_line(found, usage)]
    if found.message:
        lines.append(f"Slurm does not answer, so what runs is not known: {found.message}")
    lines += table_lines(
        _task_rows(found, usage) if tasks else _job_rows(found, usage), width, elastic=-1 if tasks else 0
    )
    lines += [
        f"{job.name} {note}"
        for job in found.jobs
        if job.count(TaskState.WAITING) and (note := _note(found.gates[job.name]))
    ]
    lines += [f"{lack.task.job}/{lack.task.number} {lack.text}" for lack in found.lacks.values()]
    lines += [line for job in found.jobs for line in _save_lines(job, usage)]
    lines += [
        f"Uncommitted files: tpuctl fleet fetch {job.name} --uncommitted"
        for job in found.jobs
        if job.count(TaskState.UNCOMMITTED)
    ]
    return lines + unread


def _sum_line(found: Queue, usage: FleetUsage) -> str:
    live = sum(lane.has_machine for lane in usage.lanes)
    counts = {state: sum(job.count(state) for job in found.jobs) for state in TaskState}
    summary = ", ".join(
        f"{counts[state]} {state.value}" for state in TaskState if counts[state] or state not in RARE
    )
    return f"{usage.name}: {live} node{'' if live == 1 else 's'}; {summary}; {_usd(usage)}"


def _usd(usage: FleetUsage) -> str:
    """Return the cost of the fleet so far; what is incomplete has no upper end."""
    cost = usage.cost
    return f"at least {usd_text(cost.usd)}" if usage.incomplete else usd_range_text(cost.usd, cost.upper_usd)


def _job_rows(found: Queue, usage: FleetUsage) -> list[Sequence[str]]:
    of_users = found.users.needs_database
    shown = [state for state in TaskState if state not in RARE or any(job.count(state) for job in found.jobs)]
    rows: list[Sequence[str]] = [
        (
            "JOB",
            *(("USER", "PRIORITY") if of_users else ()),
            "TASKS",
            *(state.value.upper() for state in shown),
            "RESTARTS",
            "COST",
            "LEFT",
        )
    ]
    for job in found.jobs:
        counts = (str(job.count(state) or "-") for state in shown)
        restarts = sum(_restarts(usage, job, task) for task in job.tasks)
        usd = usage.cost.jobs.get(job.name, Amount()).usd
        over = all(task.state not in OPEN for task in job.tasks)
        eta = usage.eta.get(job.name)
        remaining = "-" if over else "not known" if eta is None else span_text(eta)
        submission = found.submissions[job.name]
        whose = (submission.user or "-", submission.priority or NORMAL) if of_users else ()
        costs = (str(restarts or "-"), f"${usd:.2f}", remaining)
        rows.append((job.name, *whose, str(len(job.tasks)), *counts, *costs))
    return rows


def _task_rows(found: Queue, usage: FleetUsage) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [("TASK", "STATE", "NODE", "RESTARTS", "STEP", "LOSS", "PARAMETERS")]
    for job in found.jobs:
        history = usage.job(job.name)
        for task in job.tasks:
            at, value = history.progress(task.number)
            step, loss = "-" if at is None else str(at), "-" if value is None else f"{value:.4g}"
            values = " ".join(f"{key}={value}" for key, value in task.parameters.items())
            restarts = str(_restarts(usage, job, task) or "-")
            rows.append(
                (
                    f"{job.name}/{task.number}",
                    task.state.value,
                    task.node or "-",
                    restarts,
                    step,
                    loss,
                    values,
                )
            )
    return rows


def show_cost(usage: FleetUsage, *, as_json: bool, by_login: bool = False) -> None:
    """Print the cost of the fleet: by job or *by_login*, of idle time, and of the VM."""
    found, whole = usage.cost, usage.cost.usd
    whose = by_user(usage.jobs, found) if by_login else found.jobs
    rows: list[tuple[str, str, Amount]] = [
        *(("user" if by_login else "job", name, amount) for name, amount in whose.items()),
        *(("other", name, amount) for name, amount in found.others.items()),
    ]
    if as_json:
        print_json("fleet-cost", {
            "name": usage.name, "usd": round(whole, 6), "upper_usd": round(found.upper_usd, 6),
            "on_demand_usd": round(found.on_demand_usd, 6),
            "budget_usd": usage.budget_usd, "complete": not usage.incomplete,
            "rows": [
                {"kind": kind, "name": name, "node_seconds": round(one.seconds, 1), "usd": round(one.usd, 6),
                 "on_demand_usd": round(one.on_demand_usd, 6), "lost_usd": round(one.lost_usd, 6),
                 "fraction": one.usd / whole if whole else None}
                for kind, name, one in rows
            ],
        })  # fmt: skip
        return
    shown: list[Sequence[str]] = [("WHAT", "TIME", "COST", "SHARE", "LOST WORK")]
    for kind, name, one in rows:
        lost = f"${one.lost_usd:.4f}" if kind != "other" and one.lost_usd else "-"
        shown.append((
            name if kind != "other" else f"({name})", span_text(one.seconds), f"${one.usd:.4f}",
            f"{one.usd / whole:.1%}" if whole else "-", lost,
        ))  # fmt: skip
    put_table([*shown, ("sum", "", f"${whole:.4f}", "100.0%" if whole else "-", "")])
    for line in cost_sentences(usage):
        put(line)


def cost_sentences(usage: FleetUsage) -> list[str]:
    """Return notes on the sums: what is missing, saved compared with on demand, and the budget."""
    found, lines = usage.cost, list[str]()
    if usage.unread_jobs:
        lines.append(f"Not read, so counted as idle: {', '.join(usage.unread_jobs)}. See: tpuctl fleet queue")
    if usage.incomplete:
        lines.append("At least: what has an unknown price or an unreadable record is left out.")
    elif found.usd and (saved := saved_text(found.usd, found.upper_usd, found.on_demand_usd)):
        lines.append(f"On demand: {usd_text(found.on_demand_usd)}, so {saved} saved.")
    if usage.budget_usd is not None:
        share = f"{found.upper_usd / usage.budget_usd:.0%} spent at the upper prices"
        lines.append(f"The budget of {usage.budget_usd:g} USD: {share}.")
    free = "Nothing is billed on the local cloud; prices are Google's. " if usage.unbilled else ""
    return [*lines, f"{free}An estimate, not a bill, excluding storage and traffic."]


def show_report(path: Path, usage: FleetUsage, *, as_json: bool) -> None:
    """Print the path of the page."""
    if as_json:
        print_json("fleet-report", {"name": usage.name, "file": str(path), "usd": round(usage.cost.usd, 6)})
    else:
        say(f"{path}: open it in a browser; it needs no network", style="green")


def show_results(found: ResultsTable, path: Path | None, *, as_json: bool) -> None:
    """Print a job's table, and the path of its CSV file."""
    if as_json:
        body: dict[str, Any] = {
            "job": found.job,
            "columns": list(found.columns),
            "rows": [dict(r) for r in found.rows],
        }
        print_json("fleet-results", {**body, "file": str(path) if path else None})
        return
    keys, remaining = _fitting(found, columns())
    rows = [[_cell(row.get(key)) for key in keys] for row in found.rows]
    put_table([[key.upper() for key in keys], *rows], elastic=-1)
    if remaining:
        talk(f"{remaining} more columns: --output FILE.csv or --json has all")
    if path is not None:
        say(f"written to {path}", style="green")


def _fitting(found: ResultsTable, width: int) -> tuple[list[str], int]:
    """Return the columns that fit, chosen by importance but in their order, and how many do not."""
    first = [found.columns[0], *found.parameters]
    own = [one for one in found.columns if one not in first and one not in found.collected]
    wanted = [*first, own[0], *found.collected, *(one for one in reversed(own[1:]))]
    sizes = {
        key: max(len(key), *(len(_cell(row.get(key))) for row in found.rows)) if found.rows else len(key)
        for key in wanted
    }
    chosen: list[str] = []
    for key in wanted:
        if width and chosen and sum(sizes[one] + GAP for one in chosen) + sizes[key] > width:
            continue
        chosen.append(key)
    return [key for key in found.columns if key in chosen], len(found.columns) - len(chosen)


def _cell(value: Value) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
