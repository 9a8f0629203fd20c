"""
Show how far the job is: one live line on a terminal, a plain line at each step of news otherwise.
"""

from orchestrator.cli.output import EventPrinter
from orchestrator.core.events import Event
from orchestrator.core.spec import Spec
from orchestrator.core.world import Heartbeat, Present
from orchestrator.engine.reconcile import Pass


class Progress:
    """
    Turn passes into progress events, at most one for each new step and checkpoint.
    """

    def __init__(self, printer: EventPrinter, spec: Spec) -> None:
        self._printer = printer
        self._spec = spec
        self._last: tuple[object, ...] = ()

    def show(self, result: Pass, usd: float) -> None:
        """
        Show one pass: what is waited for, or the step, checkpoint, loss and cost.
        """
        self._printer.waiting(result.plan.waiting, result.world.seen_at)
        beats = result.world.heartbeats.value if isinstance(result.world.heartbeats, Present) else ()
        if not beats:
            return
        slowest = min(beats, key=lambda b: b.step or 0)
        news = (slowest.phase, slowest.step, slowest.committed_step, slowest.incarnation)
        if news == self._last:
            return
        self._last = news
        self._printer(Event(result.world.seen_at, "progress", progress_text(slowest, self._spec, usd)))


def progress_text(beat: Heartbeat, spec: Spec, usd: float) -> str:
    """
    Return one line about the job.
    """
    target = f" of {spec.job.target_steps}" if spec.job.target_steps else ""
    parts = [f"job {beat.phase.value}"]
    if beat.step is not None:
        parts.append(f"step {beat.step}{target}")
    if beat.loss is not None:
        parts.append(f"loss {beat.loss:.4g}")
    if beat.committed_step is not None:
        parts.append(f"checkpoint {beat.committed_step}")
    parts.append(f"incarnation {beat.incarnation}")
    parts.append(f"{usd:.4f} USD")
    if beat.message:
        parts.append(beat.message)
    return ", ".join(parts)
