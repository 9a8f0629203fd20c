"""Start, stop and control the local cloud from the command line."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from orchestrator.clock import SystemClock, wait_until
from orchestrator.emulator.address import CONTROL, PREFIX, Address, local_folder, read_address, start_of
from orchestrator.emulator.machines.environment import client_variables
from orchestrator.emulator.machines.machine_settings import STANDARD_PORT, MachineSettings, Tools, network_of
from orchestrator.emulator.machines.socket_owner import unix_connection
from orchestrator.emulator.packages import INSTALL, missing_packages
from orchestrator.emulator.start_options import PORT_TAKEN, Options, load_options, save_options, without_ports
from orchestrator.errors import LocalCloudError
from orchestrator.private_folders import private_folder

if TYPE_CHECKING:
    from orchestrator.emulator.machines.local_machines import LocalMachines

JSON = {"Content-Type": "application/json"}
START_TIMEOUT = 30.0
"""Seconds for the local cloud to start and write its address."""
STOP_TIMEOUT, KILL_TIMEOUT, POLL_SECONDS = 20.0, 5.0, 0.05
"""For the daemon's own end after SIGTERM, after each SIGKILL, and between two checks of it."""
PORT_TRIES = 3
END_IT = "end what holds the port and start again; or take other ports: tpuctl local start --other-ports"
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another command that is starting the local cloud."""
CONFIG = """\
Host {hosts}
  Port {port}
Match all
  Include ~/.ssh/config
  Include /etc/ssh/ssh_config
"""


class PortTakenError(LocalCloudError):
    """Another program uses a port of the local cloud."""


def ensure_running(
    options: Options | None = None, tools: Callable[[], Tools] = Tools
) -> tuple[Address, bool]:
    """
    Return the local cloud's address and whether it was started now; the options apply to a start only.

    Raise LocalCloudError.
    """
    folder = local_folder()
    private_folder(folder)
    try:
        # Two commands could start two daemons on the same state, so the second waits and finds the first's.
        with FileLock(folder / "start.lock", timeout=LOCK_TIMEOUT):
            address = read_address(folder)
            if address is not None:
                return address, False
            new = not (folder / "options.json").exists()
            if options is not None:
                _machines(
                    folder, options
                )  # raises before settings are stored with which no command could work
                save_options(folder, options)
            return _started(folder, tools, on_demand=options is None, new=new), True
    except Timeout:
        raise LocalCloudError(
            f"another tpuctl has been starting the local cloud for {LOCK_TIMEOUT:.0f} s",
            hint="wait for it, or end it; then run the same command again",
            changed="nothing was started",
        ) from None


def _started(folder: Path, tools: Callable[[], Tools], *, on_demand: bool, new: bool) -> Address:
    """Start the local cloud; a *new* one takes other ports if one of its own was just taken."""
    tries = PORT_TRIES if new else 1
    while True:
        tries -= 1
        try:
            return _start(folder, tools, on_demand=on_demand)
        except PortTakenError:
            if not tries:
                raise
            save_options(folder, without_ports(load_options(folder)))


def _start(folder: Path, tools: Callable[[], Tools], *, on_demand: bool) -> Address:
    _check_extra()
    found = tools()
    reason = "on-demand" if on_demand else "asked-for"
    (folder / "daemon.log").touch(mode=0o600)
    with (folder / "daemon.log").open("ab") as log:
        # A session of its own: neither Ctrl-C nor the end of this terminal may end the daemon.
        child = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.emulator.daemon", str(folder), reason, *map(str, found)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            env=_environment(),
        )  # fmt: skip

    def address_or_end() -> Address | bool:
        return read_address(folder) or child.poll() is not None

    # Another process, so this wait is real time.
    address = wait_until(address_or_end, SystemClock(), START_TIMEOUT, 0.05, longest=0.05)
    if isinstance(address, Address):
        return address
    tail = (folder / "daemon.log").read_text(errors="replace")[-600:].strip()
    last = tail.splitlines()[-1] if tail else "no word from it"
    read = f"read {folder / 'daemon.log'}, then run: tpuctl local reset"
    kind, hint = (PortTakenError, END_IT) if child.returncode == PORT_TAKEN else (LocalCloudError, read)
    raise kind(f"the local cloud did not start: {last}", hint=hint, changed="no deployment was touched")


def _environment() -> dict[str, str]:
    """Return an environment in which the daemon imports this package, from any folder."""
    parent = str(Path(__file__).resolve().parents[2])
    paths = [parent, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _check_extra() -> None:
    if missing := missing_packages():
        raise LocalCloudError(
            f"the local cloud needs {', '.join(missing)}", hint=f"run: {INSTALL}",
            changed="nothing was started",
        )  # fmt: skip


def running() -> Address | None:
    return read_address(local_folder())


def call(verb: str, body: dict[str, Any] | None = None, *, folder: Path | None = None) -> dict[str, Any]:
    """Call a control route of the local cloud in *folder*. Raise LocalCloudError with the reason it gives."""
    folder = folder or local_folder()
    if read_address(folder) is None:
        raise LocalCloudError(
            "the local cloud does not run", hint="run: tpuctl local start", changed="nothing was changed"
        )
    data = None if body is None else json.dumps(body).encode()
    connection = _Control(folder)
    try:
        connection.request("GET" if data is None else "POST", f"{PREFIX}/{verb}", data, JSON)
        answer = connection.getresponse()
        found: dict[str, Any] = json.load(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LocalCloudError(
            f"the local cloud does not answer: {error}",
            hint="run: tpuctl local stop",
            changed="whether it has done what was asked is not known",
        ) from error
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        details = found.get("error", {})
        raise LocalCloudError(
            details.get("message", answer.reason),
            hint=details.get("hint", ""),
            changed=details.get("changed", ""),
        )
    return found


class _Control(http.client.HTTPConnection):
    """A connection to the daemon over its Unix socket, which only the folder's owner can open."""

    def __init__(self, folder: Path) -> None:
        super().__init__("control", timeout=30)
        self._folder = folder

    def connect(self) -> None:
        self.sock = unix_connection(self._folder, CONTROL)
        self.sock.settimeout(self.timeout)


