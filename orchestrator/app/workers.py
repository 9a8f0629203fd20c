"""The machines of a deployment, with their pinned host keys, and what people run on them."""

import shlex
from collections.abc import Sequence

from orchestrator.app.choice import Choice
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.domain.observation import Node, World
from orchestrator.domain.ports import Host
from orchestrator.domain.record import current_node
from orchestrator.engine.observe import observe
from orchestrator.engine.routes import vm_host, worker_host, worker_keys
from orchestrator.errors import NotFoundError, TransientError, UsageError
from orchestrator.planning.update_record import learn
from orchestrator.ssh.run import CommandAnswer


def open_shell(choice: Choice, worker: int, words: Sequence[str], reporter: Reporter, *, on_vm: bool) -> int:
    """Run a shell, or the command *words*, on a worker or the VM at this terminal; return its exit status."""
    session = Session(choice, reporter)
    host = the_vm(session) if on_vm else worker_host_of(session, worker)
    # Joined with quotes: what was one word here is one word there.
    return session.ssh.shell(host, shlex.join(words) if words else None)


def run_everywhere(
    choice: Choice, words: Sequence[str], seconds: float, reporter: Reporter, *, on_vm: bool
) -> list[CommandAnswer]:
    """Run a command on all workers at once, or on the VM, each within *seconds*."""
    session = Session(choice, reporter)
    hosts = [the_vm(session)] if on_vm else worker_hosts(session)
    # A single word may be a whole line for the shell there.
    return session.ssh.ask(hosts, shlex.join(words) if len(words) > 1 else words[0], seconds)


def look(session: Session) -> World:
    """Return the world of this moment."""
    return observe(
        session.cloud, session.spec, session.records.current, session.blueprint.bucket, session.clock.now()
    )


def worker_hosts(session: Session) -> list[Host]:
    """Return the workers of the newest node; raise UsageError when there is none."""
    world = look(session)
    node = current_node(world, learn(session.records.current, world))
    if node is None or not node.workers:
        raise UsageError(
            f"{session.spec.name} has no TPU at present", hint="see: tpuctl status",
            changed="nothing was changed", code="TPU-131",
        )  # fmt: skip
    return [
        worker_host(session.cloud, world, node, worker, _published(session, node, worker.index))
        for worker in node.workers
    ]


def worker_host_of(session: Session, number: int) -> Host:
    """Return one worker; raise UsageError when there is none of that *number*."""
    hosts = worker_hosts(session)
    if not 0 <= number < len(hosts):
        raise UsageError(f"--worker {number}: there are workers 0 to {len(hosts) - 1}", code="TPU-132")
    return hosts[number]


def _published(session: Session, node: Node, worker: int) -> tuple[str, ...]:
    """
    Return the host keys of one worker; without any its remembered ones count, and SSH refuses a stranger.

    One worker that has none must not keep us from the others.
    """
    try:
        return worker_keys(session.cloud, node, worker)
    except (NotFoundError, TransientError):
        return ()


def the_vm(session: Session) -> Host:
    """Return the VM; raise RemoteError when it is not in sight."""
    return vm_host(session.cloud, look(session))
