"""
Provide the nodes of a fleet: slurmd, and tasks that follow the agent's own rules of claim, fence and mark.

A task's work is replaced: steps pass in virtual time, and saves are committed as the agent does.
`agent/fleet/task.py` and `agent/agreement/attempts.py` are real, over a transport without a network.
"""

import hashlib
import json
import re
import shlex
from contextlib import ExitStack
from io import StringIO
from unittest.mock import patch

from orchestrator.agent.agreement.attempts import AttemptStore
from orchestrator.agent.cloud import metadata, storage
from orchestrator.agent.cloud.transport import Reply
from orchestrator.agent.fleet import task as agent_task
from orchestrator.agent.fleet.task_part import bucket_of
from orchestrator.agent.settings import read_settings
from orchestrator.contract.bucket.manifest import Manifest, StoredFile, file_name, manifest_name, parse_name
from orchestrator.contract.bucket.object_names import BUNDLES, CHECKPOINTS, ENDS, JOBS, TASKS
from orchestrator.contract.machine_errors import AgentError, TransientError
from orchestrator.emulator.http.router import Request
from tests.kit.slurm import SlurmModel

STEP_SECONDS, SAVE_SECONDS, SETUP_SECONDS = 10.0, 120.0, 20.0
LEAVES = 25.0
"""Seconds that a task needs for its last save when it is asked to end."""
ADDRESS = "head/address"
STATE = StoredFile("state", 1, hashlib.sha256(b"x").hexdigest())
_LINE = re.compile(r"^(TPUCTL_\w+)=(.*)$", re.MULTILINE)


class Book:
    """Checks what tasks do; *verdict* holds the violations as texts."""

    def __init__(self):
        self.verdict, self.newest, self.claims = [], {}, {}
        self.commits = self.starts = self.fenced = 0

    def blame(self, violation):
        """Record a violation; nothing if *violation* is ""."""
        if violation and violation not in self.verdict:
            self.verdict.append(violation)

    def claimed(self, job, number, incarnation, ended):
        """Record a claim: its number must be new, and the task must not have ended."""
        self.starts += 1
        held = self.claims.setdefault((job, number), set())
        if incarnation in held:
            self.blame(f"F1 two starts of {job}/{number} have the number {incarnation}")
        if ended:
            self.blame(f"F1 {job}/{number} is run again although it has ended")
        held.add(incarnation)

    def committed(self, job, number, incarnation, step):
        """Record a commit: no newer start may exist, and the newest step never decreases."""
        self.commits += 1
        key = job, number
        if max(self.claims.get(key, {0})) > incarnation:
            self.blame(
                f"F1 start {incarnation} of {job}/{number} commits step {step} after a newer one has begun"
            )
        if step < self.newest.get(key, 0):
            self.blame(f"F1 {job}/{number} commits step {step} after step {self.newest[key]}")
        self.newest[key] = max(step, self.newest.get(key, 0))


