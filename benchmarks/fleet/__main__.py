"""
python -m benchmarks.fleet [FIGURE...]: measure figures of a fleet through the product, print their rows.

As `python -m benchmarks.fleet F7 F14 --write`. Without names it measures all; figures of one run share a fleet. It
needs root, and a computer that can fetch Slurm's packages (Debian or Ubuntu). --write puts the rows into the part
`fleet` of the page, and leaves the other rows as they are.
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.fleet import figures
from benchmarks.fleet.calls import calls
from benchmarks.fleet.figures import Figure
from benchmarks.fleet.gang import gang_lost
from benchmarks.fleet.head import controller_killed, vm_lost
from benchmarks.fleet.market import AWS, replay, to_a_free_node
from benchmarks.fleet.running_fleet import RunningFleet, watched
from benchmarks.fleet.shares import fleet_of, shares
from benchmarks.fleet.slurm_alone import slurm_alone
from benchmarks.fleet.submission import submission

MARKET = ("F1", "F2", "F3", "F5", "F6")
ALONE = ("F2s", "F3s")
USERS = ("F10", "F11", "F12")


def main() -> None:
    """Measure what was asked for, and print and write its rows as soon as each is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE")
    parser.add_argument("--write", action="store_true", help="put the rows into the page")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--slurmds", type=int, default=80, help="daemons of F2s and F3s, without agents")
    parser.add_argument("--speed", type=float, default=60.0, help="times as fast for F2s and F3s")
    parser.add_argument("--listed", type=int, default=100, help="nodes of F13, which have no machines")
    parser.add_argument("--trace", type=Path, default=AWS, help="record of a market for F1 to F6")
    parser.add_argument("--faster", type=float, default=20.0)
    parser.add_argument("--hours", type=float, nargs=2, default=(0.0, 4.0))
    asked = parser.parse_args()
    unknown = {*asked.figures} - {*figures.GOALS}
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    wanted = {*(asked.figures or figures.GOALS)}

    def note(found: list[Figure]) -> None:
        for figure in found:
            print(figures.row(figure), flush=True)
        if asked.write:
            figures.put(found)

    if "F13" in wanted:
        note(calls(asked.listed))
    if wanted.intersection(ALONE):
        note(slurm_alone(asked.slurmds, asked.trace, asked.speed, tuple(asked.hours)))
    market = partial(replay, trace=asked.trace, faster=asked.faster, hours=tuple(asked.hours))
    plain: list[tuple[tuple[str, ...], Callable[[RunningFleet], list[Figure]]]] = [
        (("F14", "F17"), submission), (("F7",), controller_killed), (("F9",), gang_lost),
        (("F4",), to_a_free_node), (MARKET, market), (("F8",), vm_lost),
    ]  # fmt: skip
    for runs, more in ((plain, ""), ([(USERS, shares)], fleet_of(asked.nodes))):
        due = [run for names, run in runs if wanted.intersection(names)]
        if due:
            with (
                tempfile.TemporaryDirectory(prefix="bench-") as folder,
                watched(Path(folder) / "g", asked.nodes, more) as fleet,
            ):
                for run in due:
                    note(run(fleet))


if __name__ == "__main__":
    main()
