"""Model Slurm on a fleet's VM as tpuctl sees it: a queue, and nodes that are busy, idle, drained or down."""

import shlex
from dataclasses import dataclass


@dataclass
class QueuedTask:
    """One task: its node and machine, its start time, and how often it has lost its machine."""

    job: str
    number: int
    node: str = ""
    machine: str = ""
    began: float = 0.0
    restarts: int = 0


class NodeQueue:
    """Starts tasks on ready nodes and ends them after *seconds*; *silent* makes every call fail."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.seconds, self.silent = 300.0, False
        self.before_drain = None
        self.name, self.size = "", 0
        self.tasks, self.drained, self.busy_at = [], {}, {}
        self.starts, self.torn = {}, []

    def settings(self, text):
        """Read the settings that the controller is started with."""
        found = dict(word.split("=", 1) for word in shlex.split(text))
        self.name, self.size = found["FLEET_NAME"], int(found["FLEET_NODES"])

    def nodes(self):
        return [f"{self.name}-{number:03d}" for number in range(1, self.size + 1)]

    def tick(self):
        """Advance: clear marks of lost machines, start waiting tasks, end finished ones."""
        now, states = self.cloud.clock.monotonic(), self.cloud.nodes()
        ready = {}
        for name, state in states.items():
            node, _, incarnation = name.rpartition("-tpu-g")
            if state == "READY":
                ready[node] = (int(incarnation), name)
        for node, incarnation in list(self.drained.items()):
            if ready.get(node, (0, ""))[0] > incarnation:
                del self.drained[node]
        for task in [one for one in self.tasks if one.node]:
            if states.get(task.machine) == "DELETING":
                # A machine with a task must not be deleted.
                self.torn.append((task.job, task.number, task.machine))
            elif task.machine in states and now - task.began >= self.seconds:
                self.tasks.remove(task)
                self.busy_at[task.node] = now
                self.cloud.put_object(f"jobs/{task.job}/ends/{task.number}.done", b"{}")
        taken = {task.node for task in self.tasks}
        free = [node for node in sorted(ready) if node not in taken and node not in self.drained]
        waiting = sorted((t for t in self.tasks if not t.node), key=lambda t: -t.restarts)
        for task, node in zip(waiting, free, strict=False):
            task.node, task.machine, task.began = node, ready[node][1], now
            self.starts[task.job, task.number] = self.starts.get((task.job, task.number), 0) + 1

    def answer(self, words):
        """Answer one call of slurm.sh; return its output, None for a failure."""
        if self.silent:
            return None
        verb, *rest = words
        if verb == "drain" and self.before_drain is not None:
            first, self.before_drain = self.before_drain, None
            first()
        self.tick()
        if verb == "call":
            return self._squeue(rest[rest.index("-O") + 1]) if rest[0] == "squeue" else ""
        return getattr(self, f"_{verb}", lambda *_: "")(*rest)

    def _engine(self):
        return f"slurm-{'0' * 64}.tar.gz\n"

    def _submit(self, job, _, numbers, *__):
        held = {(task.job, task.number) for task in self.tasks}
        self.tasks += [QueuedTask(job, int(n)) for n in numbers.split(",") if (job, int(n)) not in held]
        return ""

    def _lost(self, node, incarnation):
        for task in self.tasks:
            if task.machine == f"{node}-tpu-g{incarnation}":
                task.node, task.machine, task.restarts = "", "", task.restarts + 1
        return ""

    def _undrain(self, node):
        self.drained.pop(node, None)
        return ""

    def _drain(self, node, incarnation):
        self.drained[node] = int(incarnation)
        return self._nodes(node)

    def _nodes(self, *names):
        return "\n".join(["1000000", *map(self._row, names or self.nodes())]) + "\n"

    def _squeue(self, columns):
        widths = [(name, int(width)) for name, width in (one.split(":.") for one in columns.split(","))]

        def line(task):
            state = "RUNNING" if task.node else "PENDING"
            cells = {
                "Name": task.job, "ArrayTaskID": task.number, "State": state, "RestartCnt": task.restarts,
                "ArrayJobID": 7, "PriorityLong": 100, "Dependency": "(null)", "NodeList": task.node,
            }  # fmt: skip
            return "".join(str(cells.get(name, "")).ljust(width)[:width] for name, width in widths) + "\n"

        return "".join(map(line, self.tasks))

    def _row(self, node):
        ready = any(n.startswith(f"{node}-tpu-") and s == "READY" for n, s in self.cloud.nodes().items())
        state = "ALLOCATED" if any(t.node == node for t in self.tasks) else "IDLE" if ready else "DOWN"
        drain = f"+DRAIN Reason=tpuctl-idle-g{self.drained[node]}" if node in self.drained else ""
        busy = self.busy_at.get(node)
        ago = self.cloud.clock.monotonic() - busy if busy is not None else None
        busy_text = "" if ago is None else f" LastBusyTime={1000000 - int(ago)}"
        return f"NodeName={node}{busy_text} State={state}{drain}"
