"""
What must hold in every run, each as a pure function: it returns what is wrong, or nothing.

The numbers are those of docs/reliability.md. Nothing here knows how a run is simulated, so the same
functions judge runs, long and wide runs, and scenarios.
"""

from dataclasses import dataclass

from orchestrator.domain import names
from orchestrator.domain.plan import Kind, Outcome
from orchestrator.engine.reconcile.observe import OWN_BUG

CREATES_AN_HOUR = 75
"""Asks for one kind in one zone that a process may make in an hour: the longest back-off is a minute."""
FRESH_STARTS = 12
"""Asks more that each start of a process allows in that hour: back-off begins again."""
SETTLE = 15 * 60.0
"""Seconds from the end of all faults to the desired state, on top of what a create takes."""


@dataclass(frozen=True)
class Live:
    """Name one thing that costs money now, with its labels."""

    kind: str
    name: str
    zone: str
    labels: dict


def own_fault(text):
    """Return *text* if it reports an error of ours that a pass has survived: it would hide what it broke."""
    return f"an error of the code: {text}" if OWN_BUG in text else ""


class Violation(AssertionError):  # noqa: N818 - a broken promise, not a mistake of the caller
    """An invariant does not hold."""


def i1_findable(live, deployment, zones):
    """I1 no leak: what is billed carries the deployment's label, in a zone that a fresh controller looks at."""
    lost = [
        f"{one.kind} {one.name} in {one.zone}"
        for one in live
        if one.labels.get(names.DEPLOYMENT_LABEL) != deployment or one.zone not in zones
    ]
    return f"no deletion would find {', '.join(lost)}" if lost else ""


def i1_gone(live):
    """I1 no leak: after `down` said that all is gone, nothing is there or comes."""
    remaining = ", ".join(f"{one.kind} {one.name} in {one.zone}" for one in live)
    return f"left after down: {remaining}" if remaining else ""


def i2_one_writer(writers, zombie_writes):
    """
    I2 no double job: one incarnation's worker is one machine, and an older incarnation writes no more.

    *writers* maps (deployment, incarnation, worker) to the nodes that wrote.
    """
    doubles = {key: nodes for key, nodes in writers.items() if len(nodes) > 1}
    if doubles:
        return f"two machines wrote as one: {doubles}"
    return f"written by an older incarnation: {zombie_writes}" if zombie_writes else ""


def i3_never_back(before, after):
    """I3 no lost checkpoint: the step of the newest complete checkpoint never decreases."""
    if before is None or (after is not None and after >= before):
        return ""
    return f"the newest complete checkpoint was step {before} and is step {after}"


def i4_settled(ended, live, running, expected):
    """
    I4 convergence: an ended deployment keeps nothing that runs, a living one has one TPU with its job.

    *running* and *expected* are how many workers train and should.
    """
    machines = [one for one in live if one.kind in {"TPU", "VM"}]
    if ended:
        return f"ended, but there are {[one.name for one in machines]}" if machines else ""
    tpus = [one.name for one in machines if one.kind == "TPU"]
    if len(tpus) != 1:
        return f"{len(tpus)} TPUs: {tpus}"
    return f"{running} of {expected} workers train" if running < expected else ""


def i4_stable(mutations):
    """I4 convergence: a settled deployment is left alone."""
    return f"calls although nothing happened: {mutations}" if mutations else ""


def i5_bounded(times, now, starts):
    """
    I5 bounded retry: the asks of one kind in one zone within the last hour stay under the cap.

    *starts* is how many processes were started in that hour.
    """
    recent = sum(1 for at in times if now - at < 3600)
    cap = CREATES_AN_HOUR + FRESH_STARTS * starts
    return f"{recent} asks within an hour, allowed are {cap}" if recent > cap else ""


def i6_within_budget(usd, budget, usd_hour, seconds):
    """
    I6 bounded spend: the bill stays below budget plus what runs on for *seconds*.

    That is a look, a deletion, and the time for which nobody could look.
    """
    most = budget + usd_hour * seconds / 3600 + 0.01
    return f"spent {usd:.2f} USD, allowed are {most:.2f} of {budget} USD" if usd > most else ""


def i7_sure(changes, unseen):
    """
    I7 no false "gone": nothing is changed of a kind that was not observed completely in this very pass.

    *unseen* holds the kinds whose last look met an error, a time-out or a partial answer.
    """
    blind = [c for c in changes if c.kind in unseen and c.kind is not Kind.JOB]
    return f"changed on an incomplete view: {blind}" if blind else ""


def i7_healthy(node, good_since, pass_began):
    """I7 no false "gone": the newest node is not replaced while it works, and has since before the look."""
    if good_since is None or good_since >= pass_began:
        return ""
    return f"{node} is replaced although it works since {pass_began - good_since:.0f} s before the look"


def i8_truly(reported, really):
    """I8 no false "done": reported only when every worker of one incarnation has reached the target."""
    return "said to be done, but it is not" if reported and not really else ""


def i8_saved(outcome, complete, retained):
    """I8 no end without what was trained: done with a complete checkpoint, uncommitted with every file uploaded."""
    if outcome is Outcome.DONE and not complete:
        return "said to be done, and the bucket holds no complete checkpoint"
    missing = outcome is Outcome.UNCOMMITTED and not retained
    return "said to be uncommitted, and files are missing in the bucket" if missing else ""
