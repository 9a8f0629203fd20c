"""
Show the verdict of a rehearsal.
"""

from orchestrator.core.verdict import Verdict


def verdict_lines(verdict: Verdict) -> list[str]:
    """
    Return the verdict as lines of text.
    """
    lines = ["", f"Verdict: {_headline(verdict)}"]
    for comeback in verdict.comebacks:
        word = "resumed" if comeback.resumed else "LOST"
        redone = "" if comeback.redone is None else f", {comeback.redone} steps redone"
        seconds = "" if comeback.seconds is None else f", {comeback.seconds:.1f} s to the next step"
        lines.append(f"  {comeback.kill.value:<8}{word:<8}{comeback.why}{redone}{seconds}")
    lines.append(f"  loss    {_loss(verdict)}")
    lines.append(f"  torn checkpoints moved aside: {verdict.torn}")
    if verdict.seconds_lost is not None:
        lines.append(f"  longer than the unbroken run by {verdict.seconds_lost:.0f} s")
    return [*lines, *(f"  to do: {text}" for text in verdict.advice)]


def _headline(verdict: Verdict) -> str:
    if verdict.survives:
        return "it survives"
    proven = verdict.done and verdict.missed and all(c.resumed for c in verdict.comebacks)
    return "not proven, the job was over too soon" if proven else "it does NOT survive"


def _loss(verdict: Verdict) -> str:
    if verdict.loss is None:
        return "not reported; write it to $TPUCTL_PROGRESS_FILE to have it compared"
    if verdict.unbroken_loss is None:
        return f"{verdict.loss:.6g}, not compared"
    word = "the same as" if verdict.same_loss else "DIFFERENT from"
    return f"{verdict.loss:.6g}, {word} the unbroken run's {verdict.unbroken_loss:.6g}"
