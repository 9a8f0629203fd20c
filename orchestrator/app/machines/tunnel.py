"""Tunnel a local port to a service on a machine, and keep the port while machines are replaced."""

import json
import math
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.machines.workers import ended_error, log_command, may_pass, the_vm, worker_host_of
from orchestrator.clock import wait_until
from orchestrator.contract.backoff import Backoff, retried
from orchestrator.contract.service_state import ServicePhase, ServiceState, service_state
from orchestrator.domain.remote import Host
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.clean_text import cut
from orchestrator.engine.blueprint import ROOT
from orchestrator.engine.reconcile.deliver import deliver_sidecars
from orchestrator.errors import (
    UNFORESEEN,
    HostKeyError,
    RemoteError,
    TpuctlError,
    UsageError,
)
from orchestrator.planning.sidecars import REQUIREMENTS, log_folder, sidecars
from orchestrator.private_folders import private_file
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.port_forward import HERE, ForwardTarget, Tunnel, port_here
from orchestrator.ssh.run import run_over

if TYPE_CHECKING:
    from orchestrator.ssh.connect.connection import Connection

CONNECT_TIMEOUT = 180.0
"""Seconds for the first contact; booting a machine takes one or two minutes."""
PAUSE = 2.0
"""Seconds between two tries to reach a program that starts."""
LOOPBACK = 'printf %s "${TPUCTL_LOOPBACK:-127.0.0.1}"'
"""Prints where a machine's programs listen; local machines share the computer's network."""
PAGE = "tunnel.html"
MAX_STATE = 16 << 10
"""Characters of a sidecar's state at most."""


@dataclass(frozen=True)
class Opened:
    """The local address of a service."""

    service: str
    url: str
    port: int
    on: str


@dataclass(frozen=True)
class TunnelState:
    """The state of a sidecar, where it listens, and its token."""

    service: ServiceState
    address: str
    port: int
    token: str


@dataclass(frozen=True)
class Service:
    """The service to reach: a sidecar of this *name*, or any program on *port*; *on* is the machine's role."""

    name: str
    on: str
    port: int
    worker: int = 0
    sidecar: bool = False


def open_tunnel(
    choice: Choice, service: str, port: int | None, opened: Callable[[Opened], None], reporter: Reporter, *,
    worker: int, on_vm: bool, browse: bool,
) -> None:  # fmt: skip
    """
    Keep a tunnel to *service* until the deployment is over; *opened* is called with each new address.

    *port* None means the service's own, or a free one. *browse* opens the address in a browser.
    """
    session = Session(choice, reporter)
    wanted = find_service(session.spec, service, on_vm=on_vm, worker=worker)
    tunnel = Tunnel(port_here(port, wanted.port, shared=choice.cloud == "local"))
    shown: set[str] = set()

    def ready(found: Service, token: str) -> None:
        url = address(HERE, tunnel.port, token)
        if url in shown:
            return
        shown.add(url)
        opened(Opened(found.name, url, tunnel.port, found.on))
        if browse:
            _browse(url, session.folder)

    try:
        keep_open(session, wanted, tunnel, ready)
    finally:
        tunnel.close()
        # The page contains the notebook's token.
        (session.folder / PAGE).unlink(missing_ok=True)


def address(host: str, port: int, token: str) -> str:
    """Return the URL for a browser; *token*, which the machine reports, is quoted."""
    return f"http://{host}:{port}/" + (f"lab?token={quote(token, safe='')}" if token else "")


def _browse(url: str, folder: Path) -> None:
    """Open a page that redirects to *url*, so that the token is not on the browser's command line."""
    page = folder / PAGE
    private_file(page, f'<meta http-equiv="refresh" content="0; url={escape(url)}">'.encode())
    webbrowser.open(page.as_uri())


