"""Find the machines of a deployment with their pinned host keys, and run users' commands on them."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.clock import Clock
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.domain.observation import Node, World
from orchestrator.domain.record import TERMINAL, current_node
from orchestrator.domain.remote import CommandAnswer, Host
from orchestrator.engine.blueprint import ROOT
from orchestrator.engine.reconcile.observe import observe as observe_world
from orchestrator.engine.routes import vm_host, worker_host, worker_keys
from orchestrator.errors import (
    HostKeyError,
    NoGcloudError,
    NotFoundError,
    RemoteError,
    Retry,
    TpuctlError,
    TransientError,
    UsageError,
)
from orchestrator.planning.update_record import update_record
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import elevated

T = TypeVar("T")
PAUSES = Backoff(2.0, 2.0)
"""Between tries to reach a machine that boots: always the same, since a person waits."""


def log_command(cloud: str, log: str, *, on_vm: bool) -> str:
    """Return the command that shows the end of one of tpuctl's own logs on a machine."""
    ssh = f"tpuctl ssh{' --vm' if on_vm else ''} --"
    # The local cloud's machines are processes of this user, in folders of their own, and have no sudo.
    if cloud == "local":
        return f"{ssh} 'tail -n 30 $TPUCTL_ROOT/log/{log}.log'"
    return f"{ssh} sudo tail -n 30 {ROOT}/log/{log}.log"


def open_shell(
    choice: Choice, worker: int, words: Sequence[str], reporter: Reporter, *, on_vm: bool, home: bool
) -> int:
    """
    Run a shell, or the command *words*, on a worker or the VM at this terminal; return its exit status.

    It runs in the source folder with the job's variables; with *home*, or without a job, in the login's home.
    """
    session = Session(choice, reporter)
    host = the_vm(session) if on_vm else worker_host_of(session, worker)
    line = _line(words) if words else None
    return session.ssh.shell(host, line if home else _in_job(session, line, on_vm=on_vm))


def _line(words: Sequence[str]) -> str:
    """Return the command line: a single word is one already, several are quoted, so that each stays one word."""
    return shlex.join(words) if len(words) > 1 else words[0]


def run_on_workers(
    choice: Choice, words: Sequence[str], timeout: float, reporter: Reporter, *, workers: Sequence[int],
    on_vm: bool, home: bool,
) -> list[CommandAnswer]:  # fmt: skip
    """Run a command on *workers* (() for all) or the VM, each within *timeout* seconds; as in `open_shell`."""
    session = Session(choice, reporter)
    hosts = [the_vm(session)] if on_vm else worker_hosts(session)
    if workers and not on_vm:
        hosts = [_numbered(hosts, number) for number in dict.fromkeys(workers)]
    line = _line(words)
    return session.ssh.ask(hosts, line if home else _in_job(session, line, on_vm=on_vm) or line, timeout)


def _in_job(session: Session, line: str | None, *, on_vm: bool) -> str | None:
    """Return the command that runs *line*, or a shell, beside the job; *line* itself without a job."""
    if session.spec.job.run_on != ("vm" if on_vm else "tpu"):
        return line
    script = remote_script("enter-job", *(("--", line) if line else ()))
    return elevated(script, session.ssh.settings.root)


def observe(session: Session) -> World:
    """Return the world as a pass would observe it now. Costs several calls."""
    return observe_world(
        session.cloud, session.spec, session.records.current, session.blueprint.bucket, session.clock.now()
    )


def ended_error(session: Session) -> UsageError | None:
    """Return an error if no machine will come back; None if one exists or will."""
    # The local cloud stops with its last machine; then only the local copy of the record remains.
    record = session.records.load(forgiving=session.choice.cloud == "local")
    if record.outcome:
        message, hint = (
            f"the deployment is over ({record.outcome.phrase}): its machines are stopped",
            "see: tpuctl logs",
        )
    elif not record.job.bundle:
        message, hint = f"{session.spec.name} is not up", "run: tpuctl up"
    else:
        return None
    return UsageError(message, hint=hint, changed="nothing was changed", code="TPU-130")


def may_pass(error: TpuctlError) -> bool:
    """Return whether a retry may succeed soon, because the machine boots or is being replaced."""
    return error.retry is Retry.TRANSIENT or isinstance(error, NotFoundError) or error.code == "TPU-131"


def when_reached(
    clock: Clock,
    ask: Callable[[], T],
    timeout: float,
    hopeless: Callable[[TpuctlError], bool],
    say: Callable[[str], None],
) -> T:
    """
    Return what *ask* returns; repeat it for *timeout* seconds while its machine boots or is replaced.

    *say* gets each new reason to wait. Raise the last error, or one that is *hopeless*.
    """
    said = ""

    def failed(error: BaseException) -> None:
        nonlocal said
        if not isinstance(error, TpuctlError) or hopeless(error):
            raise error
        if error.message != said:
            said = error.message
            say(said)

    return retried(
        ask, (TpuctlError,), PAUSES, timeout=timeout, now=clock.monotonic, wait=clock.wait, failed=failed
    )


def booting(error: TpuctlError) -> bool:
    """Return whether a boot may end the error: an unknown key stays refused, and gcloud does not install itself."""
    return isinstance(error, RemoteError | NotFoundError) and not isinstance(
        error, HostKeyError | NoGcloudError
    )


def worker_hosts(session: Session) -> list[Host]:
    """Return the workers of the newest node. Raise UsageError if there is none."""
    world = observe(session)
    node = current_node(world, update_record(session.records.current, world))
    # The address of a preempted TPU may now belong to another user's machine.
    if node is None or not node.workers or node.state in TERMINAL:
        raise UsageError(
            f"{session.spec.name} has no TPU at present", hint="see: tpuctl status",
            changed="nothing was changed", code="TPU-131",
        )  # fmt: skip
    with _nothing_opened():
        return [
            worker_host(session.cloud, world, node, worker, _published(session, node, worker.index))
            for worker in node.workers
        ]


def worker_host_of(session: Session, number: int) -> Host:
    """Return worker *number*. Raise UsageError if it does not exist."""
    return _numbered(worker_hosts(session), number)


def existing_workers(count: int) -> str:
    """Say which numbers *count* workers have."""
    return "the only worker is 0" if count == 1 else f"the workers are 0 to {count - 1}"


def _numbered(hosts: Sequence[Host], number: int) -> Host:
    if not 0 <= number < len(hosts):
        raise UsageError(
            f"--worker {number}: {existing_workers(len(hosts))}", hint="see: tpuctl status",
            changed="nothing was changed", code="TPU-132",
        )  # fmt: skip
    return hosts[number]


def _published(session: Session, node: Node, worker: int) -> tuple[str, ...]:
    """
    Return the published host keys of one worker; if there are none, SSH uses the stored ones.

    An error is ignored here, so that one worker does not block the others.
    """
    try:
        return worker_keys(session.cloud, node, worker)
    except (NotFoundError, TransientError):
        return ()


def the_vm(session: Session) -> Host:
    """Return the VM. Raise RemoteError if it is missing or Unknown."""
    with _nothing_opened():
        return vm_host(session.cloud, observe(session))


@contextmanager
def _nothing_opened() -> Iterator[None]:
    """Add to an error of the block that no connection was opened."""
    try:
        yield
    except TpuctlError as error:
        error.complete(hint="", changed="no connection was opened")
        raise
