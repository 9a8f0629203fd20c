"""Figures of many runs, for the terminal and for docs/reliability.md."""

from collections import Counter

from tests.kit.figures import commit, record_figures


def replay(run):
    """Return what a violation prints: seed, commit, and the one command that replays it."""
    return (
        f"seed {run.seed} at {commit()}: {run.violation}\n"
        f"  replay: python -m tests.simulation {run.seed} --trace trace.txt"
    )


def figures(runs, wall):
    """Return the figures of *runs* as pairs of name and value."""
    events = sum((run.events for run in runs), Counter())
    bad = [str(run.seed) for run in runs if run.violation]
    settle = sorted(run.settle for run in runs if not run.violation) or [0.0]
    return {
        "Seeds, each a whole run through the official clients": f"{len(runs):,}",
        "Violations of I1 to I8": f"{len(bad)}" + (f" (seeds {', '.join(bad[:40])})" if bad else ""),
        "Virtual days (with faults / in all)": f"{sum(x.rough_hours for x in runs) / 24:,.0f} / "
        f"{sum(x.hours for x in runs) / 24:,.0f}",
        "TPU days": f"{sum(x.tpu_hours for x in runs) / 24:,.1f}",
        "Deployments, commands started": f"{sum(x.deployments for x in runs):,}, "
        f"{sum(x.commands for x in runs):,}",
        "Passes of the loop, requests": f"{sum(x.passes for x in runs):,}, {sum(x.calls for x in runs):,}",
        "Faults injected": f"{sum(events.values()):,}",
        **{f"- {name.replace('_', ' ')}": f"{count:,}" for name, count in events.most_common()},
        "Minutes to the desired state after the last fault (median / longest)": (
            f"{_middle(settle) / 60:.0f} / {settle[-1] / 60:.0f}"
        ),
        "Wall time, processor time of a seed": f"{wall:.0f} s, "
        f"{sum(x.seconds for x in runs) / max(1, len(runs)):.2f} s",
    }


def _middle(values):
    return values[len(values) // 2]


def report(runs, wall):
    """Print the figures, and put them into the document if one is named."""
    seeds = f"{runs[0].seed}:{runs[-1].seed + 1}"
    about = (
        "Real engine, real adapters, official clients, virtual time; see tests/simulation. Written by\n"
        f"`python -m tests.simulation --seeds {seeds}`."
    )
    record_figures("simulation", "Runs from seeds", about, figures(runs, wall))
