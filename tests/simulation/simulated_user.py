"""The users: they run `up`, `watch` and `down`, and start again what died."""

import shutil
from types import SimpleNamespace

from orchestrator.app.context.reporter import Reporter
from orchestrator.app.down import delete_all
from orchestrator.app.loop.watch import passes_to_the_end
from orchestrator.app.source.wanted import record_wanted
from orchestrator.app.up import Goal, pass_until
from orchestrator.domain.plan import Outcome
from orchestrator.engine.loop.loop import run
from orchestrator.engine.outcome_errors import raise_outcome
from orchestrator.errors import (
    JobFailedError,
    LeaseHeldError,
    LeftoverError,
    LimitReachedError,
    TpuctlError,
    UncommittedError,
)
from tests.kit.wire import PROJECT
from tests.planning.planning_kit import a_spec
from tests.simulation.simulation import DIGEST, SimulatedController
from tests.simulation.virtual_threads import ProcessKilled, VirtualProcess


class SimulatedUser:
    """
    One person with one deployment and two computers, `a` and `b`.

    *ended* is the outcome that a command reported, *down* the time since when all is gone. *wants_up* says that
    no `up` has come to its end since the last one was wanted.
    """

    def __init__(self, simulation, case, checks):
        self.simulation, self.case, self.checks = simulation, case, checks
        self.name = case.name
        self.random = simulation.random
        self.computer, self.ended, self.down, self.wants_down, self.wants_up = "a", "", None, False, False
        self.going_down = self.deleting = False
        self.main = None
        self._count, self._again = 0, False
        wrong = (0.0,) if simulation.case.rates.jump == 0 else (0.0, -90.0, 400.0, -4000.0)
        self.skews = {computer: self.random.choice(wrong) for computer in ("a", "b")}
        simulation.machines.jobs[case.name] = replace_job(case, self.spec)

    @property
    def spec(self):
        """Return the deployment file as it is now."""
        return self.simulation.specs[self.name]

    def edit(self):
        """Change the zones in the file and run `up`."""
        if self.going_down or self.ended:
            return
        self.simulation.events["edited file"] += 1
        self.simulation.specs[self.name] = a_spec(project=PROJECT, **self.case.edited)
        if self.main is not None:
            self.main.kill()
            self.main = None
        self.launch("up", self.random.uniform(1, 60))

    # Commands.

    def launch(self, command, after=0.0, computer=None, rival=False):
        """Start a command after a while; a main one unless it is a *rival*'s."""

        def start():
            if not rival and self.going_down and command != "down":
                return
            # Whoever starts it once more after its end wants it again, and it is no fault that it is there.
            if self.ended and command != "down":
                return
            self._start(command, computer or self.computer, rival)

        self.simulation.scheduler.after(after, start)

    def _start(self, command, computer, rival):
        self._count += 1
        name = f"{self.name}/{computer}/{command}{self._count}"
        process = VirtualProcess(self.simulation.scheduler, name, computer, self.skews[computer])
        process.command, process.deployment, process.rival = command, self.name, rival
        process.stretch = 0
        self.checks.began(process)
        process.simulation = self.simulation
        self.simulation.processes.append(process)
        if not rival:
            self.main = process
            self.wants_up |= command == "up"
        self.checks.started(process)
        self.simulation.say(f"{process.name} starts")
        process.start(lambda: getattr(self, f"_{command}")(process), lambda error: self._over(process, error))

    def _up(self, process):
        controller = SimulatedController(self.simulation, self.spec, process, "up")

        with controller.holding_lease():
            record_wanted(controller.deployment, DIGEST["bundle"], DIGEST["agent"])
            loop = process.loop = controller.loop(self.checks.began)
            pass_until(
                Goal.JOB.reached, loop, controller.deployment, Reporter(),
                lambda result: self._between(controller, result), wait=True,
            )  # fmt: skip

    def _watch(self, process):
        controller = SimulatedController(self.simulation, self.spec, process, "watch")
        with controller.holding_lease():
            if not controller.records.current.job.bundle:
                return
            loop = process.loop = controller.loop(self.checks.began)
            turns = lambda result: self._between(controller, result)  # noqa: E731
            result = run(passes_to_the_end(loop, controller.deployment, turns))
            raise_outcome(result)
            if result.plan.outcome is Outcome.DONE:
                process.end_read = "done"

    def _down(self, process):
        controller = SimulatedController(self.simulation, self.spec, process, "down", forgiving=True)
        with controller.holding_lease():
            remaining = delete_all(
                controller.deletion(), controller.deployment.bucket if self.deleting else ""
            )
            if self.deleting and not remaining:
                shutil.rmtree(controller.folder, ignore_errors=True)
        if remaining:
            raise LeftoverError("; ".join(f"{i.kind} {i.name} {i.state}" for i in remaining))

    # What happens between two looks.

    def _between(self, controller, result):
        """Judge a pass, then let something happen."""
        self.checks.passed(controller, result)
        self._tick(controller.process)

    def _tick(self, process):
        """Kill, pause or mis-set the process, or let the other computer start one as well."""
        rates, r = self.simulation.case.rates, self.random
        if self.simulation.quiet:
            return
        if r.random() < rates.kill:
            self.simulation.events["kill"] += 1
            process.calls_to_live = r.randint(0, 14)
        if r.random() < rates.pause:
            self.simulation.events["pause"] += 1
            process.paused_until = self.simulation.now() + r.uniform(20, 1200)
        if r.random() < rates.jump:
            self.simulation.events["clock jump"] += 1
            process.skew += r.choice((-1, 1)) * r.choice((5, 120, 3700))
            self.skews[process.computer] = process.skew
        if r.random() < rates.rival:
            self.simulation.events["second controller"] += 1
            other = "b" if process.computer == "a" else "a"
            self.launch(r.choice(("watch", "watch", "up")), r.uniform(0, 30), other, rival=True)

    def _over(self, process, error):
        """Judge how a command ended, and do what its user would do next."""
        kind = type(error).__name__ if error is not None else "ok"
        self.simulation.say(f"{process.name} ends: {kind} {error if error is not None else ''}".rstrip())
        if error is not None and not isinstance(error, TpuctlError | ProcessKilled):
            raise error
        self.checks.over(process, error)
        if process.command == "up" and error is None and not process.rival:
            self.wants_up = False
        if process.rival or process is not self.main:
            return
        r, calm = self.random, self.simulation.quiet
        soon = r.uniform(5, 60) if calm else r.uniform(5, 600)
        if process.command == "down":
            self._after_down(process, error, soon)
            return
        again = process.command
        if (
            isinstance(error, JobFailedError | LimitReachedError | UncommittedError)
            or getattr(process, "end_read", "") == "done"
        ):
            self.ended = getattr(process, "end_read", "") or type(error).__name__
            return
        if error is None:
            again = "watch"
        elif isinstance(error, ProcessKilled):
            self.computer = self.computer if r.random() < 0.7 else ("b" if self.computer == "a" else "a")
        elif "the bucket with checkpoints" in str(error):
            # What the hint says: begin again.
            self.take_down(delete=True, again=True)
            return
        elif not isinstance(error, LeaseHeldError):
            again = "up"
        self.launch("up" if self.wants_up else again, soon)

    def take_down(self, *, delete, again):
        """Run `down`, beside, after or instead of what runs."""
        self.going_down, self.deleting, self._again = True, delete, again
        main, r = self.main, self.random
        if main is not None and not main.ended and not main.dead:
            way = r.choice(("interrupt", "kill", "leave"))
            if way == "interrupt" and hasattr(main, "loop"):
                main.loop.stop.set()
                main.loop.wake.set()
            elif way == "kill":
                main.kill()
            else:
                self.computer = "b" if self.computer == "a" else "a"
        self.launch("down", r.uniform(1, 60))

    @property
    def unfinished_down(self):
        return self.going_down and self.ended != "down"

    def _after_down(self, process, error, soon):
        if error is not None:
            self.launch("down", soon)
            return
        self.down, self.ended, self.wants_up = self.simulation.now(), "down", False
        self.checks.went_down(self)
        if self._again:
            self.going_down = False
            self.launch("up", self.random.uniform(60, 1200))
            self.simulation.scheduler.after(0, self._reopen)

    def _reopen(self):
        self.down, self.ended, self._again = None, "", False


def replace_job(case, spec):
    """Return the job with what the deployment file says about it."""
    return SimpleNamespace(**{**vars(case.job), "failures": spec.job.failures})
