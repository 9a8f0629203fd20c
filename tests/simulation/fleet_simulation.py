"""One fleet, those who use it, and what goes wrong with it; what must hold is checked as it goes."""

import json
from collections import Counter
from random import Random

from orchestrator.emulator.http.router import Response
from tests.kit.cloud import VirtualCloud
from tests.kit.machines import CloudSsh
from tests.kit.user import User
from tests.simulation import invariants
from tests.simulation.fleet_case import draw
from tests.simulation.invariants import Violation

HOUR = 3600.0
A_MINUTE = 60
"""Creates of TPUs that a project may ask for in a minute (F13)."""
STRIDE = 10.0
SLACK = 2400.0
"""Seconds in calm after which every task must have ended, beside the time that the work takes."""
NAMES = ("sweep", "array", "last")


class FleetCloud(VirtualCloud):
    """A cloud with a hundred machines: they have their turn each ten seconds, however often a watch looks."""

    turned = float("-inf")

    def passing(self):
        now = self.clock.monotonic()
        if now - self.turned < STRIDE and not any(at <= now for at, _ in self.plans):
            if self.acting:
                self.acting[-1].tick()
            return
        self.turned = now
        super().passing()


class SimulatedFleetOwner(User):
    """A computer of the fleet's owner."""

    def edit(self, **file):
        super().edit(**{"vm": {}, **file})
        del self.file["job"]
        (self.folder / "tpuctl.yaml").write_text(json.dumps(self.file))


