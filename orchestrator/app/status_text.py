"""Describe a job's progress in a few words of its status."""

from typing import Any

from orchestrator.domain.amounts import rate_text, span_text


def job_text(body: dict[str, Any]) -> str:
    """Return the progress of the job by its slowest worker, "" before the first report."""
    if not body["workers"]:
        return ""
    slowest = min(body["workers"], key=lambda w: (w["step"] or 0, w["checkpoint"] or 0))
    parts = [slowest["phase"]]
    target = body.get("target_steps") or slowest.get("total_steps")
    if slowest["step"] is not None:
        share = f" of {target} ({slowest['step'] / target:.0%})" if target else ""
        parts.append(f"step {slowest['step']}{share}")
    if slowest["loss"] is not None:
        parts.append(f"loss {slowest['loss']:.4g}")
    if slowest["phase"] == "run" and slowest.get("rate"):
        parts.append(rate_text(slowest["rate"]))
    if body.get("eta_s") is not None:
        parts.append(f"{span_text(body['eta_s'])} left")
    return ", ".join(parts)


def share_done(body: dict[str, Any]) -> float | None:
    """Return the finished part of the job's steps, from 0 to 1, by its slowest worker; None if unknown."""
    steps = [w["step"] for w in body["workers"] if w["step"] is not None]
    target = body.get("target_steps") or next(
        (w["total_steps"] for w in body["workers"] if w.get("total_steps")), 0
    )
    return min(1.0, min(steps) / target) if steps and target else None


def checkpoint_text(body: dict[str, Any]) -> str:
    """Return the newest checkpoint with a part of every worker and its age, "" without one."""
    saved = [w for w in body["workers"] if w["checkpoint"] is not None]
    if not saved or len(saved) < len(body["workers"]):
        return ""
    least = min(saved, key=lambda w: w["checkpoint"])
    age = least["checkpoint_age_s"]
    kind = "save" if least.get("checkpoint_counted") else "step"
    return f"{kind} {least['checkpoint']}" + ("" if age is None else f", {span_text(age)} old")
