"""Machines for the tests: their folder, a free loopback address, and asyncssh servers that run bash."""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from orchestrator.domain.remote import Host
from tests.kit.addresses import free_address


async def _pump(process: "asyncssh.SSHServerProcess[bytes]", child: asyncio.subprocess.Process) -> None:
    """Carry data between a session and its command until the command's output ends."""

    async def carry(source, target) -> None:
        with contextlib.suppress(OSError, asyncssh.Error):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        if target is child.stdin:
            target.close()

    inward = asyncio.create_task(carry(process.stdin, child.stdin))
    await asyncio.gather(carry(child.stdout, process.stdout), carry(child.stderr, process.stderr))
    inward.cancel()


@dataclass
class SshMachine:
    """A machine that can be reached: where it listens, its folder, and how to stop it."""

    host: Host
    root: Path
    stop: Callable[[], None]
    commands: list[str] = field(default_factory=list)
    greeting: str = ""

    def tree(self) -> str:
        """Return what `current` shows: the content of main.py, or "" where there is no tree."""
        file = self.root / "current" / "main.py"
        return file.read_text() if file.exists() else ""

    def leftovers(self) -> list[str]:
        """Return temporary names that a push left."""
        return sorted(path.name for path in [*self.root.glob(".*"), *self.root.glob("bundle/.*")])


class AsyncServers:
    """Run asyncssh servers on one loop in a side thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.children: list[asyncio.subprocess.Process] = []
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def start(self, name: str, root: Path, public: str, port: int = 0, address: str = "") -> SshMachine:
        """Start a machine that runs commands by bash with TPUCTL_ROOT set to *root*."""
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        made = SshMachine(Host(name, "", ()), root, lambda: None)

        class Login(asyncssh.SSHServer):
            def begin_auth(self, username: str) -> bool:
                return True

            def connection_requested(self, *_: object) -> bool:  # host, port, and the same of the client
                return True

            def public_key_auth_supported(self) -> bool:
                return True

            def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
                return key.export_public_key().decode().split()[1] == public.split()[1]

        async def session(process: "asyncssh.SSHServerProcess[bytes]") -> None:
            made.commands.append(process.command or "")
            env = {**os.environ, "TPUCTL_ROOT": str(root), "HOME": str(root)}
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(
                "bash", *(["-c", made.greeting + process.command] if process.command else []),
                env=env, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
            )  # fmt: skip
            self.children.append(child)
            await _pump(process, child)
            status = await child.wait()
            if status >= 0:
                process.exit(status)
            else:
                process.exit_with_signal("KILL")

        async def listen() -> asyncssh.SSHAcceptor:
            return await asyncssh.listen(
                address or free_address(), port, server_factory=Login, server_host_keys=[host_key],
                process_factory=session, encoding=None, line_editor=False,
            )  # fmt: skip

        root.mkdir(parents=True, exist_ok=True)
        acceptor = asyncio.run_coroutine_threadsafe(listen(), self.loop).result(20)
        where = acceptor.sockets[0].getsockname()
        text = host_key.export_public_key().decode().strip()

        def stop() -> None:
            self.loop.call_soon_threadsafe(acceptor.close)

        made.host, made.stop = Host(name, where[0], (text,), where[1]), stop
        return made

    def close(self) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for child in self.children:
                if child.returncode is None:
                    with contextlib.suppress(ProcessLookupError):  # It may have ended a moment ago.
                        os.killpg(child.pid, signal.SIGKILL)
                await child.wait()

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()
