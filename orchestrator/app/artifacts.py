"""Build what is pushed: the code bundle and the agent."""

import os
from dataclasses import replace
from pathlib import Path

from orchestrator.app.job_data import with_code
from orchestrator.app.session import Session
from orchestrator.app.source_folder import source_folder
from orchestrator.cli.console import say
from orchestrator.domain.bucket_grants import grants_mark
from orchestrator.domain.observation import Heartbeat, Phase, Present, Sight
from orchestrator.domain.plan import Outcome
from orchestrator.domain.record import History, newest_incarnation
from orchestrator.domain.spec import Spec, VmSpec
from orchestrator.domain.tpu_shape import reshaped, shape_of
from orchestrator.engine.artifacts import agent_file, bundle_file
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.google.bodies import ARM_MACHINES
from orchestrator.planning.job import job_digest
from orchestrator.planning.unclaimed import ended_unclaimed, unclaimed_text
from orchestrator.private_folders import private_folder
from orchestrator.scripts import agent_zipapp, uv_program
from orchestrator.ssh.bundle import build
from orchestrator.ssh.local_data import DataSet


def build_artifacts(session: Session, sets: tuple[DataSet, ...] = ()) -> tuple[str, str]:
    """Build bundle and agent into the deployment's folder and return their sha256; *sets* are the job's data."""
    if session.choice.cloud == "local":
        need_python(session.spec)
    private_folder(session.bundles)
    source = source_folder(session.path, session.spec)
    bundle = build(source, session.bundles, more=with_code(sets))
    wanted = bundle_file(session.bundles, bundle.digest)
    if bundle.path != wanted:
        bundle.path.replace(wanted)
    fresh = session.bundles / "agent.new"
    digest = agent_zipapp.build(fresh)
    Path(fresh).replace(agent_file(session.bundles, digest))
    if session.choice.cloud != "local":
        bring_uv(session.spec, session.bundles)
    return bundle.digest, digest


def need_python(spec: Spec) -> None:
    """Raise UsageError when this computer, whose interpreters local machines use, lacks `job.python`."""
    from orchestrator.emulator.machines.machine_python import interpreters

    wanted, here = spec.job.python, interpreters(os.environ)
    if wanted and ".".join(wanted.split(".")[:2]) not in here:
        raise UsageError(
            f"job.python is {wanted}, and local machines use this computer's interpreters: it has "
            f"{', '.join(here)}",
            hint=f"run: uv python install {wanted} (or pyenv install), or change job.python",
            unchanged="nothing was created",
        )


def bring_uv(spec: Spec, folder: Path) -> None:
    """
    Put the program of `tpuctl-venv` where uploads are taken from: for TPUs, and for a VM with Arm processors.

    Without it the deployment goes on; a job that asks for it is told by the machine what to do. Machines of
    a local cloud have this computer's.
    """
    arm = isinstance(spec.vm, VmSpec) and spec.vm.machine.partition("-")[0] in ARM_MACHINES
    for machine in ("x86_64", *(("aarch64",) if arm else ())):
        try:
            uv_program.packed(machine, folder)
        except TpuctlError as error:
            say(
                f"warning: {error.message}. Jobs that use tpuctl-venv will fail; {error.hint}", style="yellow"
            )


def ended(spec: Spec, beats: Sight[tuple[Heartbeat, ...]], history: History) -> History:
    """Return the history with the end that the workers report, when no `watch` was there to write it down."""
    found = beats.value if isinstance(beats, Present) else ()
    if history.outcome or not found:
        return history
    saved = all(b.phase is Phase.DONE and b.committed_step is not None for b in found)
    if saved and len(found) == found[0].workers:
        return replace(
            history, outcome=Outcome.DONE.value, reason="every worker reports that the job is done"
        )
    unclaimed = ended_unclaimed(beats)
    if unclaimed:
        reason = unclaimed_text(spec.job.checkpoint, unclaimed)
        return replace(history, outcome=Outcome.UNCLAIMED.value, reason=reason)
    failed = any(b.phase is Phase.FAILED for b in found)
    return replace(history, outcome=Outcome.FAILED.value) if failed else history


def as_wanted(spec: Spec, history: History, bundle: str, agent: str, now: float) -> History:
    """Return the history with all that `up` wants: code, agent, the job's settings and the shape of the TPU."""
    # A bucket whose machines have other rights than the file gives them gets those first.
    ready = history.bucket_ready and history.grants == grants_mark(spec)
    history = replace(history, bucket_ready=ready)
    return want(reshaped(history, shape_of(spec)), bundle, agent, job_digest(spec), now)


def want(history: History, bundle: str, agent: str, job: str, now: float) -> History:
    """
    Return the history with what `up` wants: code, agent and the digest of the job's settings.

    New code or settings open an ended deployment again, and reach machines that run already.
    """
    changed = (bundle, agent, job) != (history.bundle, history.agent, history.job)
    # Machines that took everything from the bucket were never pushed to, and have the old settings too.
    asked = history.job != "" and (history.accepted or history.requested_at > 0)
    due = history.settings_due or ((history.pushed != "" or asked) and history.job != job)
    history = replace(
        history, bundle=bundle, agent=agent, job=job, settings_due=due, started_at=history.started_at or now
    )
    over = history.outcome in {Outcome.FAILED.value, Outcome.SPENT.value}
    done = history.outcome in {Outcome.DONE.value, Outcome.UNCLAIMED.value}
    if over or (done and changed):
        return replace(
            history, outcome="", reason="", refusals=(), started_at=now,
            incarnation=newest_incarnation(history) + 1, accepted=False, round=0, claimed=False,
            operations=(), remote_failed_since=None, settings_due=False, mute=(),
        )  # fmt: skip
    return replace(history, refusals=())
