"""The figures F1 to F18 of a fleet: what each is, its goal, and the page's table, of which a run replaces rows."""

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks import document
from benchmarks.table import words

PART = "fleet"
VERDICTS = {True: "kept", False: "**missed**", None: "not shown"}


@dataclass(frozen=True)
class Figure:
    """Hold what was found for the figure *id*, and whether its goal is *met*; None: it shows less than that."""

    id: str
    found: str
    met: bool | None


GOALS = {
    "F1": ("tasks lost / run twice with both committing, in the replay", "0 / 0"),
    "F2": ("utilisation in the replay, queue never empty", ">= 0.94 on 80 nodes"),
    "F3": ("goodput in the replay", ">= 0.92 on 80 nodes"),
    "F2s": ("utilisation of Slurm alone in the replay, tasks without an agent", ">= 0.94 on 80 slurmd"),
    "F3s": ("goodput of Slurm alone in the replay", ">= 0.92 on 80 slurmd"),
    "F4": ("preemption known to task requeued / running", "p99 <= 1 s / p50 <= 15 s, p99 <= 25 s"),
    "F5": ("preemption to known", "as with one TPU: p50 8.7 s, at most 14.1 s"),
    "F6": ("steps made again for a preemption", "<= a save's interval + 1"),
    "F7": ("slurmctld killed: jobs made again; answer after restart", "0; <= 5 s, by cron <= 75 s"),
    "F8": ("VM and disk deleted with 300 tasks known", "all known, none that runs interrupted, <= 120 s"),
    "F9": ("gang of slices, one lost: all restarted", "<= 25 s"),
    "F10": ("urgent gang on a full fleet", "<= 30 s, last save included"),
    "F11": ("shares after equal demand; limit of nodes", "within 10 %; never passed"),
    "F12": ("memory of a node / VM / VM with users, MB", "<= 15 / 60 / 250"),
    "F13": ("100 nodes: list calls a pass; creates", "= pages; <= 60 a minute"),
    "F14": ("submit 1,000 tasks; queue with 1,000", "<= 5 s; <= 1 s"),
    "F15": ("left after `down`", "0, proven, else exit 5"),
    "F16": ("exports valid of 50 x 3; seeded errors found", "all"),
    "F17": ("the tree of Slurm, unpacked", "<= 20 MB"),
    "F18": ("base commands", "unchanged"),
}
ELSEWHERE = {
    "F15": (
        "a test: 0 left, and exit 5 with what is left",
        "pytest tests/scenarios/test_fleet.py tests/e2e/test_fleet.py",
    ),
    "F16": ("tests and the other side's own parsers, in CI", ".ci/exports"),
    "F18": ("part *Commands* of this page", "python -m benchmarks.cli"),
}
"""Figures that a test or another benchmark gives: what it says, and its command."""
ABOUT = """\
Goals are those that the design of the fleet began with. Everything goes through `tpuctl fleet up`, `submit` and
`watch`, on machines of the local cloud, with the Slurm that `fleet up` brings from Debian's packages, its own
slurm.conf, and the agent on each node; kills are SIGKILL. Where a row is about less, it says so. *load* is how
many
processes wanted a core in the last minute: on a computer that is not shared, seconds are fewer. Each figure is of
one run, and a run writes its own rows only.
"""


def put(found: list[Figure], page: Path = document.PAGE) -> None:
    """Replace the rows of these figures on the page; the other rows stay as they are."""
    lines = page.read_text().splitlines()
    held = {line.split("|")[1].strip(): line for line in lines if line.startswith("| F")}
    held |= {figure.id: row(figure) for figure in found}
    document.put(PART, text(held), page)


def text(rows: dict[str, str]) -> str:
    """Return the part of the page with these rows; a figure without one was not measured."""
    lines = ["| | what | goal | found | | command |", "| --- | --- | --- | --- | --- | --- |"]
    for name in GOALS:
        if name in ELSEWHERE:
            found, command = ELSEWHERE[name]
            lines.append(_line(name, found, "", command))
        else:
            lines.append(rows.get(name) or _line(name, "not measured yet", "", _command(name)))
    return "\n\n".join(("## A fleet", words(ABOUT), "\n".join(lines)))


def row(figure: Figure) -> str:
    """Return the row of one figure, with the load of this moment."""
    return _line(figure.id, figure.found, VERDICTS[figure.met], _command(figure.id))


def load() -> str:
    """Return the load of the last minute, as rows name it."""
    return f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"


def _line(name: str, found: str, verdict: str, command: str) -> str:
    what, limit = GOALS[name]
    return f"| {name} | {what} | {limit} | {found} | {verdict} | `{command}` |"


def _command(name: str) -> str:
    return f"python -m benchmarks.fleet {name}"
