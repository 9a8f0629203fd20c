"""
The loop of one deployment in a wide run: real passes, made when something can have changed.

A pass is a function of what is observed, of the record and of time that has passed. So a loop that found
nothing to do and nothing to wait for sleeps until there is news of its machines, until its budget or its
time to live ends, or until a day is over; one that waits looks at growing distances. After news it looks
when its poll would have.
"""

from orchestrator.app.source.wanted import with_wanted
from orchestrator.domain.lease import Holder
from orchestrator.engine.blueprint import Blueprint
from orchestrator.engine.delete import Deletion
from orchestrator.engine.deployment import Deployment
from orchestrator.engine.lease.lease_object import Lease, take_record
from orchestrator.engine.loop.loop import BLIND_PASSES, Loop
from orchestrator.engine.outcome_errors import raise_bucket_gone, raise_hopeless
from orchestrator.engine.publish.event_log import EventLog
from orchestrator.engine.records.journal import Journal
from orchestrator.engine.records.record_store import RecordStore
from orchestrator.errors import LeaseHeldError, Retry, TpuctlError
from orchestrator.planning.job_digest import job_digest
from orchestrator.pricing.cost import hourly
from orchestrator.pricing.cost_so_far import cost_so_far
from tests.kit.wire import wired_cloud
from tests.simulation.machines import KEY, SimulatedSsh
from tests.simulation.virtual_threads import ProcessKilled
from tests.simulation.wide_simulation import DIGEST, OwnerComputer, shared_catalog

DAY, HOUR = 86400.0, 3600.0
MAX_STRETCH = 240.0


class Pauses:
    """The clock of a loop: it returns the time, and records the requested pause instead of making it."""

    def __init__(self, clock, passing=None):
        self.now, self.monotonic, self.asked = clock.now, clock.monotonic, 0.0
        self._passing = passing

    def wait(self, seconds, wake=None):
        self.asked = seconds
        if self._passing is not None:
            self._passing(seconds)


