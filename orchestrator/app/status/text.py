"""Describe a job's progress in a few words of its status."""

from orchestrator.domain.status import DeploymentStatus, WorkerStatus
from orchestrator.domain.text.amounts import rate_text, span_text


def job_text(status: DeploymentStatus) -> str:
    """Return the progress of the job by its slowest worker, "" before the first report."""
    slowest = _slowest(status)
    if slowest is None:
        return ""
    parts = ["runs" if slowest.phase == "run" else slowest.phase, step_text(status)]
    if slowest.loss is not None:
        parts.append(f"loss {slowest.loss:.4g}")
    if slowest.phase == "run" and slowest.rate:
        parts.append(rate_text(slowest.rate))
    return ", ".join(part for part in [*parts, eta_text(status)] if part)


def phase_text(status: DeploymentStatus) -> str:
    """Return what the slowest worker is at, "" before the first report."""
    slowest = _slowest(status)
    return slowest.phase if slowest else ""


def step_text(status: DeploymentStatus) -> str:
    """Return the step of the slowest worker, with the share of the last one if that is known; "" without a step."""
    slowest = _slowest(status)
    if slowest is None or slowest.step is None:
        return ""
    target = status.target_steps or slowest.total_steps
    share = f" of {target} ({slowest.step / target:.0%})" if target else ""
    return f"step {slowest.step}{share}"


def eta_text(status: DeploymentStatus) -> str:
    """Return how long the job has still to run, "" if no worker can tell."""
    if not status.workers or status.eta_s is None:
        return ""
    return f"{span_text(status.eta_s)} left"


def _slowest(status: DeploymentStatus) -> WorkerStatus | None:
    return min(status.workers, key=lambda w: (w.step or 0, w.checkpoint or 0), default=None)


def share_done(status: DeploymentStatus) -> float | None:
    """Return the finished part of the job's steps, from 0 to 1, by its slowest worker; None if unknown."""
    steps = [w.step for w in status.workers if w.step is not None]
    target = status.target_steps or next((w.total_steps for w in status.workers if w.total_steps), 0)
    return min(1.0, min(steps) / target) if steps and target else None


def checkpoint_text(status: DeploymentStatus, *, step: str = "step ") -> str:
    """Return the newest checkpoint with a part of every worker and its age, "" without one."""
    found = _newest_of_all(status)
    if found is None:
        return ""
    # If that is older than what each worker has committed last, no worker reports its age.
    ages = [w.checkpoint_age_s for w in status.workers if w.checkpoint == found]
    known = [age for age in ages if age is not None]
    age = max(known) if known and len(known) == len(ages) else None
    return saved_text(status, step=step) + ("" if age is None else f", {span_text(age)} old")


def saved_text(status: DeploymentStatus, *, step: str = "step ") -> str:
    """Return the newest checkpoint with a part of every worker, as `step 110` or `save 3`; "" without one."""
    found = _newest_of_all(status)
    if found is None:
        return ""
    return f"{'save ' if status.workers[0].checkpoint_counted else step}{found}"


def _newest_of_all(status: DeploymentStatus) -> int | None:
    """Return the number of that checkpoint; None while a worker has committed none."""
    if not status.workers or any(w.checkpoint is None for w in status.workers):
        return None
    return status.checkpoint
