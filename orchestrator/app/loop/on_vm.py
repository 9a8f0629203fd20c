"""Start the loop of `tpuctl watch` on the VM, and stop it there."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.expired import stored_spec
from orchestrator.app.deployment.session import Session
from orchestrator.app.machines.workers import booting, log_command, observe, when_reached
from orchestrator.app.status.status import observe_now, state_of
from orchestrator.app.this_computer.known import spec_in
from orchestrator.app.this_computer.state_folders import RECORD_KEY, SPEC_FILE
from orchestrator.clock import wait_until
from orchestrator.config.adapter import document_of
from orchestrator.contract.service_state import ServicePhase, ServiceState
from orchestrator.domain.lease import LOOP, WATCH_ON_VM, Holder
from orchestrator.domain.names import vm_name
from orchestrator.domain.observation import Present, VmState
from orchestrator.domain.remote import Host
from orchestrator.domain.status import DeploymentState
from orchestrator.engine.lease.lease_release import current
from orchestrator.engine.loop import loop_on_vm
from orchestrator.engine.routes import vm_host
from orchestrator.errors import RemoteError, TpuctlError, UsageError
from orchestrator.private_folders import private_folder
from orchestrator.scripts import wheel
from orchestrator.scripts.render import loop_script
from orchestrator.ssh.keys import ensure_key

BOOT_TIMEOUT = 180.0
"""Seconds for the first contact; booting a VM takes one or two minutes."""
START_TIMEOUT = 600.0
"""Seconds for the loop on the VM to take the lease, which includes installing tpuctl the first time."""
POLL_SECONDS = 3.0
"""Seconds between two queries over SSH while the loop starts; the lease is read more often."""


@dataclass(frozen=True)
class LoopOnVm:
    """
    Whether the loop now runs on the VM, from which archive, and the number of changes made for that.

    *state* is that of the deployment without the loop; None while it runs, and where it is not known.
    """

    vm: str
    running: bool
    changes: int
    digest: str | None = None
    state: DeploymentState | None = None


def start_on_vm(
    choice: Choice, reporter: Reporter, session: Session | None = None, members: Sequence[str] = ()
) -> LoopOnVm:
    """
    Install and start the loop on the VM, and wait until it holds the lease.

    It is the loop of the file's deployment, or of a fleet: *session* is that of its VM, *members* are the names
    of its deployments. Raise UsageError if no VM can run it, LeaseHeldError if another process keeps the lease.
    """
    session = session or Session(choice, reporter)
    host, before = _contact(session)
    packed = _packed(session, members)
    # The same archive already runs; a restart would only interrupt the watching.
    if before.digest == packed.digest and before.running:
        return LoopOnVm(host.name, running=True, changes=0, digest=packed.digest)
    fresh = before.digest != packed.digest
    # Under the lease: a loop on the VM yields to this command, so it does not act while its code is replaced.
    with session.holding_lease(WATCH_ON_VM):
        if fresh:
            reporter.say(f"tpuctl {len(packed.data) / 1000:.0f} kB: on its way to {host.name}")
            loop_on_vm.install(session.cloud.remote, host, packed)
    # After the lease is released, so that the loop can take it; this command waits to see that.
    loop_on_vm.start(session.cloud.remote, host)
    _wait(session, host)
    return LoopOnVm(host.name, running=True, changes=1, digest=packed.digest)


def stop_on_vm(choice: Choice, reporter: Reporter, session: Session | None = None) -> LoopOnVm:
    """Stop the loop on the VM of *session*, or of the file's deployment, and keep cron from restarting it."""
    session = session or Session(choice, reporter)
    # At once: each of its steps may take seconds, in which nothing else is printed.
    reporter.say(f"stopping the loop on {vm_name(session.spec)}; a pass that is under way ends first")
    host, before = _contact(session)
    with session.holding_lease(WATCH_ON_VM):
        loop_on_vm.stop(session.cloud.remote, host)
    return LoopOnVm(host.name, running=False, changes=int(before.running))


def with_state(session: Session, found: LoopOnVm) -> LoopOnVm:
    """Return *found* with the state of a deployment that nothing watches any more, for one observation."""
    # The loop is stopped already: that nothing can be observed is no failure of that.
    with suppress(TpuctlError):
        return replace(found, state=state_of(session, observe_now(session), None))
    return found


def nothing_to_watch(session: Session) -> bool:
    """
    Return whether the loop on the VM has nothing to do: the deployment has ended and no TPU is left.

    A loop that has acted since the VM's boot continues, because it must still stop the VM. After a later
    boot, which a user caused to look at something, it does nothing, so that the VM keeps running.
    """
    acting = session.folder / "acting"
    if session.records.current.outcome and not acting.exists():
        world = observe(session)
        if not (isinstance(world.nodes, Present) and world.nodes.value):
            return True
    private_folder(session.folder)
    # On disk, because the loop restarts as a new process after a crash; only a boot clears it.
    acting.touch()
    return False


