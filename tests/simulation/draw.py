"""From one integer everything: what is deployed, how long it runs, and how much goes wrong."""

from dataclasses import dataclass, field, replace
from random import Random

HOUR = 3600.0
SLICES = (
    # type, runtime, zones of one region that have it
    ("v2-8", "tpu-ubuntu2204-base", ("us-central1-b", "us-central1-c", "us-central1-f")),
    ("v3-8", "tpu-ubuntu2204-base", ("us-central1-a", "us-central1-b", "us-central1-f")),
    ("v5litepod-8", "v2-alpha-tpuv5-lite", ("us-east5-a", "us-east5-b", "us-east5-c")),
    ("v5litepod-16", "v2-alpha-tpuv5-lite", ("europe-west4-b", "europe-west4-a")),
)
FAR = {
    "v2-8": ("europe-west4-a", "asia-east1-c"),
    "v3-8": ("europe-west4-a",),
    "v5litepod-8": ("us-west4-a", "us-central1-a"),
    "v5litepod-16": ("us-east5-a", "us-west4-a"),
}
"""Zones of other regions that have the type too."""
FLEX_ZONE = "us-west4-a"
"""A zone that is known to offer flex-start TPUs of v5e."""
PASSES = 130
"""Looks that all controllers of one run make about: short runs look often, long ones seldom."""

DENSE, DENSE_HOURS = 12, 6
"""How often more machines are lost than in reality, and in how many hours at most."""


@dataclass(frozen=True)
class Rates:
    """How often what goes wrong: shares of calls, of passes, or events per TPU and hour."""

    api_error: float = 0.0
    lost_answer: float = 0.0
    slow: float = 0.0
    stuck: float = 0.0
    stale: float = 0.0
    truncated: float = 0.0
    ssh: float = 0.0
    kill: float = 0.0
    pause: float = 0.0
    jump: float = 0.0
    rival: float = 0.0
    preemption: float = 0.0
    trouble: float = 0.0


@dataclass(frozen=True)
class JobCase:
    """
    A training job: seconds of a step, seconds between saves, steps in all (None: it never ends).

    With *flat* it saves under names that no format knows, so that nothing of it is ever committed.
    """

    step_seconds: float
    save_pause: float
    target: int | None
    crashes: float
    hopeless: bool
    flat: bool = False


@dataclass(frozen=True)
class DeploymentCase:
    """
    One deployment: overrides of its spec, its job, and when its owner takes it down (hours, None: never).

    At *edit_at* the owner changes the file to *edited* and runs `up`.
    """

    name: str
    spec: dict = field(hash=False)
    job: JobCase
    down_at: float | None
    delete_data: bool
    up_again: bool
    edit_at: float | None
    edited: dict = field(hash=False)


@dataclass(frozen=True)
class RunCase:
    """One whole run."""

    seed: int
    hours: float
    realistic: bool
    retries: bool
    quota: int | None
    deployments: tuple[DeploymentCase, ...]
    rates: Rates


def draw(seed):
    """Return the case of *seed*."""
    r = Random(f"case {seed}")
    hours = r.choices((r.uniform(2, 3), r.uniform(3, 8), r.uniform(8, 48)), (78, 19, 3))[0]
    count = r.choices((1, 2, 3, 4), (60, 22, 12, 6))[0]
    shortest = min(300.0, max(15.0, hours * HOUR * count / PASSES))
    slice_ = r.choice(SLICES)
    steps = {"race": _raced, "queue": _queued, "far": _far, "due": _due, "resort": _resort, "flex": _flex}
    more = [(step, Random(f"{name} {seed}")) for name, step in steps.items()]
    deployments = []
    for n in range(count):
        case = _deployment(r, f"sim{n}", hours, shortest, slice_)
        for step, lots in more:
            case = step(case, lots)
        deployments.append(case)
    if seed % 3 == 1:
        deployments = [_shared(case) for case in deployments]
    quota = r.choice((None, None, None, count * 16, count * 16 + 16)) if slice_[0] == "v5litepod-16" else None
    return RunCase(
        seed, hours, r.random() < 0.7, r.random() < 0.3, quota, tuple(deployments), _rates(r, hours)
    )


def _deployment(r, name, hours, shortest, slice_):
    kind, runtime, zones = slice_
    chosen = r.sample(zones, r.randint(1, len(zones)))
    vm = r.choice(("none", "spot", "on-demand"))
    spec = {
        "name": name,
        "tpu__type": kind,
        "tpu__runtime": runtime,
        "tpu__zones": chosen,
        "tpu__spot": r.random() < 0.9,
        "watch__poll": f"{min(300, int(r.uniform(shortest, shortest * 4)))}s",
        "watch__listen": f"{Random(f'listen {name} {hours}').choice((3, 5, 15, 60))}s",
        "job__failures": r.randint(1, 5),
    }
    if vm == "none":
        spec["vm"] = "none"
    else:
        spec["vm__spot"] = vm == "spot"
    if r.random() < 0.25:
        spec["watch__budget_usd"] = round(r.uniform(0.5, 12.0), 2)
    if r.random() < 0.1:
        spec["watch__ttl"] = f"{int(hours * r.uniform(0.4, 0.9) * 60)}m"
    step = r.uniform(1, 20)
    length = hours * HOUR * r.uniform(0.2, 1.5)
    job = JobCase(
        step, r.uniform(120, 1500), None if r.random() < 0.4 else max(1, int(length / step)),
        r.choice((0.0, 0.0, 0.02, 0.1)), r.random() < 0.06,
        # From a figure that is drawn already: another draw would change every other run.
        flat=int(step * 1e6) % 9 == 0,
    )  # fmt: skip
    down = r.choices((None, hours, hours * r.uniform(0.2, 0.8)), (50, 25, 25))[0]
    edit = hours * r.uniform(0.1, 0.9) if r.random() < 0.2 else None
    edited = {**spec, "tpu__zones": r.sample(zones, r.randint(1, len(zones)))}
    return DeploymentCase(name, spec, job, down, r.random() < 0.5, r.random() < 0.5, edit, edited)


