"""What to do about what a rehearsal has found."""

from enum import Enum


class Cause(Enum):
    """Name why a rehearsal did not end as it should."""

    SILENT = "nothing-seen"
    TOO_SHORT = "too-short"
    CRASHED = "crashed"
    EARLY = "ended-early"
    ENDED = "ended"
    UNCLAIMED = "unclaimed"
    UNSAVED = "nothing-saved"
    IGNORED = "ignored"
    ANEW = "counts-anew"
    BACK = "went-back"
    UNSTEADY = "unsteady"
    DIFFERENT = "different"


_TEXTS = {
    Cause.SILENT: (
        "tpuctl saw no step and no checkpoint of this job. Set job.checkpoint.format to what the job writes "
        "(docs/formats.md) and let it save to $TPUCTL_CHECKPOINT_DIR, or tell its steps with job.progress"
    ),
    Cause.TOO_SHORT: (
        "the job ended before each failure could be injected: let it run longer, or choose earlier moments, "
        "such as --at checkpoint:1"
    ),
    Cause.CRASHED: "mend what the last lines of the log say, then rehearse again",
    Cause.EARLY: (
        "the job ends with status 0 before job.target_steps is saved. Save the last step, or set "
        "target_steps to the last step that is saved. Keras: BackupAndRestore needs "
        "delete_checkpoint=False, otherwise fit() deletes the backup at its end"
    ),
    Cause.ENDED: "mend the cause above, then rehearse again",
    Cause.UNCLAIMED: (
        "let the job save as its format wants, or choose another job.checkpoint.format; what this run saved "
        "is copied by `tpuctl fetch --unclaimed`"
    ),
    Cause.UNSAVED: "save earlier and more often: a machine went before the first checkpoint was complete",
    Cause.IGNORED: "the script ignores its checkpoint: restore it from $TPUCTL_CHECKPOINT_DIR first",
    Cause.ANEW: (
        "your script counts its steps anew after a resume: restore the step counter with the model, or start "
        "the loop at $TPUCTL_RESUME_STEP"
    ),
    Cause.BACK: (
        "the script ignores its checkpoint or counts its steps anew after a resume: restore the model and "
        "the step counter from $TPUCTL_CHECKPOINT_DIR first"
    ),
    Cause.UNSTEADY: (
        "the runs differ before any failure, so this job does not repeat itself: set its seeds, "
        "or compare no losses"
    ),
    Cause.DIFFERENT: (
        "likely causes of the difference: the data order (shuffling begins anew at a resume), RNG state that "
        "is not saved, or step counters (learning rate schedule). Save them with the model, or derive them "
        "from the step"
    ),
}


def advice_of(cause: Cause, same_until: int | None = None) -> str:
    """Return what to do; *same_until* is the last step at which both runs had the same loss."""
    text = _TEXTS[cause]
    if cause is Cause.DIFFERENT and same_until is not None:
        return f"the loss is the same up to step {same_until}, then it differs; {text}"
    return text
