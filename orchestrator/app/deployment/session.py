"""Connect the real parts of a deployment: clock, cloud, SSH, record, engine."""

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.clouds import local_adapter, local_cloud_text
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.prices import catalog_for
from orchestrator.app.this_computer.holder import process_ended, this_process
from orchestrator.app.this_computer.known import spec_of
from orchestrator.app.this_computer.process_lock import only_here
from orchestrator.app.this_computer.same_project import check_project_and_login, check_record, own_agent
from orchestrator.app.this_computer.state_folders import on_machine, own_address, record_key, state_folder
from orchestrator.clock import SteadyClock, SystemClock
from orchestrator.config.layers import overrides_of
from orchestrator.config.load import find, load
from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.lease import LOOP
from orchestrator.domain.names import SSH_USER
from orchestrator.domain.plan import Kind, Plan
from orchestrator.domain.ports import Cloud, Store
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec
from orchestrator.emulator.address import Address, address_on_machine, local_folder, read_address
from orchestrator.engine.blueprint import ROOT, Blueprint
from orchestrator.engine.deployment import Deployment, any_plan
from orchestrator.engine.lease.lease_object import Lease, take_record
from orchestrator.engine.publish.event_log import EventLog
from orchestrator.engine.records.create_budget_file import CreateBudgetFile
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import LeaseHeldError, TpuctlError, UsageError
from orchestrator.google.clients import Clients, CloudSettings
from orchestrator.google.factory import open_cloud
from orchestrator.google.shared_lists import ZoneLists
from orchestrator.pricing.cost_so_far import cost_so_far
from orchestrator.ssh.connect.ssh_settings import KNOWN_HOSTS, SshSettings
from orchestrator.ssh.keys import KEY_FILE, DeploymentKey, ensure_key
from orchestrator.ssh.remote import Ssh

# Every command makes a session, and most use few parts, so their imports come late.
if TYPE_CHECKING:
    from orchestrator.engine.loop.loop import Loop
    from orchestrator.engine.publish.outbox import Notifier
    from orchestrator.engine.publish.receivers import Apprise, Hook, Webhook


def read_spec(choice: Choice, *, fleet: bool = False) -> tuple[Path, Spec]:
    """
    Return the path and the spec of the deployment file, with the catalogue's runtime filled in.

    Raise UsageError for a fleet's file or, with *fleet*, for any other.
    """
    # --file takes precedence; otherwise search upwards, so that commands work in subfolders of a project.
    path = choice.file or find(Path.cwd())
    spec = load(path, overrides_of(choice.settings))
    if fleet != bool(spec.fleet):
        kind, way = (
            ("no fleet", "tpuctl up")
            if fleet
            else ("a fleet", "`tpuctl fleet up`, see `tpuctl fleet --help`")
        )
        raise UsageError(
            f"{path.name} describes {kind}", hint=f"run: {way}", changed="nothing was changed", code="TPU-101"
        )
    runtime = spec.tpu.runtime or load_catalog().runtime_for(spec.tpu.type)
    return path, replace(spec, tpu=replace(spec.tpu, runtime=runtime))


class SharedBudget:
    """The spending of several deployments with one budget, from the last figure of each."""

    def __init__(self) -> None:
        self._usd: dict[str, float] = {}
        self._lock = threading.Lock()

    def with_others(self, name: str, usd: float) -> float:
        """Set the spending of one deployment in USD, and return the sum."""
        with self._lock:
            self._usd[name] = usd
            return sum(self._usd.values())