def stop() -> bool:
    """
    Stop the local cloud and all its machines; disks and buckets stay. Return whether anything ran.

    Machines left by a dead daemon are ended too.
    """
    folder = local_folder()
    address = read_address(folder)
    if address is None:
        return _end_leftovers(folder)
    # Its start time was compared, so no other process with a reused pid is killed.
    os.kill(address.pid, signal.SIGTERM)
    timeout, clock = STOP_TIMEOUT, SystemClock()
    while not wait_until(lambda: start_of(address.pid) != address.started, clock, timeout, POLL_SECONDS):
        # SIGKILL loses nothing, because every change is on disk before it is answered. `reap` ends the machines.
        os.kill(address.pid, signal.SIGKILL)
        timeout = KILL_TIMEOUT
    reap(folder)
    return True


def _end_leftovers(folder: Path) -> bool:
    """
    End the machines of a dead daemon, unless another command is starting a new one.

    Return whether a machine still ran.
    """
    if not (folder / "machines").is_dir():
        return False
    with suppress(Timeout), FileLock(folder / "start.lock", timeout=LOCK_TIMEOUT):
        if read_address(folder) is None:
            return reap(folder)
    return False


def stop_if_idle() -> bool:
    """
    Stop a local cloud that a deployment had started, if it has no machine left and none is requested.

    Return whether it was stopped.
    """
    address = running()
    if address is None or not address.on_demand:
        return False
    status = call("status")
    return False if status["machines"] or status.get("queued") else stop()


def reap(folder: Path, *, disks: bool = False) -> bool:
    """Kill what a dead daemon left running; return whether a machine ran."""
    machines = _machines(folder, load_options(folder))
    running = machines.reattach()
    # A machine that has just booted may have no pid file yet, but its processes carry the marker.
    machines.reap_all(disks=disks)
    return bool(running)


def _machines(folder: Path, options: Options) -> "LocalMachines":
    """Return the machines in *folder*. Raise LocalCloudError if their kind cannot run here."""
    # Imported here: most commands only ask the daemon and need no machines.
    from orchestrator.emulator.machines.machine_kinds import make_machines

    settings = MachineSettings(
        folder / "machines", options.cloud_id, "", options.ssh_port, options.metadata_port
    )
    return make_machines(options.machines, settings)


def reset() -> None:
    """Stop the local cloud and delete its machines, disks, buckets and settings."""
    folder = local_folder()
    stop()
    if (folder / "options.json").exists():
        reap(folder, disks=True)
    shutil.rmtree(folder, ignore_errors=True)


def environment(address: Address) -> dict[str, str]:
    """
    Return the variables that point gcloud, Google's clients and tpuctl to the local cloud.

    gcloud's requests to any other host go to a proxy that refuses them. If machines cannot listen on port 22,
    PATH starts with an ssh and scp that know the port.
    """
    options = load_options(local_folder())
    variables = {
        "TPUCTL_CLOUD": "local",
        **client_variables(address.endpoint, address.project),
        "CLOUDSDK_PROXY_TYPE": "http",
        "CLOUDSDK_PROXY_ADDRESS": "127.0.0.1",
        "CLOUDSDK_PROXY_PORT": str(options.proxy_port),
    }
    if not standard_port_opens(options.address_base):
        programs = ssh_programs(local_folder(), options.address_base, options.ssh_port)
        variables["PATH"] = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    return variables


def standard_port_opens(address_base: str) -> bool:
    """Return whether machines of this local cloud can listen on port 22 of their addresses."""
    last = str(network_of(address_base).broadcast_address - 1)
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((last, STANDARD_PORT))
        except OSError:
            return False
    return True


def ssh_programs(folder: Path, address_base: str, ssh_port: int) -> Path:
    """
    Write `ssh` and `scp` that use *ssh_port* for this cloud's machines; return the folder for PATH.

    They call the computer's own programs. A port on the command line takes precedence, and the user's
    configuration applies.
    """
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    config = folder / "ssh_config"
    hosts = address_base.rpartition(".0.0")[0] + ".*"
    config.write_text(CONFIG.format(hosts=hosts, port=ssh_port))
    for name in ("ssh", "scp"):
        real = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")
        if real:
            program = programs / name
            program.write_text(f"#!/bin/sh\nexec {real} -F '{config}' \"$@\"\n")
            program.chmod(0o755)
    return programs
