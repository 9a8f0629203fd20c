"""Connect an SSH client to a machine of the deployment, and wait for one that is being replaced."""

import sys
from collections.abc import Callable

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.machines.ssh_config import KNOWN_HOSTS
from orchestrator.app.machines.workers import ended_error, may_pass, the_vm, when_reached, worker_host_of
from orchestrator.domain.remote import Host
from orchestrator.errors import HostKeyError, TransientError, UsageError
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.client_config import note_keys
from orchestrator.ssh.elevate import as_login
from orchestrator.ssh.proxy import ServerLine, hung_up

LINK_TIMEOUT = 30.0
"""Seconds to find where the machine listens, before OpenSSH gives up by itself."""


def lead(choice: Choice, machine: str, timeout: float, reporter: Reporter) -> None:
    """
    Connect standard input and output to *machine*: `w0`, `w1`, ... or `vm`.

    Wait up to *timeout* seconds for a machine that is being replaced. Its host keys are written to known_hosts
    before its first bytes are passed on. At the first connection to it `tpuctl` in the login's home becomes a
    link to its files. Raise the last error.
    """
    session = Session(choice, reporter, only_observes=True)
    find = _finder(session, machine)

    def connect() -> ServerLine:
        over = ended_error(session)
        if over is not None:
            raise over
        return _line(session, find(), machine, reporter)

    line = when_reached(
        session.clock, connect, timeout,
        lambda error: not may_pass(error) or hung_up(sys.stdin.fileno()),
        lambda message: reporter.say(f"tpuctl: waiting for {session.spec.name}-{machine}: {message}"),
    )  # fmt: skip
    try:
        line.carry(sys.stdin.fileno(), sys.stdout.fileno())
    finally:
        line.close()


def _finder(session: Session, machine: str) -> Callable[[], Host]:
    if machine == "vm" and session.spec.vm != "none":
        return lambda: the_vm(session)
    number = machine.removeprefix("w")
    if machine == number or not (number.isascii() and number.isdigit()):
        raise UsageError(
            f"{session.spec.name} has no machine {machine!r}", hint="run: tpuctl ssh-config", code="TPU-132",
            changed="nothing was changed",
        )  # fmt: skip
    return lambda: worker_host_of(session, int(number))


def _line(session: Session, host: Host, machine: str, reporter: Reporter) -> ServerLine:
    settings, name = session.ssh_settings, f"{session.spec.name}-{machine}"
    try:
        linked = note_keys(name, host, settings, session.folder / KNOWN_HOSTS)
    except HostKeyError as error:
        # A machine without keys is booting, so try again; an invalid key stays invalid.
        if host.host_keys:
            raise
        raise TransientError(
            error.message, hint=error.hint, changed=error.changed, code=error.code
        ) from error
    line = ServerLine(host, settings, session.ssh.connect)
    line.open()
    if not linked:
        command = as_login(remote_script("link"), settings.root)
        (answer,) = session.ssh.ask([host], command, LINK_TIMEOUT)
        if answer.exit_code == 0:
            note_keys(name, host, settings, session.folder / KNOWN_HOSTS, linked=True)
        else:
            # Only a convenience: the connection itself works without it.
            message = answer.error.message if answer.error else answer.stderr.strip()
            reporter.say(f"tpuctl: no link ~/tpuctl on {host.name}: {message}")
    return line
