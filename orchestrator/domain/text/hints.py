"""Hints that several outputs give."""

from orchestrator.domain.plan import Outcome

MEND_JOB = "`tpuctl logs` shows why the job fails; fix it, then: tpuctl push"
FIX_CAUSE = "fix the cause that the refusal names"
LOAD_CHECKPOINT = (
    "let the script load the newest checkpoint and its step from $TPUCTL_CHECKPOINT_DIR (`tpuctl rehearse` shows "
    "whether it does), then: tpuctl push"
)
OWN_STEPS = "and the number of steps in your program if it has one"
"""What has to be raised beside `job.target_steps`: a program that ends at its own number trains no further."""
AFTER_END = {
    Outcome.FAILED: "`tpuctl logs` shows why; fix it, then: tpuctl up",
    Outcome.LIMIT_REACHED: "raise watch.budget_usd or watch.ttl, then: tpuctl up",
    Outcome.REFUSED: "choose tpu.zones in the bucket's region, or another bucket.name",
}
"""How a deployment goes on after an unhappy end."""


def after_end(outcome: Outcome | None, limit_reached: str) -> str:
    """Return how a deployment goes on after an unhappy end, with the one limit that ended it; "" after another."""
    if outcome is Outcome.LIMIT_REACHED and limit_reached:
        return f"raise {limit_reached}, then: tpuctl up"
    return AFTER_END.get(outcome, "") if outcome else ""


def trains_on(target: int) -> str:
    """Return how a job that is done trains on to *target*, which its file names since."""
    return (
        f"`tpuctl up` trains on to step {target}; raise the number of steps in your program too if it has one"
    )