class ModelStart:
    """One start of a task on a machine, from the claim to the exit status for Slurm."""

    def __init__(self, slurmd, task):
        self.slurmd, self.task, self.fleet = slurmd, task, slurmd.fleet
        self.since = self.saved = self.fleet.now()
        self.claimed, self.base, self.leaves_at, self.again = None, 0, float("inf"), False
        self.environ = environment(task.script, task.number)
        self.environ["TPUCTL_ROOT"] = str(self.fleet.folder / slurmd.id / "tasks" / task.name)
        self.environ |= {"SLURMD_NODENAME": slurmd.name, "STORAGE_EMULATOR_HOST": "http://storage"}

    def observe(self):
        """Advance to the present; return the exit status, None while it runs."""
        now = self.fleet.now()
        if self.claimed is None:
            return self._start() if now - self.since >= SETUP_SECONDS else None
        target = int(self.environ["TPUCTL_TARGET_STEPS"] or 10**9)
        step = min(target, self.base + int((now - self.since) / STEP_SECONDS))
        if now >= self.leaves_at:
            self._commit(step)
            return agent_task.AGAIN
        if step == target:
            return self._end(step)
        if now - self.saved >= SAVE_SECONDS:
            self.saved = now
            return None if self._commit(step) else agent_task.AGAIN
        return None

    def ask_to_end(self):
        """Ask it to save and end, as Slurm does before it kills."""
        self.leaves_at = min(self.leaves_at, self.fleet.now() + LEAVES)

    def _start(self):
        claimed = self.fleet.calling(self.slurmd, lambda: agent_task.start_task(self.environ))
        if isinstance(claimed, int):
            return claimed
        self.claimed, self.since = claimed, self.fleet.now()
        self.saved = self.since
        settings = read_settings({**self.environ, "TPUCTL_INCARNATION": str(claimed.number)})
        self.own = bucket_of(self.environ, self.environ["TPUCTL_PREFIX"])
        self.attempts = AttemptStore(settings, self.own)
        self.base = max((step for step, _ in self.fleet.saved(self.task.name, self.task.number)), default=0)
        ended = self.fleet.marks(self.task.name, self.task.number)
        self.fleet.book.claimed(self.task.name, self.task.number, claimed.number, ended)
        return None

    def _commit(self, step):
        """
        Commit as the agent does; return whether it may continue.

        Without the bucket it continues, and saves later.
        """

        def commit():
            if self.attempts.newer_incarnation() is not None:
                self.fleet.book.fenced += 1
                return False
            number, by = self.claimed.number, STATE
            part = Manifest(step, number, 0, 1, 1, "x", (by,), self.fleet.now(), own_step=step)
            self.own.write(file_name(step, number, 0, by.name), b"x")
            self.own.write(manifest_name(step, number, 0), part.text().encode())
            self.fleet.book.committed(self.task.name, self.task.number, number, step)
            return True

        try:
            return self.fleet.calling(self.slurmd, commit)
        except AgentError:
            self.again = True
            return True

    def _end(self, step):
        self.again = False
        if not self._commit(step):
            return agent_task.AGAIN
        if self.again:
            return None  # Retries until the bucket answers.
        self.claimed.settings.layout.status.parent.mkdir(parents=True, exist_ok=True)
        self.claimed.settings.layout.status.write_text(json.dumps({"phase": "done"}))
        return self.fleet.calling(self.slurmd, lambda: agent_task.end_task(self.claimed))


class Slurmd:
    """slurmd on one machine, and the tasks that it has started."""

    def __init__(self, fleet, worker):
        self.fleet, self.worker, self.id = fleet, worker, worker.id
        self.name, self.incarnation = worker.env["FLEET_NODE"], worker.incarnation
        self.starts, self.registered, self.frozen_until, self.cut_off_until = [], None, 0.0, 0.0

    @property
    def machine(self):
        return f"{self.name}-tpu-g{self.incarnation}"

    @property
    def alive(self):
        return self.fleet.machines.workers.get(self.id) is self.worker and self.worker.running

    @property
    def frozen(self):
        return self.fleet.now() < self.frozen_until

    @property
    def cut_off(self):
        return self.fleet.now() < self.cut_off_until

    def answers(self):
        return self.alive and not self.frozen

    def runs(self, task):
        return any(start.task.id == task.id for start in self.starts)

    def start(self, task):
        """Start a task after ending the previous one, as the agent does."""
        self.starts = [ModelStart(self, task)]

    def stop(self, task, why):
        for start in self.starts:
            if start.task.id == task.id:
                start.ask_to_end()

    def stop_all(self, why):
        for start in self.starts:
            start.ask_to_end()

    def observe(self):
        """Register with the controller in the job's settings, and advance the tasks."""
        if not self.answers():
            return
        controller = self.fleet.controller_of(self.worker)
        if (
            controller is not None
            and self.registered is not controller
            and controller.register(self.name, self.incarnation, self, self.worker.env.get("ZONE", ""))
        ):
            self.registered = controller
        for start in list(self.starts):
            status = start.observe()
            if status is not None:
                self.starts.remove(start)
                if self.registered is not None:
                    self.registered.ended(start.task, status, self)


