"""Run the local cloud as a process: HTTP on loopback, time, machines, state on disk."""

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orchestrator.clock import SystemClock
from orchestrator.emulator.address import CONTROL, STORAGE, Address, owner_ended, start_of, write_address
from orchestrator.emulator.http.admin import admin_routes
from orchestrator.emulator.http.apis import served
from orchestrator.emulator.http.asgi import App, asgi_app, server
from orchestrator.emulator.http.certificates import STORAGE_HOSTS, certificates
from orchestrator.emulator.http.connect_proxy import ConnectProxy
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.error_bodies import error_response
from orchestrator.emulator.http.guard import refusal
from orchestrator.emulator.http.iap import PERMISSION, IapRelay
from orchestrator.emulator.http.price_skus import billing_routes
from orchestrator.emulator.http.quotas import quota_routes
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.http.secrets import secret_routes
from orchestrator.emulator.http.storage_access import Callers
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.http.storage_xml import xml_routes
from orchestrator.emulator.machines.machine_image import described
from orchestrator.emulator.machines.machine_kinds import make_machines
from orchestrator.emulator.machines.machine_python import interpreters, package_sources
from orchestrator.emulator.machines.machine_settings import MachineSettings, Tools, network_of
from orchestrator.emulator.machines.socket_owner import (
    Inside,
    OwnerSocket,
    check_owner_reported,
    listening,
    socket_owner_of,
    unix_connection,
    unix_listening,
)
from orchestrator.emulator.machines_with_metadata import MachinesWithMetadata
from orchestrator.emulator.start_options import PORT_TAKEN, Options, load_options, save_options
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.secrets import Secrets
from orchestrator.emulator.state.storage.blobs import FolderBlobs
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.errors import TpuctlError
from orchestrator.private_folders import private_file

MAX_NAP = 1.0
"""Seconds between two checks of what is due, if no event is nearer."""
NO_TOOLS = Tools()
MANY_FILES = 16384
APIS = ("/v2/", "/compute/", "/v1/")
"""Path prefixes of APIs for which a machine needs the scope cloud-platform."""
CRON_MINUTE = {"instant": 1.0, "scaled": 2.0, "realistic": 60.0}


class Apps(NamedTuple):
    """The three applications of a local cloud, each with a listener of its own."""

    clients: App
    storage: App
    controls: App


