"""
Decide which sidecars run where, and which settings running machines still lack.

Sidecars start and end with their machine. New settings reach a running machine over SSH, once for each change
and without touching the job.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.domain.names import prefix_of
from orchestrator.domain.observation import NodeState, Present, VmState, World
from orchestrator.domain.plan import Change, Decision, Kind, Verb
from orchestrator.domain.record import Record, current_node
from orchestrator.domain.spec import JupyterSpec, Spec, TensorboardSpec

# Pinned, because they run for days beside a job, on machines created at different times.
REQUIREMENTS = {
    "tensorboard": "tensorboard==2.21.0 gcsfs==2026.10.1",
    "jupyter": "jupyterlab==4.6.6 jupyter-server==2.21.1 ipykernel==7.4.0",
}
"""Python packages of each sidecar. TensorBoard reads gs:// through gcsfs, so it needs no TensorFlow."""


@dataclass(frozen=True)
class Sidecar:
    """One sidecar: *on* is the role of the machine that it runs on, *logdir* a gs:// address or empty."""

    name: str
    on: str
    port: int
    logdir: str = ""


def sidecars(spec: Spec, bucket: str) -> tuple[Sidecar, ...]:
    """Return the sidecars that the deployment file asks for."""
    found = []
    board, jupyter = spec.sidecars.tensorboard, spec.sidecars.jupyter
    if isinstance(board, TensorboardSpec):
        found.append(Sidecar("tensorboard", board.on, board.port, log_folder(spec, bucket)))
    if isinstance(jupyter, JupyterSpec):
        found.append(Sidecar("jupyter", jupyter.on, jupyter.port))
    return tuple(found)


def log_folder(spec: Spec, bucket: str) -> str:
    """Return the gs:// address that TensorBoard shows, with a default for a job that names none."""
    board = spec.sidecars.tensorboard
    logdir = (board if isinstance(board, TensorboardSpec) else TensorboardSpec()).logdir
    return logdir if "://" in logdir else f"gs://{bucket}/{prefix_of(spec)}{logdir.strip('/')}"


def sidecar_digest(spec: Spec, role: str) -> str:
    """Return a digest of the sidecars on machines of *role*; empty if there are none."""
    wanted = [sidecar for sidecar in sidecars(spec, "") if sidecar.on == role]
    return hashlib.sha256(repr(wanted).encode()).hexdigest()[:16] if wanted else ""


def with_settings(record: Record, spec: Spec, role: str) -> dict[str, str]:
    """Return `Record.sidecars` for a machine of *role* that has the settings of *spec*."""
    return {**record.sidecars, role: sidecar_digest(spec, role)}


def decide_sidecars(spec: Spec, world: World, record: Record) -> Decision:
    """Update the settings of running machines. Each change is tried once; `tpuctl tunnel` repeats it."""
    # The digest is recorded after one try, so that an unreachable machine is not tried in every pass.
    changes = tuple(
        Change(Kind.SIDECARS, Verb.UPDATE, name, "the machine has other settings", zone)
        for role, name, zone in _running(world, record)
        if record.sidecars.get(role, "") != sidecar_digest(spec, role)
    )
    return Decision(changes)


def _running(world: World, record: Record) -> Iterator[tuple[str, str, str]]:
    """Yield role, name and zone of each machine that can take new settings."""
    if isinstance(world.vm, Present) and world.vm.value.state is VmState.RUNNING:
        yield "vm", world.vm.value.name, world.vm.value.zone
    node = current_node(world, record)
    if node is not None and node.state is NodeState.READY and node.workers:
        yield "tpu", node.name, node.zone