class FleetSimulation:
    """One simulated run of a fleet."""

    def __init__(self, seed, folder, say):
        self.case, self.random, self._say = draw(seed), Random(f"fleet life {seed}"), say
        self.cloud = FleetCloud(folder, latency="realistic")
        self.events, self.jobs, self.cancelled, self.calm = Counter(), {}, set(), False
        self.after, self.unsure = {}, []
        self.lists, self.list_rate, self.calls, self.number = Counter(), 0.0, 0, 0
        self.cloud.checks.observe = lambda: None  # One deployment each; here it is one fleet, judged below.
        machines = self.cloud.machines
        machines.saves_nothing = lambda worker: "FLEET_NODE" in worker.env
        machines.reports_nothing = self._reports_nothing
        self.nodes = self.case.nodes

    @property
    def fleet(self):
        return self.cloud.machines.fleet

    @property
    def book(self):
        return self.fleet.book

    def say(self, text):
        self._say(f"{self.cloud.clock.monotonic():8.0f} {text}")

    # The course of a run.

    def run(self):
        case, cloud = self.case, self.cloud
        self.home = SimulatedFleetOwner(cloud, "home")
        self.beside = SimulatedFleetOwner(cloud, "beside", beside=self.home)
        self.away = SimulatedFleetOwner(cloud, "away")
        self._edit()
        self._until_well(self.home, "up", "--yes", kill=self._some_kill())
        self._submit(self.home)
        cloud.distort = self._distort
        for at, what in case.faults:
            cloud.later(at, lambda what=what: self._inject(what))
        for at, what in case.errands:
            cloud.later(at, lambda what=what: self._errand(what))
        end = cloud.clock.monotonic() + case.minutes * 60
        kills = list(case.watch_kills)
        while cloud.clock.monotonic() < end:
            remaining = end - cloud.clock.monotonic()
            kill = kills.pop() if kills else ()
            said = self._type(
                self.home, "watch", kill=kill, interrupt=remaining + 1, timeout=remaining + 4 * HOUR
            )
            if said.code is None:
                self.events["watch killed"] += 1
            cloud.wait(self.random.choice((5, 30, 200)))
        self._calm()
        self._down()

    def _end_faults(self):
        cloud = self.cloud
        self.say("calm")
        self.calm = True
        cloud.plans.clear()
        cloud.distort = self._count
        cloud.change(stockouts=frozenset())
        for slurmd in self.fleet.slurmds.values():
            slurmd.frozen_until = slurmd.cut_off_until = 0.0
        for controller in self.fleet.controllers.values():
            controller.hold = 13.0
        self._reach_vm("")

    def _calm(self):
        """End all faults; every task must end, whatever has happened."""
        self._end_faults()
        cloud = self.cloud
        self._settled_budget()
        if self.case.budget is not None:
            return
        # A queue that was cut short in the middle of a submission is submitted again by who typed it.
        for name in list(self.jobs):
            self._well(self.home, "submit", str(self._job_file(self.home, name)))
            self._well(self.home, "release", name)
        # Commands that were killed may have done their work or not: they are typed again.
        for words in self.unsure:
            self._well(self.home, *words)
            self._count_cancelled(*words)
        self._well(self.home, "up", "--yes")
        self._queued("after up")
        work = sum(tasks * (steps * 10 + 60) for tasks, steps in self.jobs.values())
        end = cloud.clock.monotonic() + SLACK + 1.5 * work / self.nodes
        while self._open() and cloud.clock.monotonic() < end:
            self._type(self.home, "watch", interrupt=600, timeout=HOUR * 5)
        remaining = self._open()
        if remaining:
            raise Violation(f"F1 tasks that never end in calm: {remaining}; the queue: {self._queue()}")
        self._judge()
        for name, (tasks, steps) in self.jobs.items():
            for number in range(tasks):
                self._one_end(name, number, steps)
        before = Counter(self.lists)
        self._type(self.home, "watch", interrupt=300, timeout=HOUR)
        zones = len(self.case.zones)
        self.list_rate = sum((self.lists - before).values()) / zones / 5
        if self._queue():
            raise Violation(f"F1 the queue has tasks that have ended: {self._queue()}")
        self._idle()

    def _idle(self):
        """A fleet that follows its queue keeps only the nodes to spare."""
        if self.case.min_idle is None:
            return
        wanted = min(self.case.min_idle, self.nodes)
        for _ in range(4):
            if len(self.cloud.nodes()) == wanted:
                return
            self._type(self.home, "watch", interrupt=300, timeout=HOUR)
        raise Violation(f"nodes without work are kept: {self.cloud.nodes()}, {wanted} wanted")

    def _one_end(self, name, number, steps):
        marks = self.fleet.marks(name, number)
        if (name, number) in self.cancelled and not marks:
            return
        if len(marks) != 1:
            raise Violation(f"F1 {name}/{number} has the marks {marks}")
        saved = [step for step, _ in self.fleet.saved(name, number)]
        if max(saved, default=0) != steps:
            raise Violation(
                f"F1 {name}/{number} is marked {marks[0]}, and its newest checkpoint is of {saved}"
            )

    def _settled_budget(self):
        """The bill stays within the budget, but for what runs while nobody looks."""
        budget, cloud = self.case.budget, self.cloud
        if budget is None:
            return
        for _ in range(8):
            if not cloud.in_use():
                break
            self._type(self.home, "watch", interrupt=4 * HOUR, timeout=9 * HOUR)
            cloud.wait(60)
        usd = sum(line.usd or 0.0 for line in cloud.model.bill())
        # A look, a deletion; and the pauses between two watches, in which nobody looked.
        seconds = 900.0 + 260.0 * (len(self.case.watch_kills) + 8)
        violation = invariants.i6_within_budget(usd, budget, 8.0 * self.case.nodes, seconds)
        if violation or cloud.in_use():
            raise Violation(f"budget: {violation or f'{cloud.in_use()} run on'}")

    def _down(self):
        cloud, who = self.cloud, self.home if self.case.leaves_from == "home" else self.away
        self._well(who, "down", "--yes")
        cloud.wait(HOUR)
        remaining = {**cloud.nodes(), **cloud.vms()}
        if remaining:
            raise Violation(f"F15 left after a down that ended well: {remaining}")
        self._well(who, "down", "--yes", "--delete-data")
        if cloud.buckets():
            raise Violation(f"F15 left after down --delete-data: {cloud.buckets()}")
        self._judge()

    # What people type.

    def _edit(self, **more):
        if self.case.min_idle is not None:
            more |= {"fleet__min_idle": min(self.case.min_idle, self.nodes), "fleet__idle": "2m"}
        for user in (self.home, self.beside, self.away):
            user.edit(
                tpu__type="v2-8", tpu__zones=list(self.case.zones), tpu__spot=True, fleet__nodes=self.nodes,
                watch__listen="30s", watch__ttl="30d",
                **({"watch__budget_usd": self.case.budget} if self.case.budget is not None else {}), **more,
            )  # fmt: skip

    def _type(self, user, *words, **options):
        self.say(f"{user.name}: {' '.join(words)} {options.get('kill', '')}")
        path = str(user.folder / "tpuctl.yaml")
        said = user.type("fleet", *words, "--file", path, **options)
        self.calls += said.calls
        self.say(f"  -> {said.code} {said.err.strip()[-200:] if said.code else ''}")
        for text in (said.out, said.err):
            if "Traceback" in text or "this is a bug in tpuctl" in text:
                raise Violation(f"{words}: {text[-2000:]}")
        self._judge()
        return said

    def _until_well(self, user, *words, tries=8, **options):
        """Type a command until it ends well."""
        for _ in range(tries):
            said = self._type(user, *words, timeout=6 * HOUR, **options)
            if said.code == 0:
                return
            options.pop("kill", None)
            self.cloud.wait(70)
        raise Violation(f"{words} does not end well: {said.err[-600:]}")

    _well = _until_well

    def _some_kill(self):
        r = self.random
        return (r.randint(1, 30 + 8 * self.nodes), r.choice(("before", "after"))) if r.random() < 0.4 else ()

    def _job_file(self, user, name):
        tasks, steps = self.jobs[name]
        path = user.folder / f"{name}.yaml"
        job = {"source": "src", "command": "python3 train.py", "target_steps": steps,
               "checkpoint": {"format": "marker"}}  # fmt: skip
        path.write_text(json.dumps({"name": name, "array": tasks, "job": job, **self.after.get(name, {})}))
        return path

    def _submit(self, user, **options):
        name = NAMES[min(len(self.jobs), len(NAMES) - 1)]
        r = self.random
        self.jobs.setdefault(
            name, (max(1, self.case.tasks // (1 + len(self.jobs))), r.choice((15, self.case.steps)))
        )
        return self._type(user, "submit", str(self._job_file(user, name)), **options)

    def _errand(self, what):
        """Do something on the same computer while the watch runs."""
        self.events[what] += 1
        user, r = self.beside, self.random
        kill = (r.choice((1, 2, 3, "slurm")), r.choice(("before", "after"))) if "killed" in what else ()
        what = what.partition(",")[0]
        if what == "submit after":
            self.jobs.setdefault("next", (r.randint(1, 3), 15))
            # A task of the first one may be cancelled, which would close the way for ever.
            self.after["next"] = {"after": {NAMES[0]: "any"}}
            self._type(user, "submit", str(self._job_file(user, "next")))
        elif what.startswith("submit"):
            self._submit(user, kill=kill)
        elif what in {"hold", "release", "retry"}:
            self._change(user, what, r.choice(list(self.jobs)), kill=kill)
        elif what.startswith("cancel"):
            self._cancel(user, whole="job" in what, kill=kill)
        elif what == "resize":
            self.nodes = max(1, min(100, self.nodes + r.choice((-2, -1, 1, 2))))
            self._edit()
            self._type(user, "up", "--yes", timeout=6 * HOUR)
        elif what.startswith("up"):
            self._type(self.away if "elsewhere" in what else user, "up", "--yes", kill=kill, timeout=6 * HOUR)
        else:
            self._type(user, what, timeout=6 * HOUR)

    def _cancel(self, user, whole, kill):
        name = self.random.choice(list(self.jobs))
        tasks, _ = self.jobs[name]
        number = self.random.randrange(tasks)
        self._change(user, "cancel", name if whole else f"{name}/{number}", kill=kill)

    def _change(self, user, *words, kill):
        said = self._type(user, *words, kill=kill)
        if said.code == 0:
            self._count_cancelled(*words)
        elif words[0] in {"cancel", "retry"}:
            self.unsure.append(words)

    def _count_cancelled(self, verb, which):
        name, _, number = which.partition("/")
        these = {(name, n) for n in ((int(number),) if number else range(self.jobs[name][0]))}
        if verb == "cancel":
            self.cancelled |= these
        elif verb == "retry":
            self.cancelled -= these

    # What goes wrong.

    def _inject(self, what):  # noqa: C901 (a list of what goes wrong)
        cloud, r = self.cloud, self.random
        self.events[what] += 1
        live = [slurmd for slurmd in self.fleet.slurmds.values() if slurmd.alive]
        one = r.choice(live) if live else None
        self.say(f"{what} ({one.id if one else ''})")
        controllers = [c for c in self.fleet.controllers.values() if c.ran]
        controller = controllers[0] if controllers else None
        running = [task for task in controller.tasks if task.node] if controller else []
        if what.startswith("preempt") and cloud.in_use():
            node = r.choice(cloud.in_use())
            if cloud.nodes()[node] == "READY":
                cloud.model.preempt(node, notice="notice" in what)
        elif what == "machine death" and one:
            cloud.machines.stop(one.id)
        elif what == "freeze" and one:
            one.frozen_until = self.fleet.now() + r.choice((40, 200, 400, 1500))
        elif what == "cut off" and one:
            one.cut_off_until = self.fleet.now() + r.choice((40, 200, 900))
        elif what == "slurm forgets a task" and controller and controller.tasks:
            controller.forget(r.choice(controller.tasks))
        elif what == "slurm forgets its state" and controller:
            controller.lose_state()
        elif what in {"slurm loses sight of a task", "zombie"} and running:
            # It runs on where it is, and elsewhere again.
            controller.requeue(r.choice(running))
        elif what == "slurm queues late" and controller:
            controller.hold = r.choice((120.0, 600.0))
        elif what == "controller out of reach":
            self._reach_vm("connection timed out")
            cloud.later(r.choice((30, 300)), lambda: self._reach_vm(""))
        elif what == "stockout":
            cloud.change(stockouts=frozenset(r.sample(self.case.zones, 1)))
            cloud.later(r.choice((120, 900)), lambda: cloud.change(stockouts=frozenset()))

    def _reports_nothing(self, worker):
        slurmd = self.fleet.slurmds.get(worker.id)
        return slurmd is not None and (slurmd.frozen or slurmd.cut_off)

    def _reach_vm(self, trouble):
        CloudSsh.broken = staticmethod(
            lambda machine_id: trouble if "vm" in machine_id.split("-")[-1:] else ""
        )

    def _count(self, method, response):
        self.lists[method] += method == "tpu.nodes.list"
        return response

    def _distort(self, method, response):
        self._count(method, response)
        r = self.random.random()
        if r < self.case.errors + self.case.lost_answers and "list_objects" not in method:
            self.events["api error"] += 1
            return Response.of({"error": {"code": 503, "message": "try again", "status": "UNAVAILABLE"}}, 503)
        return response

    # What must hold.

    def _judge(self):
        verdict = self.book.verdict
        if verdict:
            raise Violation("; ".join(verdict))
        creates = sorted(
            at
            for call in self.cloud.log
            if "node" in call.method.lower() and "create" in call.method.lower()
            for at in [call.at]
        )
        self.creates = max((sum(1 for at in creates if 0 <= at - first < 60) for first in creates), default=0)
        if self.creates > A_MINUTE:
            raise Violation(f"F13 {self.creates} creates within a minute")

    def _queue(self):
        return sorted((task.name, task.number) for c in self.fleet.controllers.values() for task in c.tasks)

    def _open(self):
        """Return the tasks that have neither ended nor been cancelled."""
        return [
            (name, number) for name, (tasks, _) in self.jobs.items() for number in range(tasks)
            if not self.fleet.marks(name, number) and (name, number) not in self.cancelled
        ]  # fmt: skip

    def _queued(self, when):
        """Every open task is in Slurm's queue."""
        missing = set(self._open()) - set(self._queue())
        if missing:
            raise Violation(f"F1 {when} the queue has forgotten {sorted(missing)}")

    def fill(self, run):
        """Return what came of it."""
        run.nodes, run.tasks = self.case.nodes, sum(tasks for tasks, _ in self.jobs.values())
        run.starts, run.commits, run.fenced = self.book.starts, self.book.commits, self.book.fenced
        run.minutes, run.calls = self.cloud.clock.monotonic() / 60, self.calls
        run.lists, run.creates, run.events = self.list_rate, getattr(self, "creates", 0), self.events
