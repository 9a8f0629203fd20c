"""Say for people what a worker is doing; programs read the phase itself."""

from orchestrator.contract.phase import Phase

_WORDS = {
    Phase.BOOT: "machine boots",
    Phase.SETUP: "setup runs",
    Phase.RESTORE: "restoring the checkpoint",
    Phase.RUN: "runs",
    Phase.STOPPING: "asked to stop",
    Phase.ENDED: "ended, saving its files",
    Phase.UNCOMMITTED: "ended without a checkpoint",
    Phase.UNKNOWN: "state not known",
}
"""The words of `watch` (`cli/views/job_progress.py`), without those of a label; other phases are words."""


def phase_words(phase: str) -> str:
    """Return what a worker in *phase* does, as it stands behind `job` and `worker 0`."""
    known = {one.value: words for one, words in _WORDS.items()}
    return known.get(phase, phase)