class FleetMachines:
    """All controllers and nodes of a cloud, and the tasks' objects in its buckets."""

    def __init__(self, cloud, machines):
        self.cloud, self.machines = cloud, machines
        self.folder = cloud.folder / "machines"
        self.controllers, self.slurmds, self.book, self._caller = {}, {}, Book(), None
        self.stored, self.silent, self.torn = {}, False, []

    def now(self):
        return self.cloud.clock.now()

    def run(self, machine_id, words):
        """Run slurm.sh on a VM; on a new disk, `head` loads the state's copy from the bucket."""
        if self.silent:
            raise ValueError("it does not answer")
        model = self.controllers.setdefault(machine_id, SlurmModel(self.cloud.clock))
        worker = self.machines.workers[machine_id]
        fresh, bucket = words == ["head"] and not model.ran, worker.env["TPUCTL_BUCKET"]
        said = model.run(words)
        if fresh and bucket in self.stored:
            model.recall(self.stored[bucket])
        if words == ["head"]:
            self.machines.put(worker, ADDRESS, model.settings["FLEET_HEAD"].encode())
        return said

    def put(self, machine_id, name, data):
        """Write a file in slurm.sh's folder on a VM."""
        self.controllers.setdefault(machine_id, SlurmModel(self.cloud.clock)).files[name] = data.decode()

    def controller_of(self, worker):
        """Return the controller at the address in the bucket, None without one."""
        bucket = worker.env["TPUCTL_BUCKET"]
        held = self.cloud.storage.objects._objects.get(bucket, {}).get(ADDRESS)
        address = self.cloud.storage.objects.read(held).decode() if held is not None else ""
        machine = self.cloud.model.machine_by_address(address) if address else None
        if machine is None or machine.id not in self.machines.workers:
            return None
        found = self.controllers.get(machine.id)
        return found if found is not None and found.ran else None

    def gone(self, machine_id):
        """Destroy a machine's disk."""
        self.controllers.pop(machine_id, None)
        self.slurmds.pop(machine_id, None)

    def observe(self):
        """Advance every node to the present, then every controller."""
        for worker in self.machines.workers.values():
            known = self.slurmds.get(worker.id)
            if (
                worker.running
                and "FLEET_NODE" in worker.env
                and (known is None or known.worker is not worker)
            ):
                self.slurmds[worker.id] = Slurmd(self, worker)
        nodes = self.cloud.model.kernel.state.nodes.values()
        going = {node.name for node in nodes if node.state.name == "DELETING"}
        for slurmd in self.slurmds.values() if going else ():
            self.torn += [start.task.id for start in slurmd.starts if slurmd.machine in going]
        for slurmd in list(self.slurmds.values()):
            slurmd.observe()
        for machine_id, controller in self.controllers.items():
            if controller.ran and machine_id in self.machines.workers:
                controller.schedule()
                self.stored[self.machines.workers[machine_id].env["TPUCTL_BUCKET"]] = controller.state()

    def calling(self, slurmd, make):
        """Make calls to the bucket as a machine."""
        self._caller = slurmd
        try:
            with machine_io(self):
                return make()
        finally:
            self._caller = None

    def send(self, method, url, headers, body):
        if self._caller is not None and self._caller.cut_off:
            raise TransientError("the network is down")
        target = "/" + url.partition("://")[2].partition("/")[2]
        found = self.cloud.inside.answer(
            Request.parse(method, target, {"host": "storage", **headers}, body or b"")
        )
        return Reply(found.status, {key.lower(): value for key, value in found.headers.items()}, found.body)

    def names(self, prefix):
        """Return the names of all objects under *prefix* in all buckets."""
        held = self.cloud.storage.objects._names.values()
        return [name for names in held for name in names if name.startswith(prefix)]

    def saved(self, job, number):
        """Return (step, incarnation) of a task's checkpoints."""
        own = f"{JOBS}{job}/{TASKS}{number}/"
        keys = (parse_name(name[len(own) :]) for name in self.names(own + CHECKPOINTS))
        return {key[:2] for key in keys if key is not None}

    def marks(self, job, number):
        return self.names(f"{JOBS}{job}/{ENDS}{number}.")


def machine_io(fleet):
    """Connect agents to the test's cloud, without a network, processes, or real pauses."""

    def send(_, method, url, headers, *, body=None, **__):
        return fleet.send(method, url, headers, body)

    def fetch(layout, job, digest):
        if job.stat(f"{BUNDLES}{digest}.tar.gz") is None:
            raise TransientError(f"the bucket has no code {digest}")

    stack = ExitStack()
    for where, what, stand_in in (
        (storage.Transport, "send", send),
        (storage, "retrying", lambda call, seconds, _clock: call(seconds)),
        (metadata.Tokens, "headers", lambda _: {}),
        (agent_task, "fetch", fetch),
        (agent_task, "say", lambda *_: None),
        (agent_task, "_alone", lambda *_, **__: StringIO()),
        (agent_task, "_end_the_others", lambda layout: None),
    ):
        stack.enter_context(patch.object(where, what, stand_in))
    return stack


def environment(script, number):
    """Return the variables that a task's script sets for the agent, as parsed by bash."""
    found = {"TPUCTL_TASK": str(number)}
    for name, value in _LINE.findall(script.replace("$SLURM_ARRAY_TASK_ID", str(number))):
        words = shlex.split(value)
        found[name] = words[0] if words else ""
    return found