class Daemon:
    """The local cloud of *folder*: state, machines, storage and their HTTP listeners."""

    def __init__(
        self,
        folder: Path,
        options: Options,
        loop: asyncio.AbstractEventLoop,
        tools: Tools = NO_TOOLS,
        *,
        on_demand: bool,
    ) -> None:
        self._folder = folder
        self._on_demand = on_demand
        self._options = options
        self._tools = tools
        self._loop = loop
        self._wake = threading.Event()
        self._over = threading.Event()
        self._saving = threading.Lock()
        self._saved = -1
        self._halt = asyncio.Event()
        self._orphaned = False
        settings, clock = options.cloud_settings(), SystemClock()
        self._certificates = certificates(folder / "tls")
        self._machines = make_machines(options.machines, self._machine_settings(settings.latency.notice))
        self._proxy = ConnectProxy(
            self._certificates.context(),
            lambda: unix_connection(folder, STORAGE),
            self._machines.holds,
            self._metadata_of,
        )
        self._with_metadata = MachinesWithMetadata(self._machines, loop)
        self.cloud = LocalCloud(clock, self._with_metadata, settings)
        self._with_metadata.cloud = self.cloud
        source = str(network_of(options.address_base).broadcast_address)
        denied = PERMISSION in options.denied_permissions
        self._relay = IapRelay(self.cloud.running_vm, source, denied=denied, inside=self._machines.holds)
        blobs = FolderBlobs(folder / "storage")
        storage = Storage(
            clock, blobs, options.taken_buckets, options.object_interval, options.policy_seconds
        )
        self._own_names = frozenset(f"{name}:{options.port}" for name in ("127.0.0.1", "localhost"))
        self._callers = Callers(self.cloud, self._machine_of)
        self._router = served(self.cloud, storage, self._callers)
        billing_routes(self._router)
        quota_routes(self._router, self.cloud)
        secret_routes(
            self._router, self.cloud, Secrets(clock, settings.project_number, folder / "secrets.json")
        )
        # Tunnels to Google's storage hosts reach storage only, including the XML reads of TensorFlow.
        self._tunnelled, self._controls = Router(), Router()
        machines = Callers(self.cloud, self._machine_of, on_machine=True)
        inner = partial(dispatch, self._tunnelled, self.cloud)
        storage_routes(self._tunnelled, storage, inner, machines)
        xml_routes(self._tunnelled, storage, machines)
        images = described(self._machines.settings.pythons, options.python)
        admin_routes(self._controls, self.cloud, self.halt, self._proxy.refused, images)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._options.port}"

    def _machine_settings(self, notice: float) -> MachineSettings:
        options = self._options
        return MachineSettings(
            root=self._folder / "machines",
            cloud_id=options.cloud_id,
            endpoint=self.endpoint,
            ssh_port=options.ssh_port,
            metadata_port=options.metadata_port,
            cron_minute_seconds=CRON_MINUTE[options.latency],
            notice_seconds=notice,
            proxy=f"http://127.0.0.1:{options.proxy_port}",
            setup_proxy=f"http://127.0.0.1:{options.setup_proxy_port}",
            authorities=self._certificates.bundle(),
            shared=Path(self._tools.shared) if self._tools.shared else None,
            pythons=interpreters(os.environ),
            python=options.python,
            package_lock_seconds=options.package_lock_seconds,
            absent=frozenset(options.absent),
            uv=Path(self._tools.uv) if self._tools.uv else None,
            package_sources=package_sources(os.environ),
        )

    def _machine_of(self, peer: tuple[str, int]) -> str | None:
        """Return the machine at the other end of a connection; None if it is none, "" if unknown."""
        owner = socket_owner_of(peer, ("127.0.0.1", self._options.port))
        return "" if owner is None else self._machines.machine_of(owner.inode)

    def _metadata_of(self, peer: tuple[str, int], here: tuple[str, int]) -> tuple[str, int] | None:
        """Return the metadata server of the machine at one end of a connection; None if it is no machine."""
        owner = socket_owner_of(peer, here)
        name = self._machines.machine_of(owner.inode) if owner else None
        machine = self.cloud.machine(name) if name else None
        return (machine.address, self._options.metadata_port) if machine else None

    def halt(self) -> None:
        """Ask the daemon to stop; safe from any thread."""
        self._loop.call_soon_threadsafe(self._halt.set)

    @property
    def inside(self) -> Inside:
        """Return a function that tells from a socket's inode whether a machine of this cloud holds it."""
        return self._machines.holds

    def apps(self, executor: Executor | None = None) -> Apps:
        """Return the applications for clients, for machines that mean Google's storage, and for `tpuctl local`."""
        return Apps(
            asgi_app(self._answers(self._router), executor, lambda asked: refusal(asked, self._own_names)),
            asgi_app(
                self._answers(self._tunnelled), executor,
                lambda request: refusal(request, STORAGE_HOSTS, json=False),
            ),
            asgi_app(self._answers(self._controls), executor),
        )  # fmt: skip

    def _answers(self, router: Router) -> Callable[[Request], Response]:
        """Return a function that answers requests by *router*; changes are on disk before the answer."""

        def answer(request: Request) -> Response:
            try:
                if router is self._router and request.path.startswith(APIS):
                    self._callers.check_scope(request)
                response = dispatch(router, self.cloud, request)
            except ApiError as error:
                response = error_response(request, error)
            except TpuctlError as error:
                if router is not self._controls:
                    raise
                response = Response.of({"error": error.as_dict()}, 400)
            self._save()
            # The call may have planned an event that is due before the scheduler wakes up.
            self._wake.set()
            return response

        return answer

    def _save(self) -> None:
        # Request threads and the scheduler save; without a lock, an older snapshot could replace a newer one.
        with self._saving:
            version = self.cloud.version
            if version == self._saved:
                return
            # The version is read before the snapshot: a change in between is saved again, never missed.
            private_file(self._folder / "state", self.cloud.snapshot())
            self._saved = version

    def _restore(self) -> None:
        """Load the previous daemon's state, and boot machines that should run but do not."""
        state = self._folder / "state"
        if not state.exists():
            # Without a state no machine is known, so what exists belongs to a cloud that was lost.
            self._machines.reap_all(disks=True)
            return
        self.cloud.restore(state.read_bytes())
        for machine in self.cloud.machines():
            if self.cloud.machine_state(machine.id).running:
                # A machine that still runs continues; its metadata server is new in any case.
                self._with_metadata.boot(machine)

    def _pass_time(self) -> None:
        """Run the model's events when they are due."""
        while not self._over.is_set():
            try:
                if owner_ended(self._folder) and not self._orphaned:
                    self._orphaned = True
                    self.halt()
                self.cloud.tick()
                self._save()
                due = self.cloud.next_due()
            except Exception:  # A failing event or a full disk must not stop the other events.
                traceback.print_exc()
                due = None
            # Not shorter than the time to the next event, or the loop would find nothing due and spin.
            nap = MAX_NAP if due is None else min(MAX_NAP, max(0.0, due - self.cloud.clock.now()))
            self._wake.wait(nap + 0.001)
            self._wake.clear()

    async def serve(self, listener: OwnerSocket) -> None:
        """Serve until stopped, then stop every machine."""
        executor = ThreadPoolExecutor(max_workers=32, thread_name_prefix="request")
        sockets = (
            listener, unix_listening(self._folder, STORAGE), unix_listening(self._folder, CONTROL)
        )  # fmt: skip
        servers = [server(app) for app in self.apps(executor)]
        await self._proxy.start(self._options.proxy_port, self._options.setup_proxy_port)
        await self._relay.start(self._options.iap_port, self._certificates.context())
        await asyncio.to_thread(self._restore)
        time = threading.Thread(target=self._pass_time, name="time")
        time.start()
        with contextlib.suppress(asyncio.CancelledError):
            serving = [
                asyncio.create_task(each._serve([one]))  # noqa: SLF001 - serve() takes our signals
                for each, one in zip(servers, sockets, strict=True)
            ]
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._halt.set)
            # Last: a process that finds this file may connect, and `local start` returns.
            write_address(self._folder, self._address())
            await self._halt.wait()
            for each in servers:
                each.should_exit = True
            await asyncio.gather(*serving)
        self._over.set()
        self._wake.set()
        # First the events, then the machines: an event due meanwhile could boot a machine again.
        await asyncio.to_thread(time.join)
        await asyncio.to_thread(self._machines.reap_all, disks=self._orphaned)
        # After the machines: a guest whose metadata server closes concludes that the daemon is dead.
        await self._with_metadata.metadata.close()
        await self._proxy.close()
        await self._relay.close()
        (self._folder / "daemon.json").unlink(missing_ok=True)
        if self._orphaned:
            # The demo or rehearsal that would have cleaned up was killed.
            shutil.rmtree(self._folder, ignore_errors=True)

    def _address(self) -> Address:
        options, pid = self._options, os.getpid()
        return Address(
            pid=pid,
            started=start_of(pid),
            endpoint=self.endpoint,
            ssh_port=options.ssh_port,
            project=options.project,
            machines=self._machines.kind,
            on_demand=self._on_demand,
            relay=f"wss://127.0.0.1:{options.iap_port}/v4",
        )


async def run(folder: Path, tools: Tools, *, on_demand: bool) -> None:
    """Run the daemon of *folder*. Raise OSError if its port is taken."""
    options = load_options(folder)
    save_options(folder, options)
    _allow_many_connections()
    # Before anything else: a second daemon on this folder ends here and touches no machine.
    listener = listening("127.0.0.1", options.port)
    check_owner_reported(listener)
    daemon = Daemon(folder, options, asyncio.get_running_loop(), tools, on_demand=on_demand)
    listener.inside = daemon.inside
    await daemon.serve(listener)


def _allow_many_connections() -> None:
    """Raise the limit of open files, since a tunnel needs five."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if hard == resource.RLIM_INFINITY else min(MANY_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    try:
        asyncio.run(run(Path(sys.argv[1]), Tools(*sys.argv[3:]), on_demand=sys.argv[2] == "on-demand"))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        traceback.print_exc()  # the process that started it shows the last line
        sys.exit(PORT_TAKEN)
