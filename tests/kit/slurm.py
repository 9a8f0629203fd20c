"""
Model a fleet's Slurm in virtual time, behind the commands that `engine/fleet/slurm.py` sends to slurm.sh.

It behaves as docs/decisions/0012 has measured the real one; tests/engine/test_slurm_contract.py runs on both.
Failures come from outside: a lost state, or a task that is forgotten, started twice, or requeued late.
"""

import itertools
import shlex
from dataclasses import dataclass, field, replace

from orchestrator.contract.node_list import node_list

HOLD = 13.0
"""Seconds that a requeued task waits: Slurm lets its credential expire first (cred_expire)."""
SILENT = 300.0
"""Seconds after which a node that does not answer is down (SlurmdTimeout)."""
ENDS = (0, 1)
"""Exit statuses with which a task leaves the queue; with any other it is requeued, as with RequeueExit."""
ENGINE = f"slurm-{'0' * 64}.tar.gz"


def words_of(script):
    """Return the words that a script of templates/remote/ passes to slurm.sh."""
    return [word if isinstance(word, str) else word.path for word in script.arguments]


@dataclass(eq=False)
class ModelTask:
    """One task in the queue; *node* is where it runs."""

    array: int
    name: str
    number: int
    script: str
    order: int
    begin_at: float = 0.0
    restarts: int = 0
    nice: int = 0
    node: str = ""
    held: bool = False
    after: tuple = ()
    account: str = ""
    qos: str = ""
    slices: tuple = (1, 1)

    @property
    def nodes(self):
        return node_list(self.node)

    @property
    def id(self):
        return f"{self.array}_{self.number}"

    @property
    def state(self):
        return "RUNNING" if self.node else "PENDING"


@dataclass(eq=False)
class SlurmModelNode:
    """One node as the controller knows it; *slurmd* is its connection, None without one."""

    comment: str = ""
    up: bool = False
    reported_down: bool = False
    drain: str = ""
    busy_at: float | None = None
    slurmd: object = None
    last_contact: float = float("-inf")
    zone: str = ""


