"""tpuctl top: all deployments that this computer has brought up, live."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator import threads
from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import cloud_option, json_option

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.session import Session
    from orchestrator.google.node_list import ZoneLists

LOOKS = 8
"""Deployments that are looked at side by side."""
FRESH = 3.0
"""Seconds for which what a zone showed serves all of them; less than from one look to the next."""
SHOWN = ("outcome", "tpu", "job", "checkpoint", "preemptions", "cost_usd", "seen")


@click.command("top")
@cloud_option
@json_option
@click.option("--once", is_flag=True, help="Look once and leave.")
def command(cloud: str, as_json: bool, once: bool) -> None:
    """
    Show all deployments that this computer has brought up: TPU, job, checkpoint, preemptions and cost.

    The last look of a watcher is shown where there is one; otherwise the cloud is asked. Ctrl-C ends it.
    """
    show_all(Choice(None, (), cloud, as_json), watch=not once)


def show_all(choice: "Choice", *, watch: bool) -> None:
    """Show all deployments known here, once or again and again."""
    from orchestrator.cli.console import columns, print_json, say
    from orchestrator.cli.views.redraw import repeat
    from orchestrator.cli.views.status import WIDTH
    from orchestrator.google.node_list import ZoneLists

    sessions: dict[str, Any] = {}
    lists = ZoneLists(FRESH)

    def look() -> tuple[dict[str, Any], bool]:
        return {"deployments": rows_of(choice, sessions, lists)}, False

    def draw(body: dict[str, Any]) -> str:
        return table(body["deployments"], min(WIDTH, columns() or WIDTH))

    if watch:
        from orchestrator.clock import SystemClock

        repeat(choice, SystemClock(), "deployments", look, draw, _news)
        return
    body, _ = look()
    if choice.as_json:
        print_json("deployments", body)
    elif body["deployments"]:
        put(draw(body))
    else:
        say(f"this computer has brought up no deployment on --cloud {choice.cloud}; next: tpuctl up")


def rows_of(choice: "Choice", sessions: "dict[str, Session]", lists: "ZoneLists") -> list[dict[str, Any]]:
    """
    Return a row for each deployment known here; *sessions* keeps what was opened for the next time.

    All of them share *lists*: a zone is listed once for all that look at the same moment.
    """
    from orchestrator.app.state_folders import kept_files

    with threads.pool(LOOKS) as pool:
        return list(pool.map(lambda path: _row(path, choice, sessions, lists), kept_files(choice.cloud)))


def _row(
    path: "Path", choice: "Choice", sessions: "dict[str, Session]", lists: "ZoneLists"
) -> dict[str, Any]:
    """Return the row of one deployment; what cannot be read or seen has its reason in *problem*."""
    from orchestrator.errors import TpuctlError

    row: dict[str, Any] = {"name": path.parent.name, "project": path.parent.parent.name}
    try:
        return {**row, **_seen(_session(path, choice, sessions, lists)), "problem": ""}
    except TpuctlError as error:
        return {**row, **dict.fromkeys(SHOWN), "problem": error.message}


def _session(path: "Path", choice: "Choice", sessions: "dict[str, Session]", lists: "ZoneLists") -> "Session":
    from orchestrator.app.known import spec_in
    from orchestrator.app.reporter import Reporter
    from orchestrator.app.session import Session

    key = str(path)
    if key not in sessions:
        sessions[key] = Session(choice, Reporter(), spec_in(path), only_looks=True, lists=lists)
    return sessions[key]


def _seen(session: "Session") -> dict[str, Any]:
    from orchestrator.app.status import newest
    from orchestrator.cli.views.status import checkpoint_text, job_text

    if "records" in session.__dict__:
        session.records.load()
    body = newest(session)
    tpus = [row for row in body["resources"] if row["kind"] == "TPU"]
    return {
        "outcome": body["outcome"],
        "tpu": ", ".join(dict.fromkeys(row["state"] for row in tpus)),
        "job": job_text(body),
        "checkpoint": checkpoint_text(body),
        "preemptions": body["preemptions"],
        "cost_usd": body["cost_usd"],
        "seen": body["seen"],
    }


def table(rows: list[dict[str, Any]], width: int) -> str:
    """Return the deployments as a table of *width* characters."""
    from rich.console import Console
    from rich.table import Table

    from orchestrator.domain.amounts import usd_text

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