class Session:
    """
    One deployment with everything that acts on it; parts are created on first use.

    *path* is the deployment file of a *spec* that was read before. A *forgiving* session continues without
    lease and record, as `down` must; *only_observes* omits what only changes need. *lists* are shared with other
    sessions, and so are *clients*, with their connections, and the budget in *together*.
    """

    def __init__(
        self, choice: Choice, reporter: Reporter, spec: Spec | None = None, path: Path | None = None, *,
        forgiving: bool = False, only_observes: bool = False, lists: ZoneLists | None = None,
        together: SharedBudget | None = None, clients: Clients | None = None,
    ) -> None:  # fmt: skip
        self.choice = choice
        self.reporter = reporter
        self._forgiving = forgiving
        self._only_observes = only_observes
        self._lists = lists
        self._together = together
        self._clients = clients
        self.started_local_cloud = False
        self.path, self.spec = (path or Path(), spec) if spec else read_spec(choice)
        # Time to live and budget are measured with it, so setting the clock back must not extend them.
        self.clock = SteadyClock(SystemClock())
        reporter.use_clock(self.clock.now)
        self.holder = this_process("down" if forgiving else "?", self.clock.now())
        self.catalog = catalog_for(choice.cloud)

    @cached_property
    def project(self) -> str:
        """Return the project: the local cloud's own, the file's, the environment's or the credentials'."""
        if self.choice.cloud == "local":
            return self._local.project
        if self.spec.project:
            return self.spec.project
        return Clients(CloudSettings()).project

    @cached_property
    def _local(self) -> Address:
        found = address_on_machine() or read_address(local_folder())
        if found is not None:
            return found
        from orchestrator.app.local import ensure_running

        address, fresh = ensure_running()
        if fresh:
            self.started_local_cloud = True
            # Observing a deleted deployment must not leave a daemon running; with a machine in it the cloud stays.
            atexit.register(self._stop_local, address)
        return address

    def _stop_local(self, started: Address) -> None:
        """Stop the local cloud that this command has started, if it is idle; only what goes on is worth a line."""
        from orchestrator.emulator.control import stop_if_idle

        with suppress(TpuctlError, OSError):
            if not stop_if_idle() and read_address(local_folder()) is not None:
                self.reporter.say(local_cloud_text(started, again=self._only_observes))

    @cached_property
    def folder(self) -> Path:
        """Return the deployment's folder on this computer: SSH key, record, journal, bundles."""
        return state_folder(self.choice.cloud) / self.project / self.spec.name

    @cached_property
    def ssh(self) -> Ssh:
        """Return the SSH adapter; nothing is connected yet, and no key is made."""
        return Ssh(self._ssh_settings)

    @property
    def ssh_settings(self) -> SshSettings:
        """Return how machines are reached over SSH; create the key if there is none."""
        self._ssh_settings.make_key()
        return self._ssh_settings

    @cached_property
    def ssh_key(self) -> DeploymentKey:
        """Return the deployment's SSH key; create it if there is none."""
        return ensure_key(self.folder)

    @cached_property
    def _ssh_settings(self) -> SshSettings:
        known, source = self.folder / KNOWN_HOSTS, own_address() if self.choice.cloud == "local" else ""
        # A command that only observes gets this, too, and must not leave a private key behind.
        return SshSettings(
            SSH_USER, self.folder / KEY_FILE, ROOT, known, source=source, warn=self._warn,
            make_key=lambda: self.ssh_key,
        )  # fmt: skip

    def _warn(self, text: str) -> None:
        self.reporter(Event(self.clock.now(), EventKind.FAILURE, text))

    @cached_property
    def cloud(self) -> Cloud:
        """Return the adapters of the chosen cloud."""
        return self._open(ask_account=not self._only_observes)

    @cached_property
    def store(self) -> Store:
        """Return the bucket's objects, without a call and without the client of Compute Engine."""
        return self._open(ask_account=False).store

    @cached_property
    def clients(self) -> Clients:
        """Return Google's clients for the chosen cloud, for uses without an adapter."""
        return self._clients or Clients(self._settings())

    def _open(self, *, ask_account: bool) -> Cloud:
        # One set of clients: another one would open connections of its own.
        return open_cloud(
            self._settings(), self.spec, self.ssh, ask_account=ask_account, clients=self.clients
        )

    def _settings(self) -> CloudSettings:
        local = self._local if self.choice.cloud == "local" else None
        return CloudSettings(
            endpoint=local.endpoint if local else None,
            project=self.project,
            ssh_port=local.ssh_port if local else 22,
            lists=self._lists,
            inside=on_machine(),
            relay=local.relay if local else "",
            adapter=local_adapter(local) if local else None,
            # The loop on the VM uses the VM's own account.
            impersonate="" if on_machine() else self.spec.impersonate or "",
        )

    @cached_property
    def blueprint(self) -> Blueprint:
        """Return the builder of requests; the first machine that it describes creates the SSH key."""
        line = lambda: self.ssh_key.metadata_line()  # noqa: E731, PLW0108 - the key is made only when needed
        return Blueprint(self.spec, self.cloud.account, line)

    @cached_property
    def records(self) -> RecordStore:
        """Return the deployment record, loaded."""
        # Two copies: the local one works without the bucket, the bucket's on other computers.
        path, name = self.folder / "record.json", self.spec.name
        records = RecordStore(path, self.cloud.store, name, self.key, self.clock.now)
        records.load(forgiving=self._forgiving)
        if records.damaged:
            self.reporter(
                Event(self.clock.now(), EventKind.FAILURE, f"bucket's record not used: {records.damaged}")
            )
        return records

    @cached_property
    def key(self) -> bytes:
        """Return this user's key for the checksums of records and snapshots, which prove who wrote them."""
        return record_key(self.choice.cloud)

    @cached_property
    def journal(self) -> Journal:
        """Return the journal, which each call to the cloud is written to beforehand."""
        return Journal(self.folder / "journal.jsonl", self.cloud.store, self.clock)

    @cached_property
    def sink(self) -> EventLog:
        """Return the event log: it shows events at once and stores them in the bucket after each pass."""
        return EventLog(self.cloud.store, self.reporter, lambda: self.records.current.bucket.observed)

    @property
    def bundles(self) -> Path:
        """Return the folder of built bundles and agents."""
        return self.folder / "bundles"

    def cost(self, record: Record, now: float) -> float:
        """Return the estimated cost up to *now* in USD."""
        return cost_so_far(self.spec, self.catalog, record, now).known_usd

    def costs(self, record: Record, now: float) -> tuple[float, float]:
        """Return the estimated cost up to *now* in USD, and that at the highest prices, by which budgets end."""
        return self.cost(record, now), self.upper_cost(record, now)

    def unpriced(self, record: Record, now: float) -> tuple[str, ...]:
        """Return what has been billed up to *now* without a known price, and is missing in all sums."""
        return cost_so_far(self.spec, self.catalog, record, now).unpriced

    def upper_cost(self, record: Record, now: float) -> float:
        """
        Return the estimated cost up to *now* in USD at the highest prices, as budgets count it.

        For a fleet it is the sum over all nodes, as they share one budget.
        """
        own = cost_so_far(self.spec, self.catalog, record, now).upper_usd
        return own if self._together is None else self._together.with_others(self.spec.name, own)

    @cached_property
    def deployment(self) -> Deployment:
        """Return what a pass needs, over this session's cloud, record and lease."""
        return Deployment(
            spec=self.spec,
            cloud=self.cloud,
            blueprint=self.blueprint,
            bundles=self.bundles,
            records=self.records,
            journal=self.journal,
            lease=self.lease,
            clock=self.clock,
            sink=self.sink,
            usd_so_far=self.upper_cost,
            # Shared by all deployments of the project, since its quota of writes a minute is.
            create_budget=CreateBudgetFile(self.folder.parent / "creates.json"),
            store_events=self.sink.flush,
        )

    @cached_property
    def notifier(self) -> "Notifier":
        """Return the sender of notifications; hooks run on the user's computer only, not in the loop on the VM."""
        from orchestrator.app.notify import receivers_in_earnest
        from orchestrator.engine.publish.outbox import Notifier

        def receivers() -> "list[Webhook | Apprise | Hook]":
            # Evaluated late, when the lease has set the holder. A stored spec has no folder for hooks.
            hooks = self.holder.command != LOOP and self.path != Path()
            return receivers_in_earnest(self.spec, self.path.parent, self.choice.cloud, hooks=hooks)

        return Notifier(lambda: self.deployment, receivers, self.reporter.say)

    def loop(
        self, approve: Callable[[Plan], None] = any_plan, only: frozenset[Kind] = frozenset(Kind), *,
        outage_timeout: float | None = None, stays: frozenset[Kind] = frozenset(),
    ) -> "Loop":  # fmt: skip
        """
        Return the loop over passes; *approve*, *only* and *stays* limit a pass as in `Deployment`.

        The loop ends if the cloud does not answer for *outage_timeout* seconds.
        """
        from orchestrator.engine.loop.loop import Loop

        return Loop(replace(self.deployment, approve=approve, only=only, stays=stays), outage_timeout)

    @cached_property
    def lease(self) -> Lease:
        """Return the lease on the deployment, not yet acquired."""
        return Lease(self.cloud.store, self.clock, self.holder, process_ended)

    @contextmanager
    def holding_lease(
        self, command: str, yields: tuple[str, ...] = (),
        take_over: Callable[[LeaseHeldError], None] | None = None,
    ) -> Iterator[None]:  # fmt: skip
        """
        Hold the lease while the block runs, so that no other tpuctl changes the deployment.

        *yields* names the commands to which this one yields. If another process holds the lease, a
        forgiving session calls *take_over*, which raises unless the user wants to continue.
        """
        # `expire` uses the spec stored in this folder, so it cannot be about another deployment.
        if command != "expire":
            check_project_and_login(self.choice, self.spec.name, self.project, self.folder)
        self.holder = this_process(command, self.clock.now(), yields)
        wish = lambda: self.lease.wish()  # noqa: E731, PLW0108 - the lease is made only when it is needed
        # The local lock first: it needs no API call, and its holder can be asked to yield.
        with only_here(self.folder, self.holder, wish), self._leased(take_over):
            yield

    @contextmanager
    def _leased(self, take_over: Callable[[LeaseHeldError], None] | None) -> Iterator[None]:
        # A record read before the lease may be stale, since another command may have written it meanwhile.
        older = "records" in self.__dict__
        try:
            self.lease.acquire()
        except TpuctlError as error:
            # Even `down` respects a lease that is held, unless the user passes --take-over.
            if not self._forgiving or (isinstance(error, LeaseHeldError) and take_over is None):
                raise
            if isinstance(error, LeaseHeldError) and take_over is not None:
                take_over(error)
            self.reporter(
                Event(self.clock.now(), EventKind.FAILURE, f"going on without the lease: {error.message}")
            )
            yield
            return
        with self.lease.renewing():
            # `down` must work with a damaged record too, so it takes none and pins no agent.
            if not self._forgiving:
                fresh = not older or self.lease.token is None
                take_record(self.lease, self.records, self._check_record, fresh=fresh)
                own_agent(self.records, self.bundles)
                self._say_taken_over()
            yield

    def _say_taken_over(self) -> None:
        """Say, and keep for the report, that the process before this one ended without releasing its lease."""
        before, over = self.lease.taken_from, self.records.current.outcome is not None
        # At the deployment's end the loop on the VM stops its own machine, which may be gone before the lease is.
        if before is None or before.id == self.holder.id or (over and before.command == LOOP):
            return
        text = f"{before.called} was killed or cut off; this one takes its place"
        self.sink(Event(self.clock.now(), EventKind.TAKEN_OVER, text))

    def _check_record(self) -> None:
        check_record(self.choice, self.records, self.reporter, self.spec.name, self.folder)


def open_session(
    choice: Choice,
    name: str | None,
    reporter: Reporter,
    *,
    forgiving: bool = False,
    only_observes: bool = False,
) -> Session:
    """Return the session of deployment *name* as brought up here; of the deployment file without a name."""
    spec = spec_of(choice.cloud, name) if name else None
    return Session(choice, reporter, spec, forgiving=forgiving, only_observes=only_observes)
