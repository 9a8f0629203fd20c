"""Describe a job's progress in a few words of its status."""

from orchestrator.contract.phase import ENDS
from orchestrator.domain.plan import Outcome
from orchestrator.domain.status import FROM_CLOUD, DeploymentState, DeploymentStatus, WorkerStatus
from orchestrator.domain.text.amounts import progress_percent, rate_text, span_text
from orchestrator.domain.text.hints import LOAD_CHECKPOINT, MEND_JOB, after_end, trains_on
from orchestrator.domain.text.phase_words import phase_words
from orchestrator.planning.failing import JOB_FAILS

AGAIN = {"run": "runs again", "restore": "starts again"}
"""Phases of a job that fails again and again."""
NO_STEP = "no step reported yet"
RESUMES = ", in the bucket: the job resumes from it"


def state_text(status: DeploymentStatus) -> str:
    """Return the state's phrase and what it means for the job, or the reason of an end."""
    more = _consequence(status) or (status.message if status.outcome else "")
    # Between two failures the job runs as any other.
    if status.failing_message and not status.outcome:
        return f"{JOB_FAILS}: {status.failing_message}"
    if raised := _raised_target(status):
        more = f"{more}, at step {_reached(status)}; job.target_steps is {raised} now"
    return f"{status.state.phrase}: {more}" if more else status.state.phrase


def _consequence(status: DeploymentStatus) -> str:
    step = status.resumes_from
    resumes = "begins again, since nothing was saved" if step is None else f"resumes from step {step}"
    return {
        DeploymentState.PREEMPTING: "the job saves its work",
        DeploymentState.TPU_LOST: "no new TPU is requested, so the job does not resume",
        DeploymentState.NO_TPU: "no TPU is requested, so the job does not start",
        DeploymentState.REPLACING: f"the job {resumes}",
        DeploymentState.RESUMING: "" if step is None else f"from step {step}",
    }.get(status.state, "")


def job_text(status: DeploymentStatus) -> str:
    """Return the progress of the job by its slowest worker, "" before the first report."""
    slowest = _slowest(status)
    if slowest is None:
        return ""
    loss = training_loss_text(slowest.loss, slowest.loss_step)
    if status.state.without_tpu:
        return ", ".join(filter(None, ("last report", step_text(status) or NO_STEP, loss)))
    if stopped_with_tpu(status):
        at = step_text(status)
        return ", ".join(filter(None, (f"stopped at {at}" if at else "stopped", loss)))
    words = phase_words(slowest.phase)
    parts = [AGAIN.get(slowest.phase, words) if status.failing_message else words, step_text(status), loss]
    if slowest.phase == "run" and slowest.steps_per_second:
        parts.append(rate_text(slowest.steps_per_second))
    return ", ".join(part for part in [*parts, eta_text(status)] if part)


def stopped_with_tpu(status: DeploymentStatus) -> bool:
    """Return whether the deployment has ended and no TPU is left, while the last report is of a job at work."""
    slowest, tpus = _slowest(status), [row.state for row in status.resources if row.kind == "tpu"]
    ended = slowest is None or slowest.phase in {phase.value for phase in ENDS}
    return bool(status.outcome) and not ended and tpus == ["absent"]


def training_loss_text(loss: float | None, at: int | None) -> str:
    """Return the loss for people, with the step *at* that it belongs to if that is an earlier one; "" without."""
    return "" if loss is None else f"loss {loss:.4g}" + ("" if at is None else f" (at {at})")


def worker_text(worker: WorkerStatus, *, lost: bool, failing: str = "") -> str:
    """
    Return a worker's phase, step, loss, checkpoint, last heartbeat and message; *lost*: its machine is gone.

    What is in *failing*, how the job fails, is not said again.
    """
    does = AGAIN.get(worker.phase, phase_words(worker.phase)) if failing else phase_words(worker.phase)
    parts = [f"last report: {does}" if lost else does]
    if worker.step is not None:
        parts.append(f"step {worker.step}")
    if worker.loss is not None:
        parts.append(training_loss_text(worker.loss, worker.loss_step))
    if worker.checkpoint_step is not None:
        age = worker.checkpoint_age_s
        parts.append(
            f"checkpoint at {'save' if worker.checkpoint_counted else 'step'} {worker.checkpoint_step}"
            + ("" if age is None else f" (committed {span_text(age)} ago)")
        )
    if worker.xla_programs_restored and worker.xla_programs_compiled:
        parts.append(f"{worker.xla_programs_compiled} XLA programs compiled again")
    parts.append(f"last heartbeat {span_text(worker.heartbeat_age_s or 0.0)} ago")
    if worker.message and worker.message not in failing:
        parts.append(worker.message)
    return ", ".join(parts)


