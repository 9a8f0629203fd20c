"""Put the loop of `tpuctl watch` on the VM, and take it back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.app.choice import Choice
from orchestrator.app.expired import stored_spec
from orchestrator.app.known import spec_in
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.app.state_folders import RECORD_KEY, SPEC_FILE
from orchestrator.app.workers import look
from orchestrator.config.adapter import document_of
from orchestrator.domain.lease import HAND_OVER, LOOP, Holder
from orchestrator.domain.observation import Present, VmState
from orchestrator.domain.ports import Host
from orchestrator.engine import loop_on_vm
from orchestrator.engine.blueprint import ROOT
from orchestrator.engine.held import current
from orchestrator.engine.routes import vm_host
from orchestrator.errors import HostKeyError, NoGcloudError, NotFoundError, RemoteError, UsageError
from orchestrator.private_folders import private_folder
from orchestrator.scripts import wheel
from orchestrator.scripts.render import loop_script

BOOT_SECONDS = 180.0
"""Seconds for the first contact: a VM that boots takes one or two minutes."""
START_SECONDS = 600.0
"""Seconds for the loop on the VM to take the lease: the first time it installs tpuctl there."""
LOOK_SECONDS = 3.0
"""Seconds between two questions over SSH while the loop starts; the lease is looked at more often."""
LOG = f"{ROOT}/log/watch.log"


@dataclass(frozen=True)
class Moved:
    """Hold whether the loop runs on the VM now, from which archive, and how many changes that took."""

    vm: str
    running: bool
    changes: int
    digest: str | None = None


def hand_over(
    choice: Choice, reporter: Reporter, session: Session | None = None, parts: Sequence[str] = ()
) -> Moved:
    """
    Bring the loop to the VM, start it and wait until it holds the lease.

    It is the loop of the file's deployment, or of a fleet: *session* is that of its VM, *parts* names its nodes.

    Raise UsageError when there is no VM that could run it, LeaseHeldError when somebody acts who goes on.
    """
    session = session or Session(choice, reporter)
    host, before = _contact(session)
    packed = _packed(session, parts)
    # The same archive runs already: a restart would cost a gap in the watching and gain nothing.
    if before.digest == packed.digest and before.running:
        return Moved(host.name, running=True, changes=0, digest=packed.digest)
    fresh = before.digest != packed.digest
    # With the lease: a loop on the VM steps aside for this command, so none acts while its code is replaced.
    with session.holding_lease(HAND_OVER):
        if fresh:
            reporter.say(f"tpuctl {len(packed.data) / 1000:.0f} kB: on its way to {host.name}")
            loop_on_vm.install(session.cloud.remote, host, packed)
    # After the lease is free again: the loop takes it, and this command waits to see that.
    loop_on_vm.start(session.cloud.remote, host)
    _wait(session, host)
    return Moved(host.name, running=True, changes=1, digest=packed.digest)


def take_back(choice: Choice, reporter: Reporter, session: Session | None = None) -> Moved:
    """End the loop on the VM, that of *session* or of the file's deployment, and keep cron from starting it."""
    session = session or Session(choice, reporter)
    host, before = _contact(session)
    with session.holding_lease(HAND_OVER):
        loop_on_vm.stop(session.cloud.remote, host)
    return Moved(host.name, running=False, changes=int(before.running))


def over(session: Session) -> bool:
    """
    Say for the loop on the VM whether there is nothing to do: the deployment has ended, no TPU is left.

    A loop that has acted since the VM's boot goes on, for it has yet to stop the VM. At a later boot somebody
    has started the VM to look at something, and it is not stopped while they work on it.
    """
    acting = session.folder / "acting"
    if session.records.current.outcome and not acting.exists():
        world = look(session)
        if not (isinstance(world.nodes, Present) and world.nodes.value):
            return True
    private_folder(session.folder)
    # On disk, for the loop is a new process after each crash, and only a boot must begin without it.
    acting.touch()
    return False


