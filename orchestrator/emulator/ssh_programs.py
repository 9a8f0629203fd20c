"""SSH programs for clients that know no port but 22, where this user cannot listen on it."""

import shutil
import socket
from pathlib import Path

from orchestrator.emulator.machines.settings import STANDARD_PORT, network_of

CONFIG = """\
Host {hosts}
  Port {port}
Match all
  Include ~/.ssh/config
  Include /etc/ssh/ssh_config
"""


def standard_port_opens(address_base: str) -> bool:
    """Tell whether machines of this local cloud can listen on port 22 of their addresses."""
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
    Write `ssh` and `scp` that find this cloud's machines at *ssh_port*; return the folder for PATH.

    They hand on to the programs of the computer. A port on the command line outranks theirs, and the
    user's own configuration holds as before.
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