def find_service(spec: Spec, text: str, *, on_vm: bool, worker: int) -> Service:
    """Return the service named on the command line. Raise UsageError for an unknown one."""
    if text not in REQUIREMENTS:
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
            raise UsageError(
                f"there is no service {text!r}", hint="write tensorboard, jupyter or the number of a port",
                changed="nothing was changed",
            )  # fmt: skip
        return Service(f"port {int(text)}", "vm" if on_vm else "tpu", int(text), worker)
    found = [s for s in sidecars(spec, "") if s.name == text]
    if not found:
        raise UsageError(
            f"{spec.name} has no {text}",
            hint=f"add `sidecars: {{{text}: {{}}}}` to tpuctl.yaml, then run: tpuctl up",
            changed="nothing was changed",
            code="TPU-134",
        )
    if on_vm or worker:
        hint = f"{text} runs on the machine that sidecars.{text}.on names; leave --vm and --worker out"
        raise UsageError(
            "--vm and --worker go with the number of a port", hint=hint, changed="nothing was changed"
        )
    return Service(text, found[0].on, found[0].port, sidecar=True)


def keep_open(
    session: Session, service: Service, tunnel: Tunnel, ready: Callable[[Service, str], None]
) -> None:
    """
    Keep the tunnel connected until the deployment is over; *ready* gets each machine's token or "".

    Raise the last error if the first contact fails for CONNECT_TIMEOUT seconds.
    """
    first_end, connected = session.clock.now() + CONNECT_TIMEOUT, False
    say = _once(session.reporter)
    while True:
        try:
            over = _over(session, service)
            if over and connected:
                session.reporter.say(f"closed: {over.message}")
                return
            if over:
                raise over
            host = _host(session, service)
            say(f"connecting to {host.name}")
            with session.ssh.connect(host) as connection:
                target, token = _reach(session, service, host, connection, fresh=not connected)
                tunnel.lead(target)
                ready(service, token)
                if connected:
                    session.reporter.say(f"connected again, to {host.name}", style="good")
                connected = True
                gone = partial(_gone, connection, service, tunnel)
                wait_until(gone, session.clock, math.inf, 0.5, longest=0.5)
            say(f"{host.name} does not answer any more; waiting for it")
        except HostKeyError as error:
            # A replacement boots first and publishes its key then.
            if not connected or host.host_keys:
                raise
            say(f"waiting: {error.message}")
        except TpuctlError as error:
            if not may_pass(error) or (not connected and session.clock.now() > first_end):
                raise
            say(f"waiting: {error.message}")
        finally:
            tunnel.lead(None)
        session.clock.wait(PAUSE)


def _once(reporter: Reporter) -> Callable[[str], None]:
    """Return a function that reports a text unless it was the last one."""
    said = ""

    def say(text: str) -> None:
        nonlocal said
        if text != said:
            reporter.say(text)
        said = text

    return say


def _over(session: Session, service: Service) -> UsageError | None:
    """Return an error if the deployment has ended, so that no machine will come back."""
    over = ended_error(session)
    if over is not None and session.records.current.outcome and service.name == "tensorboard":
        logs = log_folder(session.spec, session.blueprint.bucket)
        tools = REQUIREMENTS[service.name]
        over.explain(hint=f"here: pip install {tools}; tensorboard --load_fast=false --logdir {logs}")
    return over


def _host(session: Session, service: Service) -> Host:
    return the_vm(session) if service.on == "vm" else worker_host_of(session, service.worker)


