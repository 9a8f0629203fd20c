"""Start, stop and query the local cloud, and inject faults."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.domain.names import deployment_of
from orchestrator.emulator import control
from orchestrator.emulator.address import Address, local_folder
from orchestrator.emulator.machines.machine_image import described
from orchestrator.emulator.machines.machine_python import interpreters
from orchestrator.emulator.machines.machine_settings import Tools
from orchestrator.emulator.start_options import Options, load_options, without_ports
from orchestrator.errors import LocalCloudError, UsageError
from orchestrator.scripts import uv_program


@dataclass(frozen=True)
class LocalStart:
    """Where the local cloud runs and what its machines are; without *fresh* it ran already, as it was."""

    endpoint: str
    project: str
    machines: str
    fresh: bool


def start_local(named: Mapping[str, Any], *, other_ports: bool) -> LocalStart:
    """
    Start the local cloud with the options in *named*; other options stay as at the last start.

    A running one keeps its settings. Raise UsageError.
    """
    python, here = named.get("python"), interpreters(os.environ)
    if python and python not in here:
        raise UsageError(
            f"--python {python}: this computer has {', '.join(here)}",
            hint=f"run: uv python install {python} (or pyenv install)",
            changed="nothing was started",
        )
    options = replace(load_options(local_folder()), **named)
    # Options not given stay, because existing disks and buckets were made with them.
    address, fresh = ensure_running(without_ports(options) if other_ports else options)
    return LocalStart(address.endpoint, address.project, address.machines, fresh)


def ensure_running(options: Options | None = None) -> tuple[Address, bool]:
    """Return the local cloud's address and whether it was started now; *options* apply to a start only."""
    return control.ensure_running(options, _tools)


def _tools() -> Tools:
    return Tools(uv_program.shared_folder(), uv_program.any_program() or "")


@dataclass(frozen=True)
class LocalStop:
    """
    Whether the local cloud *ran* before it was stopped; with *emptied* all that was in it is gone.

    *training* are the deployments whose TPUs ran until then.
    """

    ran: bool
    emptied: bool = False
    training: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the result as `--json` prints it."""
        return {"running": False} if self.emptied else {"running": False, "stopped": self.ran}


@dataclass(frozen=True)
class TakenAway:
    """What was taken away: a TPU or VM, with a *notice* or at once, or one *worker* of it."""

    name: str
    worker: int | None
    notice: bool

    def as_dict(self) -> dict[str, object]:
        """Return the result as `--json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class InjectedFaults:
    """The faults of the next calls of a *method*, one for each."""

    method: str
    faults: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the result as `--json` prints it."""
        return {"method": self.method, "faults": list(self.faults)}


@dataclass(frozen=True)
class OddState:
    """A resource or zone that was put into a state."""

    name: str
    state: str

    def as_dict(self) -> dict[str, object]:
        """Return the result as `--json` prints it."""
        return asdict(self)


def stop_local() -> LocalStop:
    """Stop the local cloud and its machines. Disks and buckets stay."""
    training = _training()
    return LocalStop(control.stop(), training=training)


def _training() -> tuple[str, ...]:
    """Return the deployments with a TPU that runs; none if the local cloud does not answer, which is ended too."""
    try:
        body = control.call("status") if control.running() else {}
    except LocalCloudError:
        return ()
    runs = {machine["id"] for machine in body.get("machines", ()) if machine["running"]}
    names = (tpu["name"] for tpu in body.get("tpus", ()) if runs & set(tpu["machines"]))
    return tuple(sorted({deployment_of(name) for name in names}))


def reset_local() -> LocalStop:
    """Stop the local cloud and delete everything in it."""
    control.reset()
    return LocalStop(ran=True, emptied=True)


def local_status() -> dict[str, Any]:
    """Return address, machines, pending faults and hypothetical cost, as in `--json`."""
    address = control.running()
    # Before the first start, too: which Python the job will find is known by then.
    body = control.call("status") if address else {"images": described(interpreters(os.environ))}
    return {"running": address is not None, "endpoint": address.endpoint if address else "", **body}


def local_environment() -> dict[str, str]:
    """Return the variables that point other tools to the local cloud; start it if needed."""
    return control.environment(ensure_running()[0])


def preempt(name: str, worker: int | None, *, notice: bool) -> TakenAway:
    """Preempt a TPU or VM, or kill one *worker* of it."""
    if worker is None:
        control.call("preempt", {"name": name, "notice": notice})
    else:
        control.call("kill", {"name": name, "worker": worker})
    return TakenAway(name, worker, notice and worker is None)


def inject(method: str, faults: Sequence[str]) -> InjectedFaults | OddState:
    """
    Make the next calls of *method* fail, one for each of *faults*.

    The method `state` puts a node, a queued resource or a zone into a state: *faults* are its name and the
    state. Raise UsageError for another number of them.
    """
    if method != "state":
        control.call("fault", {"method": method, "faults": list(faults)})
        return InjectedFaults(method, tuple(faults))
    if len(faults) != 2:
        raise UsageError(
            "local fault state: name a node and a state", hint="tpuctl local fault state NAME STATE",
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    name, state = faults
    control.call("state", {"name": name, "state": state})
    return OddState(name, state)