def phase_text(status: DeploymentStatus) -> str:
    """Return what the slowest worker is at, "" before the first report."""
    slowest = _slowest(status)
    return slowest.phase if slowest else ""


def step_text(status: DeploymentStatus) -> str:
    """Return the step of the slowest worker, with the share of the last one if that is known; "" without a step."""
    slowest = _slowest(status)
    if slowest is None or slowest.step is None:
        return ""
    target = status.target_steps or slowest.reported_target_steps
    if not target or _raised_target(status):
        # A job that is done has no part left: its end was that of the file that it ran with.
        return f"step {slowest.step}"
    share = f" of {target} ({progress_percent(slowest.step / target)})"
    return f"step {slowest.step}{share}"


def eta_text(status: DeploymentStatus) -> str:
    """Return how long the job has still to run, "" if no worker can tell."""
    if not status.workers or not status.eta_s:
        return ""
    return f"{span_text(status.eta_s)} left"


def _slowest(status: DeploymentStatus) -> WorkerStatus | None:
    return min(status.workers, key=lambda w: (w.step or 0, w.checkpoint_step or 0), default=None)


def share_done(status: DeploymentStatus) -> float | None:
    """Return the finished part of the job's steps, from 0 to 1, by its slowest worker; None if unknown."""
    steps = [w.step for w in status.workers if w.step is not None]
    target = status.target_steps or next(
        (w.reported_target_steps for w in status.workers if w.reported_target_steps), 0
    )
    return min(1.0, min(steps) / target) if steps and target and not _raised_target(status) else None


def _reached(status: DeploymentStatus) -> int | None:
    """Return the step that every worker has reached or saved, None if none tells it."""
    slowest = _slowest(status)
    if slowest is None:
        return None
    saved = None if slowest.checkpoint_counted else _newest_of_all(status)
    return max((step for step in (slowest.step, saved) if step is not None), default=None)


def _raised_target(status: DeploymentStatus) -> int | None:
    """Return the file's last step if it lies beyond that of a job that is done, else None."""
    reached, target = _reached(status), status.target_steps
    # The outcome alone does not tell whose report this is: a machine that was lost before has said "run" last.
    done = status.outcome == Outcome.DONE.value and all(w.phase == "done" for w in status.workers)
    return target if done and target and reached is not None and reached < target else None


def checkpoint_text(status: DeploymentStatus, *, step: str = "step ") -> str:
    """
    Return the newest checkpoint with a part of every worker and its age, "" without one.

    Of a job without a running TPU that no worker reports it is the one from which the job goes on.
    """
    found = _newest_of_all(status)
    if found is None and status.resumes_from is not None:
        return f"{step}{status.resumes_from}" + (RESUMES if step else "")
    if found is None:
        unreported = status.checkpoint_step is not None and not status.workers
        return f"{step}{status.checkpoint_step}{', in the bucket' if step else ''}" if unreported else ""
    # If that is older than what each worker has committed last, no worker reports its age.
    ages = [w.checkpoint_age_s for w in status.workers if w.checkpoint_step == found]
    known = [age for age in ages if age is not None]
    age = max(known) if known and len(known) == len(ages) else None
    return saved_text(status, step=step) + (
        "" if age is None else f", {'committed ' if step else ''}{span_text(age)} ago"
    )


def saved_text(status: DeploymentStatus, *, step: str = "step ") -> str:
    """Return the newest checkpoint with a part of every worker, as `step 110` or `save 3`; "" without one."""
    found = _newest_of_all(status)
    if found is None:
        return ""
    return f"{'save ' if status.workers[0].checkpoint_counted else step}{found}"


