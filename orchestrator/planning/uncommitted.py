"""Word the messages about a job that trained something which no complete checkpoint holds."""

from collections.abc import Sequence
from math import log2

from orchestrator.contract.formats.base import SaveState
from orchestrator.contract.formats.choose import format_of
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.job_progress import common_step
from orchestrator.domain.observation import World
from orchestrator.domain.record import Record
from orchestrator.domain.spec import CheckpointSpec
from orchestrator.domain.text.amounts import size_text

FETCH = "tpuctl checkpoints fetch --uncommitted"
UNSAVED = 15 * 60.0
"""Seconds of work without a checkpoint after which people are told: a first save may need half an epoch."""
LATE = 3
"""Times the usual time between two saves after which a save counts as missing."""
_BUCKET = "bucket"
_PLACES = {
    "checkpoints": "in the checkpoint folder",
    "quarantine": "in the quarantine of the machine",
    "work": "in the source folder",
    "home": "in the home folder",
    _BUCKET: "in the bucket, where tpuctl looks for no saves",
}
_ELSEWHERE = ("work", "home")


def ended_uncommitted(heartbeats: tuple[Heartbeat, ...]) -> tuple[Heartbeat, ...]:
    """
    Return the reports if every worker's job has ended and one of them lacks a checkpoint, else an empty tuple.

    A worker that still uploads its files reports another phase.
    """
    saved = [b for b in heartbeats if b.phase is Phase.DONE and b.committed_step is not None]
    over = [*saved, *(b for b in heartbeats if b.phase is Phase.UNCOMMITTED)]
    whole = bool(over) and {b.worker for b in over} == set(range(over[0].workers))
    # Every worker: a silent one may have saved a checkpoint.
    return tuple(over) if whole and any(b.phase is Phase.UNCOMMITTED for b in over) else ()


def uncommitted_end_text(saving: CheckpointSpec, heartbeats: Sequence[Heartbeat]) -> str:
    """Return why a job ended without a checkpoint: which files lie where, and what the format expects."""
    count, size = sum(b.uncommitted_files for b in heartbeats), sum(b.uncommitted_bytes for b in heartbeats)
    stray = next((b for b in heartbeats if b.uncommitted and b.uncommitted_place == _BUCKET), None)
    if not count and stray is not None:
        return (
            f"the job ended with status 0 and no checkpoint: {stray.uncommitted} lies "
            f"{_PLACES[_BUCKET]} and from where `fetch` copies nothing; {_wanted_text(saving, stray)}"
        )
    if not count:
        return f"the job ended with status 0 and saved nothing; {wants_text(saving)}"
    shown = next((b for b in heartbeats if b.uncommitted), heartbeats[0])
    first, wanted = shown.uncommitted, _wanted_text(saving, shown)
    more = "" if count == 1 else f" and {count - 1} more file{'s' if count > 2 else ''}"
    verb = "lies" if count == 1 else "lie"
    return (
        f"the job ended with status 0 and no checkpoint: {first}{more} {verb} in unclaimed/ in the "
        f"bucket ({size_text(size)}); {wanted}"
    )


def uncommitted_text(saving: CheckpointSpec, heartbeats: Sequence[Heartbeat]) -> str:
    """Return what a running job has done that is in no checkpoint, and why; "" if no report says so."""
    running = [heartbeat for heartbeat in heartbeats if heartbeat.phase is Phase.RUN]
    for heartbeat in running:
        if heartbeat.committed_step is None and heartbeat.uncommitted:
            where = _PLACES.get(heartbeat.uncommitted_place, "on the machine")
            wanted = _wanted_text(saving, heartbeat)
            return f"{heartbeat.uncommitted} is {where}, but in no checkpoint ({wanted})"
    found = [] if has_no_steps(saving) else [unsaved_seconds(heartbeat) for heartbeat in running]
    longest = max(found, default=0.0)
    if not longest:
        return ""
    saved = any(b.committed_step is not None or b.resumed_from is not None for b in running)
    what = "has saved no new checkpoint" if saved else f"has saved no checkpoint ({wants_text(saving)})"
    span = f"{longest / 3600:.0f} h" if longest >= 3600 else f"{longest / 60:.0f} min"
    return f"the job has worked for more than {span} and {what}: a preemption now would lose that work"