def _shared(case):
    """Let the deployments of a region share a bucket that somebody else has made, each in a folder of its own."""
    region = case.spec.get("bucket__location") or case.spec["tpu__zones"][0].rpartition("-")[0]
    place = {"bucket__name": f"shared-{region}", "bucket__adopt": True, "bucket__prefix": f"runs/{case.name}"}
    return replace(case, spec={**case.spec, **place}, edited={**case.edited, **place})


def _raced(case, r):
    """Let one of four deployments ask in all of its zones at once."""
    if r.random() >= 0.25:
        return case
    race = {"tpu__strategy": "race"}
    return replace(case, spec={**case.spec, **race}, edited={**case.edited, **race})


def _queued(case, r):
    """Let one of five deployments ask through the queue, and some of these change their mind."""
    if r.random() >= 0.2:
        return case
    queue = {"tpu__request": "queued"}
    if r.random() < 0.5:
        queue["tpu__wait"] = f"{int(r.uniform(5, 120))}m"
    edited = {} if r.random() < 0.3 else queue
    return replace(case, spec={**case.spec, **queue}, edited={**case.edited, **edited})


def _far(case, r):
    """Let one of five deployments ask in zones of several regions; its bucket stays in the first one's."""
    far = FAR[case.spec["tpu__type"]]
    lots = r.random(), r.sample(far, r.randint(1, len(far))), r.random(), r.random()
    if lots[0] >= 0.2:
        return case
    zones, last = [*case.spec["tpu__zones"], *lots[1]], [*case.edited["tpu__zones"], *lots[1]]
    if lots[2] < 0.3:
        last.reverse()
    wide = {"tpu__across_regions": True, "bucket__location": zones[0].rpartition("-")[0]}
    if case.spec.get("tpu__strategy") == "race" and lots[3] < 0.5:
        wide["tpu__strategy"] = "race-regions"
    return replace(
        case,
        spec={**case.spec, **wide, "tpu__zones": zones},
        edited={**case.edited, **wide, "tpu__zones": last},
    )


def _due(case, r):
    """Let one of four deployments whose job ends have a deadline, which may be too early."""
    share = r.uniform(0.8, 3.0) if r.random() < 0.25 else 0.0
    if not share or case.job.target is None or "watch__ttl" in case.spec:
        return case
    work = case.job.target * case.job.step_seconds
    due = {"watch__deadline": f"{max(5, int(work * share / 60))}m", "job__target_steps": case.job.target}
    return replace(case, spec={**case.spec, **due}, edited={**case.edited, **due})


def _resort(case, r):
    """Let every other deployment with a deadline try flex-start first, half of v5e where it is offered."""
    raced = "tpu__strategy" in case.spec or "tpu__strategy" in case.edited
    if (
        r.random() >= 0.5
        or raced
        or "watch__deadline" not in case.spec
        or not case.spec.get("tpu__spot", True)
    ):
        return case
    resort = {"watch__last_resort": "flex-start"}
    if r.random() < 0.5:
        case = _in_flex_zones(case)
    return replace(case, spec={**case.spec, **resort}, edited={**case.edited, **resort})


def _flex(case, r):
    """Let one of six deployments of v5e have nothing but flex-start TPUs, for an hour or three each time."""
    hours, wanted = r.randint(1, 3), r.random() < 1 / 6
    foreign = {"tpu__strategy", "tpu__request", "watch__last_resort"} & {*case.spec, *case.edited}
    moved = _in_flex_zones(case)
    if not wanted or foreign or moved is case:
        return case
    flex = {"tpu__request": "flex-start", "tpu__spot": False, "tpu__max_run_duration": f"{hours}h"}
    return replace(moved, spec={**moved.spec, **flex}, edited={**moved.edited, **flex})


def _in_flex_zones(case):
    """Return the deployment in a zone that offers flex-start; the same one where its type has none near."""
    if not case.spec["tpu__type"].startswith("v5litepod") or "tpu__across_regions" in case.spec:
        return case
    zones = {"tpu__zones": [FLEX_ZONE]}
    return replace(case, spec={**case.spec, **zones}, edited={**case.edited, **zones})


def _rates(r, hours):
    """
    Draw each rate from its range; many runs have calm parts, so that each trouble also occurs alone.

    Machines are lost 0.1 to 4 times a TPU and day, which would leave short runs untouched: there it is
    DENSE times as often.
    """
    dense = min(1.0, DENSE_HOURS / hours)

    def some(most, share=0.6):
        return r.uniform(0, most) if r.random() < share else 0.0

    return Rates(
        api_error=some(0.3) * r.choice((0.3, 1.0)),
        lost_answer=some(0.1),
        slow=some(0.1),
        stuck=some(0.03),
        stale=some(0.1),
        truncated=some(0.1),
        ssh=some(0.3),
        kill=some(0.03),
        pause=some(0.03),
        jump=some(0.03),
        rival=some(0.03),
        preemption=r.uniform(0.1, 4) / 24 * max(1.0, DENSE * dense),
        trouble=some(1.0) * dense,
    )