def _contact(session: Session) -> tuple[Host, loop_on_vm.LoopState]:
    """Return the VM and the state of its loop; wait for a VM that boots."""

    def ask() -> tuple[Host, loop_on_vm.LoopState]:
        host = _host(session)
        return host, loop_on_vm.observe(session.cloud.remote, host)

    return when_reached(
        session.clock, ask, BOOT_TIMEOUT, lambda error: not booting(error),
        lambda message: session.reporter.say(f"waiting for the VM: {message}"),
    )  # fmt: skip


def _host(session: Session) -> Host:
    """Return the VM. Raise UsageError if none can run the loop."""
    spec, untouched = session.spec, "nothing was changed"
    if not spec.watch.on_vm:
        raise UsageError(
            f"{spec.name}: its VM is not made for the loop",
            hint="add `on_vm: true` to watch in tpuctl.yaml; then recreate the VM: tpuctl down, tpuctl up",
            changed=untouched, code="TPU-136",
        )  # fmt: skip
    if not session.records.current.job.bundle:
        raise UsageError(f"{spec.name} is not up", hint="run: tpuctl up", changed=untouched, code="TPU-130")
    world = observe(session)
    state = world.vm.value.state if isinstance(world.vm, Present) else None
    if state is not VmState.RUNNING:
        state_text = f"is {state.value}" if state else "is not listed"
        raise UsageError(f"the VM {state_text}, so no loop can run on it", hint="run: tpuctl up",
            changed=untouched, code="TPU-136")  # fmt: skip
    return vm_host(session.cloud, world)


def _packed(session: Session, members: Sequence[str]) -> loop_on_vm.Packed:
    """Return the archive for the VM: tpuctl itself, the deployment file with all overrides, and the key."""
    local = session.choice.cloud == "local"
    project = session.project
    # Set explicitly, because the VM's own login would choose another project and account.
    spec = replace(session.spec, project=project, service_account=session.blueprint.service_account)
    script = loop_script(
        wheel=wheel.NAME,
        lock=wheel.LOCK,
        cloud=session.choice.cloud,
        project=project,
        deployment=spec.name,
        fleet=int(spec.fleet is not None),
        ssh_port=session.cloud.ssh_port if local else 22,
    )
    return loop_on_vm.pack(
        {
            "run-watch": (script.encode(), 0o700),
            wheel.NAME: (wheel.build(), 0o600),
            wheel.LOCK: (wheel.lock(), 0o600),
            "tpuctl.yaml": (document_of(spec).encode(), 0o600),
            # The private key leaves this computer only here and only for the VM, never for the job's machines.
            "id_ed25519": (session.ssh_key.path.read_bytes(), 0o600),
            RECORD_KEY: (session.key, 0o600),
            **_of_members(session, members),
        }
    )


def _of_members(session: Session, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Return the stored specs and the SSH keys of a fleet's nodes, for the loop."""
    found: dict[str, tuple[bytes, int]] = {}
    for name in names:
        folder = session.folder.parent / name
        spec = replace(spec_in(folder / SPEC_FILE), service_account=session.blueprint.service_account)
        found[f"members/{name}/{SPEC_FILE}"] = stored_spec(spec), 0o600
        found[f"members/{name}/id_ed25519"] = ensure_key(folder).path.read_bytes(), 0o600
    return found


def _wait(session: Session, host: Host) -> None:
    """Wait until the loop holds the lease. Raise RemoteError with the loop's own message if it fails."""
    end, said, poll_at = session.clock.now() + START_TIMEOUT, ServiceState(), 0.0

    def holds() -> bool:
        nonlocal said, poll_at
        if _holds(session):
            return True
        now = session.clock.now()
        if now >= poll_at:
            state, poll_at = loop_on_vm.observe(session.cloud.remote, host).service, now + POLL_SECONDS
            # It stays installed: cron retries, and removing it could collide with a loop that is starting.
            if state.phase is ServicePhase.FAILED or now > end:
                raise RemoteError(
                    f"the loop on {host.name} does not run: {state.text or 'it says nothing'}",
                    hint=f"see: {log_command(session.choice.cloud, 'watch', on_vm=True)}",
                    changed="it is there, and cron tries again each minute; until then use: tpuctl watch",
                )
            if state != said:
                said = state
                installing = state.phase is ServicePhase.INSTALLING
                more = "; the first time takes a minute" if installing else ""
                session.reporter.say(f"{host.name}: {state.text}{more}")
        return False

    wait_until(holds, session.clock, math.inf, 0.5, longest=0.5)


def _holds(session: Session) -> bool:
    found = current(session.cloud.store)
    return found is not None and Holder.from_json(found.data).command == LOOP