def _reach(
    session: Session, service: Service, host: Host, connection: "Connection", *, fresh: bool
) -> tuple[ForwardTarget, str]:
    """
    Return where the service listens, and its token; wait for a sidecar until it answers.

    At the first (*fresh*) contact the machine gets the settings of the deployment file; later, those may be
    older than what it has. Raise UsageError if the sidecar has failed.
    """
    if not service.sidecar:
        # A machine of the local cloud has a loopback address of its own, and the user's program may not know it.
        own = _address(run_over(connection, LOOPBACK).stdout)
        targets = [ForwardTarget(connection, one, service.port) for one in dict.fromkeys((own, HERE))]
        listening = next((one for one in targets if one.listens()), None)
        if listening is None:
            session.reporter.say(
                f"nothing listens on port {service.port} of {host.name} yet; the tunnel stands all the same"
            )
        return listening or targets[0], ""
    if fresh:
        deliver_sidecars(session.cloud, session.blueprint, host, service.on)
    say = _once(session.reporter)

    def answering() -> tuple[ForwardTarget, str]:
        state = _state(connection, service)
        target = ForwardTarget(connection, state.address, state.port)
        if state.service.phase is ServicePhase.RUNNING and _answers(target, service):
            return target, state.token
        if state.service.phase is ServicePhase.FAILED:
            raise _failed(session.choice.cloud, host, service, state.service.text)
        raise _StartingError(f"{service.name} on {host.name}: {_words(state.service.phase)}")

    return retried(
        answering, (_StartingError,), Backoff(PAUSE, PAUSE), now=session.clock.monotonic,
        wait=session.clock.wait, failed=lambda starting: say(str(starting)),
    )  # fmt: skip


class _StartingError(Exception):
    """A sidecar does not answer yet; the text says what it does meanwhile."""


def _gone(connection: "Connection", service: Service, tunnel: Tunnel) -> bool:
    return not connection.alive or (service.sidecar and tunnel.refused.is_set())


def _words(phase: ServicePhase) -> str:
    installing = phase is ServicePhase.INSTALLING
    return "installing; the first time takes a minute or two" if installing else "starting"


def _answers(target: ForwardTarget, service: Service) -> bool:
    """Return whether the service answers. Raise UsageError for a notebook that requires no token."""
    if service.name != "jupyter":
        return bool(target.answers("/"))
    status = target.answers("/api/status")
    # 200 without a token means that every user of this computer would get a shell there.
    if status == 200:
        raise UsageError(
            "JupyterLab answers without its token: a settings file of the machine switches it off",
            hint="look below /etc/jupyter there: tpuctl ssh", changed="no tunnel was opened",
        )  # fmt: skip
    return status == 403


def _state(connection: "Connection", service: Service) -> TunnelState:
    done = run_over(connection, elevated(remote_script("sidecars", "state", service.name), ROOT))
    message = f"it exits with {done.exit_code}: {done.stderr.strip()[-300:]}"
    if not done.exit_code:
        try:
            return state_of(done.stdout)
        except UNFORESEEN as error:
            message = f"{type(error).__name__}: {error}"
    raise RemoteError(
        f"{service.name}: its state cannot be read: {cut(message, 300)}", changed="reading it changed nothing"
    )


def state_of(text: str) -> TunnelState:
    """Parse a sidecar's state as a machine reports it. Raise one of UNFORESEEN for anything else."""
    # The machine runs third-party code, so its output is bounded, typed and cut.
    if len(text) > MAX_STATE:
        raise ValueError(f"{len(text)} characters")
    body = json.loads(text)
    port, words = body["port"], (body["state"], body["address"], body["token"])
    if type(port) is not int or not 0 <= port < 65536 or not all(isinstance(one, str) for one in words):
        raise ValueError("no state of a sidecar")
    return TunnelState(service_state(cut(body["state"], 300)), _address(body["address"]), port, body["token"])


def _address(text: str) -> str:
    """Parse the IP address on which a machine's programs listen; "" means loopback. Raise ValueError."""
    try:
        # An IP address only: a name would be resolved here, and could lead the tunnel elsewhere.
        return str(ip_address(text.strip()))
    except ValueError:
        return HERE


def _failed(cloud: str, host: Host, service: Service, state: str) -> UsageError:
    log = log_command(cloud, f"sidecar-{service.name}", on_vm=service.on == "vm")
    return UsageError(
        f"{service.name} on {host.name} {state}",
        hint=f"see: {log}",
        changed="the job is not touched by this; it is tried again each minute",
    )