def _contact(session: Session) -> tuple[Host, loop_on_vm.LoopState]:
    """Return the VM and what it says of its loop; wait for one that boots."""
    end, said = session.clock.now() + BOOT_SECONDS, False
    while True:
        try:
            host = _host(session)
            return host, loop_on_vm.look(session.cloud.remote, host)
        except (RemoteError, NotFoundError) as error:
            # These do not pass with time: a strange key is refused, and a program does not install itself.
            if isinstance(error, HostKeyError | NoGcloudError) or session.clock.now() > end:
                raise
            if not said:
                session.reporter.say(f"waiting for the VM: {error.message}")
            said = True
        session.clock.wait(2.0)


def _host(session: Session) -> Host:
    """Return the VM; raise UsageError when there is none that could run the loop."""
    spec, untouched = session.spec, "nothing was changed"
    if not spec.watch.on_vm:
        raise UsageError(
            f"{spec.name}: its VM is not made for the loop",
            hint="add `on_vm: true` to watch in tpuctl.yaml; then recreate the VM: tpuctl down, tpuctl up",
            changed=untouched, code="TPU-136",
        )  # fmt: skip
    if not session.records.current.job.bundle:
        raise UsageError(f"{spec.name} is not up", hint="run: tpuctl up", changed=untouched, code="TPU-130")
    world = look(session)
    state = world.vm.value.state if isinstance(world.vm, Present) else None
    if state is not VmState.RUNNING:
        state_text = f"is {state.value}" if state else "is not in sight"
        raise UsageError(f"the VM {state_text}, so no loop can run on it", hint="run: tpuctl up",
            changed=untouched, code="TPU-136")  # fmt: skip
    return vm_host(session.cloud, world)


def _packed(session: Session, parts: Sequence[str]) -> loop_on_vm.Packed:
    """Return what goes to the VM: tpuctl itself, the deployment file with all overrides in it, and the key."""
    local = session.choice.cloud == "local"
    project = session.project
    # Both filled in: on the VM the login is another one, and would choose another project and account.
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
            # The private key leaves this computer here, for the VM only: the job's machines never get it.
            "id_ed25519": (session.ssh.settings.key.read_bytes(), 0o600),
            RECORD_KEY: (session.key, 0o600),
            **_parts(session, parts),
        }
    )


def _parts(session: Session, names: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Return what the loop must know of a fleet's deployments: what `up` wanted, and the keys to the machines."""
    found: dict[str, tuple[bytes, int]] = {}
    for name in names:
        folder = session.folder.parent / name
        spec = replace(spec_in(folder / SPEC_FILE), service_account=session.blueprint.service_account)
        found[f"parts/{name}/{SPEC_FILE}"] = stored_spec(spec), 0o600
        found[f"parts/{name}/id_ed25519"] = (folder / "id_ed25519").read_bytes(), 0o600
    return found


def _wait(session: Session, host: Host) -> None:
    """Wait until the loop holds the lease. Raise RemoteError with its own words when it cannot."""
    end, said, look_at = session.clock.now() + START_SECONDS, "", 0.0
    while not _holds(session):
        now = session.clock.now()
        if now >= look_at:
            state, look_at = loop_on_vm.look(session.cloud.remote, host), now + LOOK_SECONDS
            # It stays installed: cron tries again, and taking it away could meet the loop as it comes up.
            if state.failed or now > end:
                raise RemoteError(
                    f"the loop on {host.name} does not run: {state.state or 'it says nothing'}",
                    hint=f"see: tpuctl ssh --vm -- sudo tail -n 30 {LOG}",
                    changed="it is there, and cron tries again each minute; until then use: tpuctl watch",
                )
            if state.state != said:
                said = state.state
                more = "; the first time takes a minute" if said == "installing" else ""
                session.reporter.say(f"{host.name}: {said}{more}")
        session.clock.wait(0.5)


def _holds(session: Session) -> bool:
    found = current(session.cloud.store)
    return found is not None and Holder.from_json(found.data).command == LOOP
