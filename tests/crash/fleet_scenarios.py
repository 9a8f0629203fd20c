"""What is going on when a command of a fleet is killed, and what must hold after somebody has gone on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.kit.user import FleetOwner
from tests.simulation.invariants import Violation

HERE, ELSEWHERE, DOWN = "typed again", "typed again on another computer", "taken down"
LEASE = 70.0
"""Seconds after which the lease of a process that was killed on another computer has run out."""
ENDS = (0, 130)
"""How a command ends well: by itself, or by the Ctrl-C of a scenario."""
HOURS = 12 * 3600.0


@dataclass(frozen=True)
class FleetCrashScenario:
    """
    Hold one command: what is there *before* it, its *words*, and how many *nodes* are there after it.

    *seconds* presses Ctrl-C then, for commands that do not end. *check* is given the lab after the command
    was typed again; it raises Violation. *file* is the fleet's file, *gone* says that the command ends the fleet.
    """

    name: str
    words: tuple
    before: Callable = lambda lab: None
    check: Callable = lambda lab: None
    nodes: int | None = 2
    seconds: float | None = None
    ways: tuple = (HERE, ELSEWHERE, DOWN)
    file: dict = field(default_factory=dict)
    gone: bool = False

    def go(self, lab, kill=()):
        """Type the command; if it was killed, go on as the points say. Raise Violation if that fails."""
        said = lab.type(lab.owner, self.words, self.seconds, kill=kill)
        way = HERE if said.code is not None else kill.way
        if way == DOWN:
            lab.well(lab.owner, ("down", "--yes"))
            lab.nothing()
            return
        if said.code is None:
            if way == ELSEWHERE:
                # The error names the holder of the lease, and nothing may be changed; later the lease has run out.
                lab.type(lab.away, self.words, self.seconds)
                lab.cloud.wait(LEASE)
            lab.well(lab.away if way == ELSEWHERE else lab.owner, self.words, self.seconds)
        elif said.code not in ENDS:
            raise Violation(f"it ends with {said.code} without a kill: {said.err[-600:]}")
        if self.gone:
            lab.nothing()
            return
        lab.as_many(self.nodes)
        self.check(lab)


class FleetCrashLab:
    """A cloud, the owner's computer and another one, and the jobs that were submitted."""

    def __init__(self, cloud, scenario):
        self.cloud, self.jobs, self.gone = cloud, {}, False
        file = {"fleet__nodes": 2, "watch__poll": "60s", **scenario.file}
        self.owner, self.away = FleetOwner(cloud, "home", **file), FleetOwner(cloud, "away", **file)

    @property
    def fleet(self):
        return self.cloud.machines.fleet

    @property
    def queue(self):
        """Return the tasks that Slurm has, as (job, number)."""
        return [(task.name, task.number) for c in self.fleet.controllers.values() for task in c.tasks]

    def edit(self, **file):
        """Change the file on both computers."""
        for user in (self.owner, self.away):
            user.edit(**{"watch__poll": "60s", **file})

    def type(self, user, words, seconds=None, kill=()):
        """Type a command; a job's file is named by its job."""
        words = [
            str(user.job_file(word[:-5], **self.jobs[word[:-5]])) if word.endswith(".yaml") else word
            for word in words
        ]
        said = user.run(*words, kill=kill, interrupt=seconds, timeout=HOURS)
        for text in (said.out, said.err):
            if "Traceback" in text or "this is a bug in tpuctl" in text:
                raise Violation(f"{words}: {text[-2000:]}")
        self.judge()
        return said

    def well(self, user, words, seconds=None):
        """Type a command that has to end well."""
        said = self.type(user, words, seconds)
        if said.code not in ENDS:
            raise Violation(f"{' '.join(words)} ends with {said.code}: {said.err[-600:]}")

    def judge(self):
        """Raise Violation for what has happened so far that never may."""
        violations = [*self.fleet.book.verdict, *self.cloud.checks.verdict]
        if violations:
            raise Violation("; ".join(violations))

    def as_many(self, nodes):
        """Exactly so many nodes are there and work, and one VM."""
        there = self.cloud.nodes()
        if nodes is not None and (len(there), len(self.cloud.in_use())) != (nodes, nodes):
            raise Violation(f"{nodes} nodes should be there: {there}")
        if list(self.cloud.vms().values()) != ["RUNNING"]:
            raise Violation(f"one VM should run: {self.cloud.vms()}")

    def nothing(self):
        """Nothing that costs money is there, also later."""
        self.cloud.wait(600)
        if self.cloud.nodes() or self.cloud.vms():
            raise Violation(f"F15 left: {self.cloud.nodes()} {self.cloud.vms()}")
        self.gone = True

    def finish(self, scenario):
        """Let every task end, then take all down: each task has one mark, and nothing is left."""
        if not self.gone:
            for name in self.jobs:
                self.well(self.owner, ("release", name))
            for _ in range(8):
                if not self.unended():
                    break
                self.type(self.owner, ("watch",), 240)
            if self.unended() or self.queue:
                raise Violation(f"F1 not ended: {self.unended()}; in the queue: {self.queue}")
        self.well(self.owner, ("down", "--yes", "--delete-data"))
        self.nothing()
        if self.cloud.buckets():
            raise Violation(f"F15 left: {self.cloud.buckets()}")

    def unended(self):
        """Return the tasks that have no mark and were not cancelled; raise Violation for one with two."""
        remaining = []
        for name, how in self.jobs.items():
            (order,) = self.owner.fleet("queue", name, "--json")["jobs"]
            for task in order["tasks"]:
                key = name, task["number"]
                marks = self.fleet.marks(*key)
                if task["state"] == "cancelled":
                    continue
                if len(marks) > 1:
                    raise Violation(f"F1 {key} has the marks {marks}")
                if not marks:
                    remaining.append(key)
                elif max((s for s, _ in self.fleet.saved(*key)), default=how["steps"]) != how["steps"]:
                    raise Violation(f"F1 {key} is done with {self.fleet.saved(*key)}")
        return remaining


