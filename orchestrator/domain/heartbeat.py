"""Define the heartbeat: what one worker last reported of its job, as the agent writes it to the bucket."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training, trained_from, training_of


@dataclass(frozen=True)
class Heartbeat:
    """One worker's last heartbeat, `.tpuctl/heartbeat/<incarnation>/<worker>`; times are in seconds."""

    incarnation: int
    worker: int
    phase: Phase
    updated: float
    """When it was written, by the bucket's clock, because machines' clocks may be wrong and ages are compared."""
    workers: int = 1
    bundle: str = ""
    step: int | None = None
    loss: float | None = None
    loss_step: int | None = None
    """Step of the loss, if it is an earlier one than *step*."""
    committed_step: int | None = None
    committed_at: float | None = None
    committed_steps: tuple[int, ...] = ()
    """Last commits of this attempt, newest first; an older agent names none."""
    resumed_from: int | None = None
    """Step of the checkpoint that was restored."""
    from_step: int | None = None
    """Step from which the attempt trained; an older agent does not say: `start_step`."""
    began_step: int | None = None
    """First step that the job reported after a restore; a smaller one means that it ignores its checkpoint."""
    ignored_message: str = ""
    """That it ignores its checkpoint, and why; empty while nothing says so."""
    attempt: int = 0
    attempt_message: str = ""
    """Why the attempt began where it did, besides what follows; an older agent does not say."""
    ended_message: str = ""
    """How the attempt before failed; empty if it did not, or by an older agent, which tells it in the one above."""
    ended_failures: int = 0
    """The failures in a row up to that one; *failures* counts the present attempt too once it has failed."""
    aside_message: str = ""
    """Which checkpoints newer than the one that was restored are set aside, and why."""
    attempts: int = 0
    """How often this machine has started the job."""
    failures: int = 0
    """Attempts in a row that brought no progress."""
    failure_message: str = ""
    """How the last of them failed; an older agent does not say."""
    failure_line: str = ""
    """The last line that the job printed then, which names the error in most programs; empty if none does."""
    exit_code: int | None = None
    rate: float | None = None
    """Steps per second."""
    reported_target_steps: int | None = None
    """Last step of the training, as the job reports it; `job.target_steps` counts before it."""
    progress_from: str = ""
    """Where the step comes from: file, pattern, events, commits, or the name of a preset."""
    format: str = ""
    """Format of the saves; empty until `auto` has found one."""
    progress_at: float | None = None
    notice: bool = False
    """The machine has a preemption notice, or is about to reboot."""
    preempted: bool = False
    """The machine is lost for good; it does not reboot."""
    save_interval: float | None = None
    """Interval between saves that the job was given."""
    save_pause: float | None = None
    """How long one save stops the training."""
    save_pause_from: str = ""
    """How that is known: measured, reported, declared or assumed."""
    time_between_interruptions: float | None = None
    """Expected time between two interruptions that lose work."""
    observed_save_interval: float | None = None
    """Measured time between the last saves."""
    save_pauses: float | None = None
    """Seconds for which saves have stopped the training here: the usual pause for each that was measured."""
    measured_saves: int | None = None
    """Number of the saves in that sum; an older agent names none."""
    commit_seconds: float | None = None
    """How long the last commit to the bucket took."""
    uncommitted: str = ""
    """A save that no commit contains."""
    uncommitted_place: str = ""
    """Where it lies: checkpoints, work, home or quarantine."""
    uncommitted_state: str = ""
    """What its format judges it to be."""
    committed_counted: bool = False
    """The saves name no step, so that `committed_step` is a number of saves."""
    uncommitted_files: int = 0
    uncommitted_bytes: int = 0
    uncommitted_complete: bool | None = None
    """Whether all uncommitted files are in the bucket; None if there are none."""
    xla_programs_restored: int | None = None
    """Compiled programs that were restored from an earlier machine."""
    xla_programs_compiled: int | None = None
    """Compiled programs that this machine has added."""
    image: str = ""
    """Container image of the job, by digest."""
    message: str = ""
    host_keys: tuple[str, ...] = ()
    """Public SSH host keys of the machine."""
    timings: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the epoch of boot, unpacked, setup_done, restored, spawned, first_step and others."""
    first_timings: Mapping[str, float] = field(default_factory=dict)
    """Those of the first attempt on this machine that made a step; an older agent names none."""
    trained: tuple[Training, ...] = ()
    """What earlier attempts have trained on this machine; an older agent names none."""
    script: bool = False
    """Written by the startup script as its first act, before the agent runs."""

    @property
    def trainings(self) -> tuple[Training, ...]:
        """Return what all attempts on this machine have trained, also the present one."""
        first, start = self.timings.get("first_step"), self.start_step
        last = training_of(self.attempt, first, self.progress_at, start, self.step, list(self.trained))
        return self.trained if last is None else (*self.trained, last)

    @property
    def start_step(self) -> int:
        """Return the step from which the present attempt trained, 0 for the beginning."""
        return trained_from(self.from_step, self.resumed_from, self.began_step)
