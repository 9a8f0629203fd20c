"""Show all deployments known here, a line for each."""

from typing import Any

from rich.console import Console
from rich.table import Table

from orchestrator.app.choice import Choice
from orchestrator.app.top import Deployments
from orchestrator.cli.console import columns, print_json, put, say
from orchestrator.cli.views.redraw import repeat
from orchestrator.cli.views.status import WIDTH
from orchestrator.clock import SystemClock
from orchestrator.domain.amounts import usd_text


def show_all(choice: Choice, *, watch: bool) -> None:
    """Show all deployments known here, once or again and again."""
    deployments = Deployments(choice)
    if watch:
        repeat(choice, SystemClock(), "deployments", lambda: (_body(deployments), False), _drawn, _news)
        return
    body = _body(deployments)
    if choice.as_json:
        print_json("deployments", body)
    elif body["deployments"]:
        put(_drawn(body))
    else:
        say(f"this computer has brought up no deployment on --cloud {choice.cloud}; next: tpuctl up")


def _body(deployments: Deployments) -> dict[str, Any]:
    return {"deployments": deployments.rows()}


def _drawn(body: dict[str, Any]) -> str:
    return table(body["deployments"], min(WIDTH, columns() or WIDTH))


def table(rows: list[dict[str, Any]], width: int) -> str:
    """Return the deployments as a table of *width* characters."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("deployment", "state", "job", "checkpoint", "preempted", "cost"):
        shown.add_column(title, overflow="fold")
    for row in rows:
        count, usd = row["preemptions"], row["cost_usd"]
        shown.add_row(
            row["name"], row["problem"] or row["outcome"] or row["tpu"], _brief(row["job"]),
            (row["checkpoint"] or "-").removeprefix("step "), "-" if count is None else str(count),
            "-" if usd is None else usd_text(usd),
        )  # fmt: skip
    console = Console(width=width, highlight=False, markup=False, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _brief(job: str | None) -> str:
    """Return how far the job is without what the state says already, so that a row has one line."""
    parts = (job or "").split(", ")
    rest = [p for p in parts if p not in {"run", "done"} and not p.startswith("loss ")]
    return ", ".join(p for p in rest if not p.endswith((" steps/s", " s/step"))) or "-"


def _news(body: dict[str, Any]) -> list[str]:
    """Return a line for each deployment that changes with it only."""
    return [
        ", ".join(
            part for part in (row["name"], row["problem"] or row["outcome"] or row["tpu"], row["job"]) if part
        )
        for row in body["deployments"]
    ]
