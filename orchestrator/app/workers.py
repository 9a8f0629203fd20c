"""Find the machines of a deployment, with their pinned host keys."""

from orchestrator.app.session import Session
from orchestrator.domain.observation import Node, World
from orchestrator.domain.ports import Host
from orchestrator.domain.record import current_node
from orchestrator.engine.observe import observe
from orchestrator.engine.routes import vm_host, worker_host, worker_keys
from orchestrator.errors import NotFoundError, TransientError, UsageError
from orchestrator.planning.update_record import learn


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
            unchanged="nothing was changed", code="TPU-131",
        )  # fmt: skip
    return [
        worker_host(session.cloud, world, node, worker, _published(session, node, worker.index))
        for worker in node.workers
    ]


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