@dataclass(eq=False)
class SlurmModel:
    """The controller on one VM, with its state on the VM's disk."""

    clock: object
    hold: float = HOLD
    settings: dict = field(default_factory=dict)
    tasks: list = field(default_factory=list)
    nodes: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)
    over: dict = field(default_factory=dict)
    refused: set = field(default_factory=set)
    ran: bool = False
    count: itertools.count = field(default_factory=lambda: itertools.count(1))

    # Commands typed on the VM.

    def run(self, words):
        """Run the arguments of `slurm.sh`; return the output. Raise ValueError with the error output."""
        verb, *words = words
        if verb not in {"engine", "database", "head"} and not self.ran:
            raise ValueError("this machine is no fleet's Slurm controller")
        found = getattr(self, f"_{verb}")(*words)
        self.schedule()
        return found or ""

    def _engine(self):
        return f"{ENGINE}\n"

    def _database(self):
        return f"database-{'0' * 64}.tar.gz\n"

    def _head(self):
        self.settings = dict(word.split("=", 1) for word in shlex.split(self.files["settings"]))
        self.ran = True
        name, count = self.settings["FLEET_NAME"], int(self.settings["FLEET_NODES"])
        wanted = [f"{name}-{number:03d}" for number in range(1, count + 1)]
        for gone in set(self.nodes) - set(wanted):
            self._leave_node(gone)
            del self.nodes[gone]
        for one in wanted:
            self.nodes.setdefault(one, SlurmModelNode())

    def _submit(self, name, path, numbers, *options):
        if name in self.refused:
            raise ValueError(f"sbatch: error: {name}: Invalid account")
        script = self.files[path.rpartition("/")[2]]
        queued = {task.number for task in self.tasks if task.name == name}
        missing = [number for number in map(int, numbers.split(",")) if number not in queued]
        if not missing:
            return ""
        array = next(self.count)
        reported = dict(option.partition("=")[::2] for option in options)
        after = tuple(filter(None, reported.get("--dependency", "").split(",")))
        also = {"held": "--hold" in reported, "after": after}
        also |= {"account": reported.get("--account", ""), "qos": reported.get("--qos", "")}
        least, _, most = reported.get("--nodes", "1-1").partition("-")
        also["slices"] = int(least), int(most)
        self.tasks += [ModelTask(array, name, number, script, array, **also) for number in missing]
        return f"{array}\n"

    def _lost(self, name, incarnation):
        node = self.nodes.get(name)
        if node is not None and node.comment == incarnation:
            node.up, node.reported_down = False, True
            self._leave_node(name)

    def _nodes(self):
        return self._node_states(*sorted(self.nodes))

    def _node_states(self, *names):
        """Print the time, then `scontrol -o show node` for each."""
        return "\n".join([str(int(self.clock.now())), *map(self._row, names)]) + "\n"

    def _row(self, name):
        node = self.nodes[name]
        state = "ALLOCATED" if self._busy(name) else "IDLE" if node.up else "DOWN"
        drain = f"+DRAIN Reason={node.drain}" if node.drain else ""
        busy_at = int(node.busy_at or 0)
        return f"NodeName={name} ActiveFeatures={node.zone} LastBusyTime={busy_at} State={state}{drain}"

    def _drain(self, name, incarnation):
        self.nodes[name].drain = f"tpuctl-idle-g{incarnation}"
        return self._node_states(name)

    def _returning(self, name, incarnation):
        node = self.nodes[name]
        if int(node.comment or 0) <= int(incarnation):
            node.up, node.reported_down, node.drain = False, True, ""

    def _undrain(self, name):
        self.nodes[name].drain = ""

    def _busy(self, name):
        return any(name in task.nodes for task in self.tasks)

    def _call(self, verb, *words):
        return getattr(self, f"_call_{verb}")(*words)

    def _call_squeue(self, *words):
        """Print `squeue -h -r -O COLUMNS`; the columns are ignored."""
        columns = [one.split(":.") for one in words[words.index("-O") + 1].split(",")]
        return "".join(
            "".join(str(self._column(task, name)).rjust(int(width))[: int(width)] for name, width in columns)
            + "\n"
            for task in self.tasks
        )

    def _column(self, task, column):
        return {
            "Name": task.name, "ArrayTaskID": task.number, "State": task.state, "RestartCnt": task.restarts,
            "ArrayJobID": task.array, "JobArrayID": task.id, "NodeList": task.node, "Nice": task.nice,
            "Account": task.account or "(null)", "QOS": task.qos,
            "PriorityLong": 0 if task.held else 1000,
            "Dependency": ",".join(f"{one}(unfulfilled)" for one in self._waits(task)) or "(null)",
        }[column]  # fmt: skip

    def _waits(self, task):
        """Return what a task still waits for: `afterok` needs a successful end of all tasks of an array."""
        return [one for one in task.after if not self._fulfilled(*one.split(":"))]

    def _fulfilled(self, kind, array):
        there = any(str(task.array) == array for task in self.tasks)
        return not there and (kind == "afterany" or not any(self.over.get(int(array), ())))

    def _call_scontrol(self, verb, *words):
        if verb == "update":
            reported = dict(word.split("=", 1) for word in words)
            arrays, after = (
                reported["jobid"].split(","),
                tuple(filter(None, reported["dependency"].split(","))),
            )
        else:
            arrays, after = words[0].split(","), None
        for task in [one for one in self.tasks if str(one.array) in arrays and not one.node]:
            task.after = task.after if after is None else after
            task.held = {"hold": True, "release": False}.get(verb, task.held)

    def _call_scancel(self, *ids):
        for task in [one for one in self.tasks if one.id in ids]:
            self.tasks.remove(task)
            self.over.setdefault(task.array, []).append(1)
            if task.node:
                for name in task.nodes:
                    self.nodes[name].busy_at = self.clock.now()
                self._report(task.nodes[0], "cancelled", task)

    def _call_sinfo(self, *_):
        states = {name: self._state(name, node) for name, node in sorted(self.nodes.items())}
        return "".join(f"{name}={state}\n" for name, state in states.items())

    def _state(self, name, node):
        if node.drain:
            return "draining" if self._busy(name) else "drained"
        return ("allocated" if self._busy(name) else "idle") if node.up else "down"

    def _call_tend(self):
        for task in self.tasks:
            if not task.node and task.restarts and not task.nice:
                task.nice = -50000

    # Calls by nodes.

    def register(self, name, incarnation, slurmd, zone=""):
        """Register a node's machine; *slurmd* is the object of `tests/kit/fleet.py`."""
        node = self.nodes.get(name)
        if node is None or not self.ran:
            return False
        node.comment, node.slurmd, node.last_contact = str(incarnation), slurmd, self.clock.now()
        node.up, node.reported_down, node.zone = True, False, zone
        # The mark is of the machine that was deleted because it had nothing to do.
        if node.drain and int(node.drain.rpartition("-g")[2]) < int(incarnation):
            node.drain = ""
        # The node is a new machine and does not run these, so they are requeued. Slurm starts a task only on the
        # first of its nodes.
        mine = [one for one in self.tasks if name in one.nodes]
        for task in [one for one in mine if name != one.nodes[0] or not slurmd.runs(one)]:
            self.requeue(task)
        self.schedule()
        return True

    def ended(self, task, status, slurmd):
        """End or requeue a task; ignored if the task runs elsewhere meanwhile."""
        task = next((one for one in self.tasks if one.id == task.id), task)
        node = self.nodes.get(task.nodes[0]) if task.node else None
        if task not in self.tasks or node is None or node.slurmd is not slurmd:
            return
        node.busy_at = self.clock.now()
        if status in ENDS:
            self.tasks.remove(task)
            self.over.setdefault(task.array, []).append(status)
        else:
            self.requeue(task)
        self.schedule()

    def requeue(self, task):
        """Put a running task back into the queue."""
        task.node, task.restarts, task.begin_at = "", task.restarts + 1, self.clock.now() + self.hold

    def schedule(self):
        """Mark silent nodes as down, and start waiting tasks on free ones."""
        now = self.clock.now()
        for name, node in self.nodes.items():
            if node.slurmd is not None and node.slurmd.answers():
                node.last_contact = now
                if not node.up and not node.reported_down:
                    # It was silent and answers again (ReturnToService); what it runs is not known here any more.
                    node.up = True
                    node.slurmd.stop_all("not known to the controller")
            elif node.up and now - node.last_contact > SILENT:
                node.up = False
                self._leave_node(name)
        busy = {name for task in self.tasks for name in task.nodes}
        up = [name for name, node in sorted(self.nodes.items()) if node.up and not node.drain]
        free = [name for name in up if name not in busy and self.nodes[name].slurmd.answers()]
        waiting = [task for task in self.tasks if not task.node and not task.held and task.begin_at <= now]
        waiting = [task for task in waiting if not self._waits(task)] if free else []
        for task in sorted(waiting, key=lambda one: (one.nice, one.order, one.number)):
            if not free:
                return
            chosen = self._chosen(task, free)
            if chosen:
                free = [name for name in free if name not in chosen]
                fleet, numbers = chosen[0].rpartition("-")[0], [name.rpartition("-")[2] for name in chosen]
                task.node = chosen[0] if len(chosen) == 1 else f"{fleet}-[{','.join(numbers)}]"
                self.nodes[chosen[0]].slurmd.start(task)

    def _chosen(self, task, free):
        """Return the nodes that a task gets: several ones only in one zone."""
        least, most = task.slices
        if most == 1:
            return free[:1]
        for zone in dict.fromkeys(self.nodes[name].zone for name in free):
            there = [name for name in free if self.nodes[name].zone == zone]
            if len(there) >= least:
                return there[:most]
        return []

    def _leave_node(self, name):
        for task in [one for one in self.tasks if name in one.nodes]:
            if name != task.nodes[0]:
                self._report(task.nodes[0], "another slice is lost", task)
            self.requeue(task)

    def _report(self, name, why, task):
        slurmd = self.nodes[name].slurmd
        if slurmd is not None and slurmd.answers():
            slurmd.stop(task, why)

    # The state, of which the VM keeps a copy in the bucket.

    def state(self):
        return [replace(task) for task in self.tasks], {
            n: replace(o, slurmd=None) for n, o in self.nodes.items()
        }

    def recall(self, state):
        """Load a copy of the state; a node identifies its tasks by their Slurm numbers."""
        tasks, nodes = state
        self.tasks = [replace(task) for task in tasks]
        self.nodes.update({name: replace(node) for name, node in nodes.items() if name in self.nodes})
        self.count = itertools.count(max((task.array for task in tasks), default=0) + 1)

    # Failures.

    def forget(self, task):
        """Lose one task; its processes keep running."""
        self.tasks.remove(task)

    def lose_state(self):
        """Start over with an empty state: all tasks are forgotten, and nodes register again."""
        self.tasks.clear()
        for name, node in list(self.nodes.items()):
            self.nodes[name] = SlurmModelNode(node.comment, slurmd=node.slurmd)