def unsaved_seconds(heartbeat: Heartbeat) -> float:
    """
    Return for how long at least a worker's job has worked since its newest commit, 0 if that is not worth a word.

    That is UNSAVED, twice it, four times it and so on, so that a message with it seldom changes.
    """
    began = heartbeat.timings.get("first_step", heartbeat.timings.get("spawned"))
    if began is None:
        return 0.0
    worked = heartbeat.updated - max(began, heartbeat.committed_at or 0.0)
    usual = max(heartbeat.save_interval or 0.0, heartbeat.observed_save_interval or 0.0)
    if worked < max(UNSAVED, LATE * usual):
        return 0.0
    return UNSAVED * 2.0 ** int(log2(worked / UNSAVED))


def link_text(heartbeats: Sequence[Heartbeat]) -> str:
    """Return how a program keeps its own folder, "" if it saved to no such folder of the machine."""
    fixed = any(heartbeat.uncommitted_place in _ELSEWHERE for heartbeat in heartbeats)
    return ', or make its own folder a link to it (ln -sfn "$TPUCTL_CHECKPOINT_DIR" FOLDER)' if fixed else ""


def checkpoint_name(heartbeat: Heartbeat) -> str:
    """Return the number of a worker's newest commit with its unit: steps, or saves of a format without steps."""
    return f"{'save' if heartbeat.committed_counted else 'step'} {heartbeat.committed_step}"


def has_no_steps(saving: CheckpointSpec) -> bool:
    """Return whether the format commits nothing before the job has ended."""
    return format_of(saving.format, saving.marker).at_end


def rescued_text(heartbeats: Sequence[Heartbeat]) -> str:
    """Return how much lies in `unclaimed/` according to the newest reports; empty for nothing."""
    count, size = sum(b.uncommitted_files for b in heartbeats), sum(b.uncommitted_bytes for b in heartbeats)
    if not count:
        return ""
    partial = any(b.uncommitted_complete is False for b in heartbeats)
    rest = ", some may be missing" if partial else ""
    return f"{count} file{'' if count == 1 else 's'}, {size_text(size)}{rest} ({FETCH})"


def _wanted_text(saving: CheckpointSpec, heartbeat: Heartbeat) -> str:
    """Return why a reported save is not committed: its place, or what the format expects."""
    if heartbeat.uncommitted_place in _ELSEWHERE:
        return "only what lies below $TPUCTL_CHECKPOINT_DIR becomes a checkpoint"
    if heartbeat.uncommitted_place == _BUCKET:
        return "set job.checkpoint.dir: bucket and let it save to $TPUCTL_CHECKPOINT_DIR, gs://BUCKET/checkpoints"
    if heartbeat.uncommitted_state == SaveState.NOT_RESUMABLE.value:
        return "it is whole, but without the optimizer's state no job can go on from it: save_only_model?"
    return wants_text(saving)


def wants_text(saving: CheckpointSpec) -> str:
    """Return what the deployment's format accepts as a finished save."""
    return f"format {saving.format} wants {format_of(saving.format, saving.marker).wants}"


def lost_text(saving: CheckpointSpec, world: World, record: Record) -> str:
    """Return what happened to the work of a machine that is being preempted."""
    mine = world.heartbeats_of(record.node.incarnation)
    if not mine:
        return ""
    step = common_step(mine)
    if step is not None:
        # The bucket may have a later one: machines report seconds after they commit.
        return f"the newest checkpoint that it reported is {'save' if mine[0].committed_counted else 'step'} {step}"
    uploaded = rescued_text(mine)
    also = f"; {uploaded} came to unclaimed/" if uploaded else ""
    if has_no_steps(saving):
        stay = "; what it wrote to the bucket stays there" if saving.dir == "bucket" else also
        return f"its job has no steps and starts again{stay}"
    stray = next((b.uncommitted for b in mine if b.uncommitted_place == _BUCKET), "")
    if stray:
        return (
            f"there is no checkpoint; {stray} is {_PLACES[_BUCKET]}: the job itself may find it there{also}"
        )
    # A TPU may go before it has restored what an earlier one has saved.
    if record.deadline.progress.step:
        return f"it reported no checkpoint; the next one resumes from the newest in the bucket{also}"
    return f"it reported no checkpoint; without one in the bucket the next TPU begins at step 0{also}"