def up(lab, job=0, **more):
    """A fleet is up, with a job of some tasks if *job*."""
    lab.well(lab.owner, ("up", "--yes"))
    if job:
        submit(lab, "sweep", job, **more)


def submit(lab, name, tasks, **more):
    """Submit a job."""
    lab.jobs[name] = {"tasks": tasks, "steps": 15, **more}
    lab.well(lab.owner, ("submit", f"{name}.yaml"))


def queued_once(lab, *tasks):
    """Slurm has these tasks, each once."""
    if sorted(lab.queue) != sorted(tasks):
        raise Violation(f"Slurm has {sorted(lab.queue)}")


def to_submit(lab, name, tasks, **more):
    """A job is written to a file."""
    lab.jobs[name] = {"tasks": tasks, "steps": 15, **more}


def before_submit(lab):
    """A fleet is up, and a job is in its file."""
    up(lab)
    to_submit(lab, "sweep", 3)


def before_submit_after(lab):
    """A job runs, and one that comes after it is in its file."""
    up(lab, 1, steps=30)
    to_submit(lab, "next", 2, after=["sweep"])


def waits_for_it(lab):
    """The second job is queued once, and waits for the first."""
    queued_once(lab, ("sweep", 0), ("next", 0), ("next", 1))
    (controller,) = lab.fleet.controllers.values()
    if any(task.node or not task.after for task in controller.tasks if task.name == "next"):
        raise Violation("next does not wait")


def held(lab, *, wanted):
    """Tasks that do not run are held, or not."""
    queued_once(lab, *(("sweep", number) for number in range(4)))
    (controller,) = lab.fleet.controllers.values()
    if any(task.held != wanted for task in controller.tasks if not task.node):
        raise Violation(f"what waits should be {'held' if wanted else 'free'}")


def before_release(lab):
    """A job is held."""
    up(lab, 4, steps=30)
    lab.well(lab.owner, ("hold", "sweep"))


def before_retry(lab):
    """One task has failed, one was cancelled."""
    up(lab, 3, steps=30)
    lab.cloud.put_object("jobs/sweep/ends/2.failed", b'{"incarnation": 1}')
    lab.well(lab.owner, ("cancel", "sweep/1"))


