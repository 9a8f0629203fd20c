"""
Run a machine's guest agent: host key, accounts, startup script at each boot, shutdown script.

Started as `python -m orchestrator.emulator.machines.guest CONFIG`; SIGTERM is the power button.
"""

import asyncio
import ctypes
import fcntl
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import asyncssh

from orchestrator.emulator.machines.accounts import accounts
from orchestrator.emulator.machines.environment import user_environment
from orchestrator.emulator.machines.guest_metadata import MetadataClient, the_end
from orchestrator.emulator.machines.machine_python import install_python
from orchestrator.emulator.machines.machine_settings import MARKER, GuestConfig
from orchestrator.emulator.machines.process_table import kill_all, members
from orchestrator.emulator.machines.script_runner import Serial, run_script
from orchestrator.emulator.machines.services import OwnServices, SystemServices
from orchestrator.private_folders import private_file

LOCKS = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/apt/lists/lock",
    "var/cache/apt/archives/lock",
)
"""Files that dpkg and apt lock, below the root of the machine's files (docs/facts.md 5.5)."""
HOLDER = b"unattended-upgr"
PR_SET_NAME = 15  # linux/prctl.h


class Guest:
    """The steps of Google's guest agent, in its order (docs/facts.md 2.4)."""

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._state = Path(config.state)
        self._serial = Serial(self._state / "serial.log")
        self._metadata = MetadataClient(config.address, config.metadata_port)
        self._services = (
            SystemServices(config) if config.kind == "namespace" else OwnServices(config, self._serial)
        )

    async def run(self) -> None:
        """Run until SIGTERM; if the daemon is dead, end at once, because the machine has no owner any more."""
        end = asyncio.create_task(the_end(self._config.address, self._config.metadata_port))
        service = asyncio.create_task(self._serve())
        await asyncio.wait({end, service}, return_when=asyncio.FIRST_COMPLETED)
        if service.done():
            end.cancel()
            service.result()
            return
        self._serial.line(f"local cloud: the machine ends with its daemon: {end.result()}")
        try:
            kill_all(self._others)
        finally:
            # No orderly end of the event loop, since its output has no receiver any more.
            os._exit(1)

    async def _serve(self) -> None:
        """Boot, serve until SIGTERM, shut down."""
        power_button = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, power_button.set)
        running = asyncio.create_task(self._live())
        pressed = asyncio.create_task(power_button.wait())
        await asyncio.wait({running, pressed}, return_when=asyncio.FIRST_COMPLETED)
        if not pressed.done():
            running.result()
        running.cancel()
        await self._shut_down()

    async def _live(self) -> None:
        """Start everything, then follow the metadata for added and removed keys."""
        config = self._config
        await asyncio.to_thread(
            install_python,
            Path(config.files),
            Path(config.python),
            Path(config.shared) / "pip",
            with_pip=config.pip,
        )
        key = self._state / "ssh_host_ed25519_key"
        public = await asyncio.to_thread(_host_key, key)
        shown = Path(config.files) / "etc/ssh/ssh_host_ed25519_key.pub"
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"ssh-ed25519 {public}\n")
        attributes = await self._metadata.attributes("instance")
        project = await self._metadata.attributes("project")
        await self._services.start(key)
        await self._services.set_accounts(accounts(attributes, project))
        if attributes.get("enable-guest-attributes", "").upper() == "TRUE":
            await self._metadata.publish("hostkeys", "ssh-ed25519", public)
        startup = asyncio.create_task(self._script("startup-script", {**project, **attributes}))
        etag = ""
        while True:
            attributes, etag = await self._metadata.next_attributes(etag or "none")
            await self._services.set_accounts(accounts(attributes, project))
            if startup.done():
                startup.result()

    async def _script(self, key: str, attributes: dict[str, str]) -> None:
        text = attributes.get(key, "")
        if not text.strip() or (key == "startup-script" and self._config.silent):
            return
        home = self._config.home("root")
        home.mkdir(parents=True, exist_ok=True)
        await run_script(
            key,
            text,
            serial=self._serial,
            environment=user_environment(self._config.environment, "root", home, "/bin/bash"),
            folder=Path(self._config.files),
            temporary=Path(self._config.environment["TMPDIR"]),
        )
        if key == "startup-script":
            self._serial.line("Finished running startup scripts.")

    async def _shut_down(self) -> None:
        """Run the shutdown script, then SIGTERM the remaining processes, as the system's shutdown does."""
        attributes = {}
        with suppress(asyncio.TimeoutError):
            attributes = await asyncio.wait_for(self._metadata.attributes("instance"), 5.0)
        await self._script("shutdown-script", attributes)
        await self._services.stop()
        for pid in self._others():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        while self._others():  # noqa: ASYNC110 - processes that end send no event here
            # Other processes, which end without an event, so this wait is real time.
            await asyncio.sleep(0.2)

    def _others(self) -> set[int]:
        """Return the machine's processes without the guest and its supervisor."""
        marker = f"{MARKER}={self._config.environment[MARKER]}"
        return members(marker, [os.getpid()]) - {os.getpid(), os.getppid(), 1}


def _host_key(path: Path) -> str:
    """Create the host key at the first boot; return the public key's base64 part."""
    if not path.exists():
        fresh = asyncssh.generate_private_key("ssh-ed25519")
        private_file(path, fresh.export_private_key("openssh"))
    return asyncssh.read_private_key(path).export_public_key("openssh").split()[1].decode()


def main() -> None:
    config = GuestConfig.read(Path(sys.argv[1]))
    hold_locks(Path(config.files), Path(config.state), config.package_lock_seconds)
    asyncio.run(Guest(config).run())


def hold_locks(files: Path, state: Path, seconds: float) -> None:
    """
    Lock as dpkg and apt do, by fcntl(2), in a process of its own for *seconds*, at the first boot.

    The locks are held on return. Call it before there are threads, as it forks.
    """
    mark = state / "upgraded"
    if seconds <= 0 or mark.exists():
        return
    mark.touch()
    ready, done = os.pipe()
    child = os.fork()
    if not child:
        # The grandchild is an orphan, which the machine's first process reaps.
        with suppress(BaseException):
            if not os.fork():
                os.close(ready)
                _hold(files, done, seconds)
        os._exit(0)
    os.close(done)
    os.waitpid(child, 0)
    os.read(ready, 1)
    os.close(ready)


def _hold(files: Path, done: int, seconds: float) -> None:
    """Lock everything, signal that on *done*, and end by SIGALRM or with the machine."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_NAME, HOLDER, 0, 0, 0)
    for name in LOCKS:
        path = files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fcntl.lockf(os.open(path, os.O_RDWR | os.O_CREAT, 0o640), fcntl.LOCK_EX)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.write(done, b".")
    os.close(done)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