class Watchers:
    """One watcher after the other for one deployment, on one computer."""

    def __init__(self, simulation, case, checks):
        self.simulation, self.case, self.checks = simulation, case, checks
        self.name, self.spec, self.computer = case.name, simulation.specs[case.name], OwnerComputer()
        self.poll = float(self.spec.watch.poll)
        self.ended, self.passes, self._turn, self._count = "", 0, 0, 0
        self.calls_to_live, self._stretch, self._blind = None, 0.0, 0
        self.asleep, self.command = False, "watch"
        self.checks.join(self)

    # One process.

    def start(self):
        """Start a controller, as `tpuctl watch` does; `up` first where nothing is wanted yet."""
        if self.ended:
            return
        self._count += 1
        self.checks.started(self)
        self._build()
        try:
            with self.simulation.acts(self):
                self.lease.acquire()
                take_record(self.lease, self.records)
                if not self.records.current.job.bundle:
                    now = self.simulation.now()
                    digest = job_digest(self.spec)
                    self.records.update(
                        lambda record: with_wanted(record, DIGEST["bundle"], DIGEST["agent"], digest, now)
                    )
        except (ProcessKilled, TpuctlError) as error:
            self._dies(error)
            return
        self._again(0.2)

    def _build(self, clock=None):
        simulation, spec = self.simulation, self.spec
        self.calls_to_live, self._blind, self._stretch = None, 0, 0.0
        self.clock = clock or Pauses(simulation.scheduler.clock)
        remote = SimulatedSsh(simulation.machines, self, lambda: False)
        cloud = wired_cloud(spec, remote, account=simulation.cloud.settings.default_service_account)
        self.records = RecordStore(self.computer.record, cloud.store, spec.name, now=self.clock.now)
        holder = Holder(f"{self.name}/{self._count}", "a", "watch", simulation.now(), pid=1, boot="a")
        self.lease = Lease(cloud.store, self.clock, holder, lambda _: True)
        self.sink = EventLog(cloud.store, self._event, lambda: self.records.current.bucket.observed)
        journal = Journal(self.computer.journal, cloud.store, self.clock)
        blueprint = Blueprint(spec, cloud.account, lambda: f"tpuctl:ssh-ed25519 {KEY}")
        self.deployment = Deployment(
            spec=spec, cloud=cloud, blueprint=blueprint, bundles=simulation.bundles, records=self.records,
            journal=journal, lease=self.lease, clock=self.clock, sink=self.sink, usd_so_far=self._usd_so_far,
        )  # fmt: skip
        self.loop = Loop(self.deployment)
        # No time passes in a pause here, it is only asked for; what a machine has to say comes as news.
        self.loop._wake_object.pause = lambda seconds, wake, incarnation: self.clock.wait(seconds, wake)

    def _usd_so_far(self, record, now):
        return cost_so_far(self.spec, shared_catalog(), record, now).known_usd

    def _event(self, event):
        if event.kind not in {"waiting", "progress"}:
            self.simulation.say(f"{self.name} # {event.kind}: {event.message}")

    def step(self):
        """Count a call to the outside; die at the last one that is allowed."""
        if self.calls_to_live is not None:
            self.calls_to_live -= 1
            if self.calls_to_live < 0:
                raise ProcessKilled

    def calling(self, method, place):
        self.checks.calling(self, method, place)

    def called(self, method, place, observed):
        self.checks.called(self, method, place, observed)

    # Its passes.

    def news(self):
        """Look when the poll would next do so."""
        if self.asleep and not self.ended:
            self.asleep = False
            self._again(self.simulation.random.uniform(0.2, self.poll))

    def _again(self, seconds):
        self._turn += 1
        turn = self._turn
        self.simulation.scheduler.after(seconds, lambda: self._look() if turn == self._turn else None)

    def _look(self):
        self.asleep = False
        self.checks.began(self)
        try:
            with self.simulation.acts(self):
                result = self.loop.reconciler.one_pass()
                self._judge(result)
        except (ProcessKilled, TpuctlError) as error:
            if isinstance(error, TpuctlError) and error.retry is Retry.TRANSIENT:
                self._later(self.poll, steady=False)
            else:
                self._dies(error)

    def _judge(self, result):
        """Do what the loop and the command do with a pass, then plan the next one."""
        self.passes += 1
        self.checks.passed(self, result)
        self.sink.flush()
        record = self.records.current
        if result.plan.outcome is None:
            raise_hopeless(record)
        raise_bucket_gone(result, record)
        self._blind = self._blind + 1 if result.blind else 0
        if self._blind >= BLIND_PASSES:
            raise TpuctlError("the cloud cannot be read")
        plan = result.plan
        if plan.outcome is not None and plan.settled:
            self.checks.over(self, plan.outcome)
            self.ended = plan.outcome.value
            self.simulation.say(f"{self.name} ends: {self.ended}")
            return
        rates = self.simulation.case.rates
        if not self.simulation.quiet and self.simulation.random.random() < rates.kill:
            self.simulation.events["kill"] += 1
            self.calls_to_live = self.simulation.random.randint(0, 14)
        self._rest(result)

    def _rest(self, result):
        plan = result.plan
        for pause in self.loop._pauses(result):
            pause.wait()
        if plan.changes or result.failures:
            self._stretch = 0.0
            self._again(self.clock.asked)
        else:
            self._later(self.clock.asked, steady=not plan.waiting and plan.outcome is None)

    def _later(self, pause, *, steady):
        """Look again after *pause* or later; news cut a long sleep short."""
        well = self.checks.works_well(self.name)
        self._stretch = min(2 * self._stretch or pause, max(pause, HOUR if well else MAX_STRETCH))
        seconds = (
            self.simulation.random.expovariate(1 / DAY) if steady and well else max(pause, self._stretch)
        )
        seconds = min(seconds, self._remaining())
        self.asleep = seconds > self.poll
        self._again(seconds)

    def _remaining(self):
        """Return the seconds until budget or time to live may end the deployment."""
        record, now = self.records.current, self.simulation.now()
        remaining = [(record.started_at or now) + self.spec.watch.ttl - now]
        budget = self.spec.watch.budget_usd
        if budget is not None:
            rate = max(
                hourly(self.spec, shared_catalog(), zone).billed_usd or 0.0 for zone in self.spec.tpu.zones
            )
            remaining.append((budget - self._usd_so_far(record, now)) / max(rate, 1e-6) * 3600)
        return max(1.0, min(remaining) + self.simulation.random.uniform(0, self.poll))

    def _dies(self, error):
        self._turn += 1
        self.asleep = False
        self.simulation.say(f"{self.name} dies: {type(error).__name__} {error}".rstrip())
        if not isinstance(error, ProcessKilled | TpuctlError):
            raise error
        if isinstance(error, TpuctlError) and not isinstance(error, LeaseHeldError):
            self.simulation.events["command failed"] += 1
        soon = 60 if self.simulation.quiet else 600
        self.simulation.scheduler.after(self.simulation.random.uniform(5, soon), self.start)

    def take_down(self):
        """Run `down`; time passes for all others meanwhile. Return what is left."""
        self._turn += 1
        self._count += 1
        self.ended = self.command = "down"
        clock = Pauses(
            self.simulation.scheduler.clock, lambda s: self.simulation.run_until(self.simulation.now() + s)
        )
        self._build(clock)
        with self.simulation.acts(self):
            self.lease.acquire()
            self.records.load(forgiving=True)
            self.checks.began(self)
            return Deletion(self.deployment).machines()
