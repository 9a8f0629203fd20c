"""Figures of many lives, for the terminal and for docs/reliability.md."""

from collections import Counter

from tests.kit.figures import commit, record_figures


def replay(life):
    """Return what a violation prints: seed, commit, and the one command that replays it."""
    return (
        f"seed {life.seed} at {commit()}: {life.problem}\n"
        f"  replay: python -m tests.simulation {life.seed} --trace trace.txt"
    )


def figures(lives, wall):
    """Return the figures of *lives* as pairs of name and value."""
    events = sum((life.events for life in lives), Counter())
    bad = [str(life.seed) for life in lives if life.problem]
    settle = sorted(life.settle for life in lives if not life.problem) or [0.0]
    return {
        "Seeds, each a whole life through the official clients": f"{len(lives):,}",
        "Violations of I1 to I8": f"{len(bad)}" + (f" (seeds {', '.join(bad[:40])})" if bad else ""),
        "Virtual days (with faults / in all)": f"{sum(x.rough_hours for x in lives) / 24:,.0f} / "
        f"{sum(x.hours for x in lives) / 24:,.0f}",
        "TPU days": f"{sum(x.tpu_hours for x in lives) / 24:,.1f}",
        "Deployments, commands started": f"{sum(x.deployments for x in lives):,}, "
        f"{sum(x.commands for x in lives):,}",
        "Passes of the loop, requests": f"{sum(x.passes for x in lives):,}, {sum(x.calls for x in lives):,}",
        "Faults injected": f"{sum(events.values()):,}",
        **{f"- {name.replace('_', ' ')}": f"{count:,}" for name, count in events.most_common()},
        "Minutes to the desired state after the last fault (median / longest)": (
            f"{_middle(settle) / 60:.0f} / {settle[-1] / 60:.0f}"
        ),
        "Wall time, processor time of a seed": f"{wall:.0f} s, "
        f"{sum(x.seconds for x in lives) / max(1, len(lives)):.2f} s",
    }


def _middle(values):
    return values[len(values) // 2]


def report(lives, wall):
    """Print the figures, and put them into the document if one is named."""
    seeds = f"{lives[0].seed}:{lives[-1].seed + 1}"
    about = (
        "Real engine, real adapters, official clients, virtual time; see tests/simulation. Written by\n"
        f"`python -m tests.simulation --seeds {seeds}`."
    )
    record_figures("simulation", "Lives from seeds", about, figures(lives, wall))
