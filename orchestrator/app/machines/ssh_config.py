"""Write the machines of a deployment as OpenSSH configuration: as text, in a file, or included by the user's."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.this_computer.state_folders import included_file
from orchestrator.config.load import find
from orchestrator.contract.replacing import replacing
from orchestrator.emulator.machines.start_module import command
from orchestrator.errors import UsageError
from orchestrator.planning.tpu.tpu_types import most_workers
from orchestrator.private_folders import private_file, private_folder
from orchestrator.ssh.client_config import NamedHost, client_config, plain_path

KNOWN_HOSTS = "ssh_known_hosts"
"""Folder of a deployment with the host keys for OpenSSH."""
_PLACES = ("TPUCTL_STATE_DIR", "TPUCTL_LOCAL_DIR", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG")
"""Variables to repeat in the ProxyCommand: an editor does not start from this shell."""
_BEGIN = "# tpuctl wrote these three lines. To take them out: tpuctl ssh-config --remove"
_END = "# End of tpuctl's lines."


@dataclass(frozen=True)
class SshConfig:
    """The machines' host names and their ssh_config text."""

    hosts: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Included:
    """
    What was done to the user's configuration *config*; *backup* is None if it was not changed.

    *absent*: there was no file of this deployment to delete.
    """

    file: Path
    config: Path
    backup: Path | None
    changed: bool
    absent: bool = False


def ssh_config(choice: Choice, reporter: Reporter) -> SshConfig:
    """Return the Host blocks of a deployment, which stay valid when machines are replaced."""
    session = Session(choice, reporter, only_observes=True)
    spec = session.spec
    own = [f"w{number}" for number in range(most_workers(spec, session.catalog))] + (
        [] if spec.vm == "none" else ["vm"]
    )
    # The bare name means the machine that runs the job, as for `tpuctl ssh`.
    machines = [
        NamedHost((*((spec.name,) if one == "w0" else ()), f"{spec.name}-{one}"), _proxy(choice, one))
        for one in own
    ]
    text = client_config(machines, session.ssh_settings, session.folder / KNOWN_HOSTS)
    return SshConfig(tuple(name for one in machines for name in one.names), text)


def include(choice: Choice, text: str, approve: Callable[[Path], None], reporter: Reporter) -> Included:
    """
    Write *text* to a file of this deployment, and make the user's configuration include all such files.

    *approve* is called before that configuration is changed, once for all deployments. The user's own lines
    stay byte for byte, and a copy is made first. Raise UsageError and OSError.
    """
    session = Session(choice, reporter, only_observes=True)
    file = included_file(choice.cloud, session.project, session.spec.name)
    lines, config = _lines(file.parent), user_config()
    if lines not in _content(config):
        approve(config)
    private_folder(file.parent)
    private_file(file, text.encode())
    # Read after the question, since the file may have been edited meanwhile.
    before = _content(config)
    if lines in before:
        return Included(file, config, None, changed=False)
    private_folder(config.parent)
    backup = _backed_up(config)
    # At the top: further down the line would belong to the Host block before it.
    _replace(config, lines + before)
    return Included(file, config, backup, changed=True)


def exclude(choice: Choice, reporter: Reporter) -> Included:
    """Delete the file of this deployment; with the last one, remove our lines from the user's configuration."""
    session = Session(choice, reporter, only_observes=True)
    file = included_file(choice.cloud, session.project, session.spec.name)
    lines, config = _lines(file.parent), user_config()
    absent = not file.exists()
    file.unlink(missing_ok=True)
    before = _content(config)
    if any(file.parent.glob("*.conf")) or lines not in before:
        return Included(file, config, None, changed=False, absent=absent)
    backup = _backed_up(config)
    _replace(config, before.replace(lines, b"", 1))
    return Included(file, config, backup, changed=True, absent=absent)


def user_config() -> Path:
    """Return the user's OpenSSH configuration with links resolved, since dotfiles are often links."""
    return (Path.home() / ".ssh" / "config").resolve()


def _content(config: Path) -> bytes:
    return config.read_bytes() if config.exists() else b""


def _lines(folder: Path) -> bytes:
    quoted = plain_path(folder)[:-1]
    return f'{_BEGIN}\nInclude {quoted}/*.conf"\n{_END}\n\n'.encode()


def _proxy(choice: Choice, machine: str) -> tuple[str, ...]:
    """Return the ProxyCommand for a machine; it works from any folder and with any environment."""
    places = [f"{name}={os.environ[name]}" for name in _PLACES if name in os.environ]
    file = (choice.file or find(Path.cwd())).absolute()
    words = ["ssh-proxy", "--cloud", choice.cloud, "--file", str(file)]
    for setting in choice.settings:
        words += ["--set", setting]
    return (*(["env", *places] if places else []), *_tpuctl(), *words, machine)


def _tpuctl() -> list[str]:
    """Return the command of the running tpuctl, with its absolute path."""
    for script in (Path(sys.argv[0]), Path(sys.executable).with_name("tpuctl")):
        if script.name == "tpuctl" and script.is_file():
            return [str(script.absolute())]
    return command("orchestrator")


def _backed_up(config: Path) -> Path | None:
    """Copy the user's configuration to a new file beside it; return that, None if there is nothing to copy."""
    if not config.exists():
        return None
    names = (config.with_name(f"{config.name}.before-tpuctl{n or ''}") for n in count())
    backup = next(name for name in names if not name.exists())
    shutil.copy2(config, backup)
    return backup


def _replace(config: Path, content: bytes) -> None:
    mode = config.stat().st_mode & 0o777 if config.exists() else 0o600
    try:
        with replacing(config, 0o600) as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
    except OSError as error:
        raise UsageError(
            f"{config} cannot be written: {error.strerror}",
            hint="write the Include line at its head yourself: tpuctl ssh-config -o FILE",
            changed="it is unchanged", code="TPU-101",
        ) from error  # fmt: skip
