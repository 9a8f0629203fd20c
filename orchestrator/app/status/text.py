"""Describe a job's progress in a few words of its status."""

from collections.abc import Mapping
from typing import Any

from orchestrator.domain.text.amounts import rate_text, span_text


def job_text(body: Mapping[str, Any]) -> str:
    """Return the progress of the job by its slowest worker, "" before the first report."""
    slowest = _slowest(body)
    if slowest is None:
        return ""
    parts = [slowest["phase"], step_text(body)]
    if slowest["loss"] is not None:
        parts.append(f"loss {slowest['loss']:.4g}")
    if slowest["phase"] == "run" and slowest.get("rate"):
        parts.append(rate_text(slowest["rate"]))
    return ", ".join(part for part in [*parts, eta_text(body)] if part)


def phase_text(body: Mapping[str, Any]) -> str:
    """Return what the slowest worker is at, "" before the first report."""
    slowest = _slowest(body)
    return slowest["phase"] if slowest else ""


def step_text(body: Mapping[str, Any]) -> str:
    """Return the step of the slowest worker, with the share of the last one if that is known; "" without a step."""
    slowest = _slowest(body)
    if slowest is None or slowest["step"] is None:
        return ""
    target = body.get("target_steps") or slowest.get("total_steps")
    share = f" of {target} ({slowest['step'] / target:.0%})" if target else ""
    return f"step {slowest['step']}{share}"


def eta_text(body: Mapping[str, Any]) -> str:
    """Return how long the job has still to run, "" if no worker can tell."""
    if not body["workers"] or body.get("eta_s") is None:
        return ""
    return f"{span_text(body['eta_s'])} left"


def _slowest(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return min(body["workers"], key=lambda w: (w["step"] or 0, w["checkpoint"] or 0), default=None)


def share_done(body: Mapping[str, Any]) -> float | None:
    """Return the finished part of the job's steps, from 0 to 1, by its slowest worker; None if unknown."""
    steps = [w["step"] for w in body["workers"] if w["step"] is not None]
    target = body.get("target_steps") or next(
        (w["total_steps"] for w in body["workers"] if w.get("total_steps")), 0
    )
    return min(1.0, min(steps) / target) if steps and target else None


def checkpoint_text(body: Mapping[str, Any], *, step: str = "step ") -> str:
    """Return the newest checkpoint with a part of every worker and its age, "" without one."""
    found = _newest_of_all(body)
    if found is None:
        return ""
    # If that is older than what each worker has committed last, no worker reports its age.
    ages = [w["checkpoint_age_s"] for w in body["workers"] if w["checkpoint"] == found]
    age = max(ages) if ages and None not in ages else None
    return saved_text(body, step=step) + ("" if age is None else f", {span_text(age)} old")


def saved_text(body: Mapping[str, Any], *, step: str = "step ") -> str:
    """Return the newest checkpoint with a part of every worker, as `step 110` or `save 3`; "" without one."""
    found = _newest_of_all(body)
    if found is None:
        return ""
    return f"{'save ' if body['workers'][0].get('checkpoint_counted') else step}{found}"


def _newest_of_all(body: Mapping[str, Any]) -> int | None:
    """Return the number of that checkpoint; an earlier release published only what each worker committed last."""
    steps = [w["checkpoint"] for w in body["workers"]]
    if not steps or None in steps:
        return None
    number = body.get("checkpoint", min(steps))
    return None if number is None else int(number)