def _newest_of_all(status: DeploymentStatus) -> int | None:
    """Return the number of that checkpoint; None while a worker has committed none."""
    if not status.workers or any(w.checkpoint_step is None for w in status.workers):
        return None
    return status.checkpoint_step


def first_command(status: DeploymentStatus, cure: str) -> str:
    """Return what to run so that the changes to come are made: *cure* starts a watcher; "" if one runs."""
    # What was refused for good, or for want of quota, comes of no watcher.
    if status.next_pass_in_s is not None or status.refusal_hint:
        return ""
    idle = ", ".join(row.name for row in status.resources if row.kind == "tpu" and row.name not in {"-", "?"})
    if status.outcome and idle:
        return f"tpuctl down   (the job is over; {idle} is idle and costs until then)"
    return cure


def next_pass_text(status: DeploymentStatus) -> str:
    """Return when the next pass comes, "" without a watcher; changes that a watcher publishes are being made."""
    when, changes = status.next_pass_in_s, bool(status.next_changes)
    if when is None:
        return ""
    asked = status.source == FROM_CLOUD
    if when == 0 and not changes and status.watch_poll_s:
        # The pass is late, or has brought nothing new, which a watcher publishes once a minute only.
        return f"within {span_text(status.watch_poll_s)}"
    if when < 1 or (changes and not asked):
        return "now"
    # The cloud does not tell when the watcher made its last pass.
    return f"{'within' if asked else 'in'} {span_text(when)}"


def advice_texts(status: DeploymentStatus) -> tuple[str, ...]:
    """Return what only a person can do for a deployment that goes on: mend the job, or cure a refusal."""
    if status.outcome or not status.up:
        return ()
    if status.failing_message:
        return (MEND_JOB,)
    if not status.refusal_hint:
        return ()
    again = "then `tpuctl up` asks again" if status.next_pass_in_s is None else "the watcher asks again"
    return status.refusal_hint, f"{again}; `tpuctl down` deletes what is billed meanwhile"


def running_texts(status: DeploymentStatus, cure: str) -> tuple[str, ...]:
    """Return what to do while a job runs and nothing is waited for; *cure* starts the watcher that it lacks."""
    run = (f"run: {cure}",) if cure else ()
    if status.ignored_message:
        return (*run, LOAD_CHECKPOINT)
    if status.failing_message:
        return run
    wait = next_pass_text(status)
    checks = f"; the watcher checks again {wait}" if wait else ""
    return run or (f"nothing to do while the job runs{checks}",)


def start_text(status: DeploymentStatus) -> str:
    """Return how a deployment that is not up goes on."""
    if status.state is DeploymentState.REMAINING:
        return "`tpuctl down` deletes the machines that are left, `tpuctl up` starts the job again"
    if status.state is DeploymentState.DELETED:
        return "`tpuctl up` starts over, with a cost from 0; `tpuctl cost` keeps this sum"
    if status.state is DeploymentState.DOWN:
        return "`tpuctl up` goes on; `tpuctl down --delete-data` deletes the data in the bucket too"
    return "`tpuctl up` starts it"


def end_texts(status: DeploymentStatus) -> tuple[str, ...]:
    """Return what the user may do after the end, if anything is left."""
    there = {row.kind for row in status.resources if row.state != "absent"}
    fetches = {
        "done": "`tpuctl checkpoints fetch` copies the model",
        "uncommitted": "`tpuctl checkpoints fetch --uncommitted` copies what the job saved",
    }
    outcomes = {outcome.value: outcome for outcome in Outcome}
    unhappy = after_end(outcomes.get(status.outcome or ""), status.limit_reached)
    fetch = fetches.get(status.outcome or "")
    texts = [f"{fetch} to this computer"] if fetch and "bucket" in there else []
    texts += [unhappy] if unhappy else []
    if raised := _raised_target(status):
        texts.append(trains_on(raised))
    if there - {"bucket"}:
        texts.append("`tpuctl down` deletes the machines that are left; the bucket stays")
    elif texts and not unhappy:
        # Not after a failure, which the next `up` can go on from.
        texts.append("`tpuctl down --delete-data` deletes the bucket and all in it")
    return tuple(texts)