def tried_again(lab):
    """All three tasks are queued."""
    if lab.fleet.marks("sweep", 2) == ["jobs/sweep/ends/2.failed"]:
        raise Violation("the failure is still marked")
    queued_once(lab, *(("sweep", number) for number in range(3)))


def cancelled(lab):
    """Nothing is queued."""
    queued_once(lab)
    if {task["state"] for task in lab.owner.job("sweep")["tasks"]} != {"cancelled"}:
        raise Violation("not everything is cancelled")


def before_a_preemption(lab):
    """A node will be preempted."""
    up(lab, 4, steps=30)
    lab.cloud.wait(300)
    lab.cloud.later(30, lambda: lab.cloud.model.preempt("demo-002-tpu-g1", notice=False))


def before_forgetting(lab):
    """Slurm has lost its state."""
    up(lab, 3, steps=30)
    for controller in lab.fleet.controllers.values():
        controller.lose_state()


def before_fewer(lab):
    """Three nodes are up, two are wanted."""
    lab.edit(fleet__nodes=3)
    up(lab, 4, steps=30)
    lab.edit(fleet__nodes=2)


def before_more(lab):
    """One node is up, two are wanted."""
    lab.edit(fleet__nodes=1)
    up(lab, 4, steps=30)
    lab.edit(fleet__nodes=2)


GROWS = {"fleet__min_idle": 0, "fleet__idle": "1m"}


def before_growth(lab):
    """No node is up, and two tasks wait."""
    up(lab, 2)


def before_shrinking(lab):
    """One node is up, whose task has ended just now."""
    up(lab, 1)
    lab.well(lab.owner, ("watch",), 200)
    if len(lab.cloud.in_use()) != 1 or lab.unended():
        raise Violation(f"the scenario begins with {lab.cloud.nodes()}")


def none_torn(lab):
    """No machine with a task was deleted."""
    if lab.fleet.torn:
        raise Violation(f"deleted with the tasks {lab.fleet.torn}")


SCENARIOS = (
    FleetCrashScenario("up", ("up", "--yes")),
    FleetCrashScenario("up, fewer nodes", ("up", "--yes"), before_fewer),
    FleetCrashScenario("up, more nodes", ("up", "--yes"), before_more),
    FleetCrashScenario("submit", ("submit", "sweep.yaml"), before_submit,
          lambda lab: queued_once(lab, *(("sweep", number) for number in range(3)))),
    FleetCrashScenario("submit, after another", ("submit", "next.yaml"), before_submit_after, waits_for_it),
    FleetCrashScenario("cancel", ("cancel", "sweep"), partial(up, job=3, steps=30), cancelled),
    FleetCrashScenario("hold", ("hold", "sweep"), partial(up, job=4, steps=30), partial(held, wanted=True)),
    FleetCrashScenario("release", ("release", "sweep"), before_release, partial(held, wanted=False)),
    FleetCrashScenario("retry", ("retry", "sweep"), before_retry, tried_again),
    FleetCrashScenario("watch, a node is lost", ("watch",), before_a_preemption, seconds=400, ways=(HERE, DOWN)),
    FleetCrashScenario("watch, Slurm has forgotten", ("watch",), before_forgetting, seconds=60, ways=(HERE, DOWN)),
    FleetCrashScenario("watch, the fleet grows", ("watch",), before_growth, none_torn, seconds=100,
          ways=(HERE, DOWN), file=GROWS),
    FleetCrashScenario("watch, the fleet shrinks", ("watch",), before_shrinking, none_torn, nodes=0, seconds=200,
          ways=(HERE, DOWN), file=GROWS),
    FleetCrashScenario("down", ("down", "--yes"), partial(up, job=3, steps=30), ways=(HERE, ELSEWHERE), gone=True),
    FleetCrashScenario("down --delete-data", ("down", "--yes", "--delete-data"), partial(up, job=3, steps=30),
          ways=(HERE, ELSEWHERE), gone=True),
)  # fmt: skip
