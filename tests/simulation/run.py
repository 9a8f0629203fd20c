"""Simulate one run from a seed: faults for hours, then calm, the desired state, and a day without a change."""

import gc
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

from orchestrator.domain.plan import Outcome
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT
from tests.simulation import invariants
from tests.simulation.checks import RunChecks
from tests.simulation.draw import HOUR, draw
from tests.simulation.invariants import SETTLE, Violation
from tests.simulation.machine_faults import MachineFaults
from tests.simulation.simulated_user import SimulatedUser
from tests.simulation.simulation import Simulation

CREATE = 400.0
"""Seconds that a create, the boot and the start of the job take at most in a calm time."""
HOLDS = 720.0
"""Seconds for which the desired state must last to count: loops still learn what happened before the calm."""

GARBAGE = 1_000_000
"""Objects since the last collection from which on a run is followed by one, which takes 50 ms."""


@dataclass
class SimulatedRun:
    """What came of one seed. *violation* is empty when all invariants held."""

    seed: int
    violation: str = ""
    hours: float = 0.0
    tpu_hours: float = 0.0
    rough_hours: float = 0.0
    deployments: int = 0
    commands: int = 0
    seconds: float = 0.0
    passes: int = 0
    settle: float = 0.0
    events: Counter = field(default_factory=Counter)
    calls: int = 0


@contextmanager
def collecting_at_the_end():
    """Collect the garbage of a run after it, not all the time: that takes a tenth of its time."""
    collecting = gc.isenabled()
    if not gc.get_freeze_count():  # a second freeze would keep the garbage of the run before for ever
        gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > GARBAGE:
            gc.collect()
        if collecting:
            gc.enable()


@collecting_at_the_end()
def simulate(seed, trace=None):
    """Simulate the run of *seed*; *trace* gets each line of what happened."""
    began, run = time.process_time(), SimulatedRun(seed)
    simulation = Simulation(draw(seed), trace)
    with simulation.running():
        try:
            RunParts(simulation, run).run()
        except Violation as broken:
            run.violation = str(broken)
        except Exception:
            run.violation = traceback.format_exc()
        run.violation = simulation.own_fault or run.violation
        if run.violation:
            simulation.say(f"VIOLATION {run.violation}")
        run.hours = (simulation.now() - simulation.start) / HOUR
        run.rough_hours = min(run.hours, simulation.case.hours)
        run.deployments, run.commands = len(simulation.specs), len(simulation.processes)
        run.passes = simulation.passes
        run.events.update(simulation.events)
        run.events.update(simulation.network.faults)
        run.calls = sum(simulation.cloud.calls.values())
        run.tpu_hours = sum(b.seconds for b in simulation.cloud.bill() if b.kind == "tpu") / HOUR
        for process in simulation.processes:
            process.kill()
        simulation.quiet = simulation.network.quiet = True
        simulation.scheduler.run_until(simulation.now() + 1)
    run.seconds = time.process_time() - began
    return run


class RunParts:
    """The parts of a run."""

    def __init__(self, simulation, run):
        self.simulation, self.result = simulation, run
        self.checks = RunChecks(simulation)
        self.users = [SimulatedUser(simulation, case, self.checks) for case in simulation.case.deployments]

    def run(self):
        simulation, r = self.simulation, self.simulation.random
        for user in self.users:
            user.launch("up", r.uniform(0, 300))
            if user.case.down_at is not None:
                simulation.scheduler.after(user.case.down_at * HOUR - 1, lambda o=user: self._down(o))
            if user.case.edit_at is not None:
                simulation.scheduler.after(user.case.edit_at * HOUR, user.edit)
        MachineFaults(simulation)
        simulation.scheduler.run_until(simulation.start + simulation.case.hours * HOUR)
        self._calm()
        self._quiet_day()
        for user in self.users:
            self.checks.moment(user.name)
            self.checks.spend(user.name)

    def _down(self, user):
        if not user.going_down:
            middle = user.case.down_at < self.simulation.case.hours
            user.take_down(delete=user.case.delete_data, again=middle and user.case.up_again)

    def _calm(self):
        """End all faults and wait for the desired state."""
        simulation = self.simulation
        simulation.say("calm")
        simulation.calm()
        began, bound = simulation.now(), SETTLE + CREATE + CREATE_TIMEOUT
        settled = None
        while settled is None or simulation.now() - settled < HOLDS:
            violations = [p for p in map(self._unsettled, self.users) if p]
            if not violations:
                settled = simulation.now() if settled is None else settled
            elif simulation.now() - began > bound:
                raise Violation(f"I4 not settled {bound / 60:.0f} min after the last fault: {violations}")
            else:
                settled = None
            simulation.scheduler.run_until(simulation.now() + 60)
        self.result.settle = settled - began

    def _unsettled(self, user):
        # A `down` that waits for the other computer's lease will still change something.
        violation = self.checks.settled(user) or ("its down has not ended" if user.unfinished_down else "")
        return f"{user.name}: {violation}" if violation else ""

    def _quiet_day(self):
        """Let a day pass in which nothing happens; the loops look, and change nothing."""
        simulation = self.simulation
        for gang in simulation.machines.gangs.values():
            gang.rest()
        simulation.scheduler.run_until(simulation.now() + 300)
        for user in self.users:
            self.demand_settled(user)
        before = Counter(self.checks.mutations)
        simulation.say("a quiet day")
        simulation.stretched = True
        simulation.scheduler.run_until(simulation.now() + 24 * HOUR)
        extra = self.checks.mutations - before
        for (deployment, method), count in extra.items():
            if count > self._ended_by_the_service(deployment, method) and not self._may_end(deployment):
                violation = invariants.i4_stable({method: count})
                raise Violation(f"I4 {deployment}: {violation}")

    def demand_settled(self, user):
        record = self.simulation.stored_history(user.name)
        # Its last save may have been on its way when the gang was put to rest.
        done = any(deployment == user.name for deployment, _ in self.simulation.machines.truly_done)
        ending = (done or self._may_end(user.name)) and record is not None and record.outcome
        if self.simulation.specs[user.name].tpu.request == "flex-start" and self._unsettled(user):
            # Its TPU may have had its time just now: the next one comes within half an hour.
            self.simulation.scheduler.run_until(self.simulation.now() + HOUR / 2)
        if not ending:
            self.checks.demand("I4", self._unsettled(user), "after it had settled")

    def _ended_by_the_service(self, deployment, method):
        """Return how many calls of a day follow from flex-start TPUs whose time is over."""
        tpu = self.simulation.specs[deployment].tpu
        if tpu.request != "flex-start":
            return 0
        # A gang of a new TPU does not rest, so its job may come to its end.
        if method == "compute.instances.stop":
            record = self.simulation.stored_history(deployment)
            # One that has saved in vain ends, too, and is none of the truly done.
            in_vain = record is not None and record.outcome is Outcome.UNCOMMITTED
            return in_vain + sum(done == deployment for done, _ in self.simulation.machines.truly_done)
        if not method.startswith("tpu.queuedResources."):
            return 0
        return 24 * HOUR // tpu.max_run_duration + 1

    def _may_end(self, deployment):
        """Return whether the day may bring the end of budget or time to live, or a change for a deadline."""
        watch = self.simulation.specs[deployment].watch
        return watch.deadline is not None or watch.budget_usd is not None or watch.ttl < 7 * 86400
