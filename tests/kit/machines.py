"""
Provide a cloud's machines, which boot, take the code, train, save and report, and SSH to them.

The agent's own rules decide which checkpoint is complete, its name, and who is fenced.
"""

import contextlib
import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field

from orchestrator.contract.bucket import object_names
from orchestrator.contract.bucket.completeness import completed_by
from orchestrator.contract.bucket.manifest import Manifest, file_name, manifest_name, parse, parse_name
from orchestrator.contract.bucket.object_names import CHECKPOINTS, GANG
from orchestrator.contract.machine_errors import DamagedError
from orchestrator.domain.remote import CommandAnswer, MachinePush, RunResult
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.emulator.state.values.machine import NoMachines
from orchestrator.errors import RemoteError
from tests.kit.fleet import STATE, FleetMachines
from tests.kit.slurm import words_of

KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
STEP_SECONDS, SAVE_SECONDS, REPORT_SECONDS = 10.0, 120.0, 20.0
_NAMES = "DEPLOYMENT|ROLE|RUNS_JOB|INCARNATION|BUCKET|PREFIX|BUNDLE"
_SETTING = re.compile(rf"^(TPUCTL_(?:{_NAMES})|FLEET_[A-Z]+|ZONE)=(.*)$", re.MULTILINE)


@dataclass
class JobWorker:
    """One machine that can run the job: its job.env and its progress."""

    id: str
    env: dict
    index: int
    workers: int
    running: bool = False
    since: float = 0.0
    base: int = 0
    said: dict = field(default_factory=dict)
    reported: float = float("-inf")
    saved: float = 0.0

    @property
    def incarnation(self):
        return int(self.env["TPUCTL_INCARNATION"])


class CloudMachines(NoMachines):
    """All machines of the cloud; *saves_nothing* and *reports_nothing* select workers that do not."""

    def __init__(self, cloud):
        super().__init__()
        self.cloud = cloud
        self.workers, self.starts = {}, Counter()
        self.saves_nothing = self.reports_nothing = lambda worker: False
        self.fleet = FleetMachines(cloud, self)
        self._parsed, self._complete = {}, {}

    # Called by the cloud.

    def boot(self, machine):
        self.cloud.model.kernel.state.guest[machine.id]["hostkeys", "ssh-ed25519"] = KEY
        ends = machine.attributes.get("worker-network-endpoints", "x")
        index = int(machine.attributes.get("agent-worker-number") or 0)
        # A machine without our script was made without tpuctl.
        env = settings_in(machine.attributes.get("startup-script", ""))
        worker = JobWorker(machine.id, env, index, len(ends.split(",")) if machine.kind == "tpu" else 1)
        self.workers[machine.id] = worker

    def stop(self, machine_id):
        self.workers.pop(machine_id, None)

    def remove(self, machine_id):
        self.stop(machine_id)
        self.fleet.gone(machine_id)

    # What machines do by themselves.

    def report(self):
        """Let every machine install new code, advance, save and report."""
        now = self.cloud.clock.now()
        for worker in list(self.workers.values()):
            # A VM starts the job when it gets the TPU's address over SSH.
            messages = worker.env.get("TPUCTL_RUNS_JOB") == "1" and worker.env["TPUCTL_ROLE"] == "tpu"
            waits = messages and not worker.running
            code = f"{object_names.BUNDLES}{worker.env.get('TPUCTL_BUNDLE')}.tar.gz"
            if waits and self.read(worker, code) is not None:
                self.start(worker)
            if worker.running:
                self._save(worker, now)
                self._heartbeat(worker, now)
        self.fleet.observe()

    def start(self, worker, *, restart=False):
        """Start the job on a machine, unless it runs."""
        if worker.running and not restart:
            return
        self.starts[worker.id] += 1
        worker.running, worker.since, worker.said = True, self.cloud.clock.now(), {}
        worker.saved, worker.reported = worker.since, float("-inf")
        worker.base = max((step for step, _ in self.complete(*self._place(worker))), default=0)
        self.put(worker, f"{GANG}{worker.incarnation}/000001.json", b"{}")

    def end(self, worker):
        worker.running, worker.env = False, {}

    def say(self, name, **words):
        """Make the workers of a deployment report *words* from now on."""
        for worker in self.workers.values():
            if worker.env.get("TPUCTL_DEPLOYMENT") == name and worker.running:
                worker.said.update(words)
                worker.reported = float("-inf")
        self.report()

    def step(self, worker):
        """Return the step that a worker has reached."""
        return worker.base + int((self.cloud.clock.now() - worker.since) / STEP_SECONDS)

    def _heartbeat(self, worker, now):
        if now - worker.reported < REPORT_SECONDS or self.reports_nothing(worker):
            return
        worker.reported = now
        body = {"schema": 1, "incarnation": worker.incarnation, "worker": worker.index,
                "workers": worker.workers, "phase": "run", "bundle": worker.env["TPUCTL_BUNDLE"],
                "step": self.step(worker), **worker.said}  # fmt: skip
        place = f"{object_names.HEARTBEAT}{worker.incarnation}/{worker.index}"
        self.put(worker, place, json.dumps(body).encode())

    def _save(self, worker, now):
        if (
            now - worker.saved < SAVE_SECONDS
            or worker.said.get("phase", "run") != "run"
            or self.saves_nothing(worker)
        ):
            return
        started = [int(n[len(GANG) :].split("/")[0]) for n in self._names(*self._place(worker), GANG)]
        if max(started, default=0) > worker.incarnation:
            worker.said.update(phase="stopped", message="a newer incarnation exists")
            return
        worker.saved = now - (now - worker.since) % SAVE_SECONDS
        step = worker.base + int((worker.saved - worker.since) / STEP_SECONDS)
        part = Manifest(
            step,
            worker.incarnation,
            worker.index,
            worker.workers,
            1,
            "x",
            (STATE,),
            now,
            own_step=step,
            format=worker.said.get("format", ""),
        )
        self.put(worker, file_name(step, worker.incarnation, worker.index, STATE.name), b"x")
        place = manifest_name(step, worker.incarnation, worker.index)
        self.put(worker, place, part.text().encode())
        worker.said["committed_step"] = step

    def put(self, worker, name, data):
        """Write an object as a machine does; does nothing while the bucket is unreachable."""
        bucket, own = self._place(worker)
        if any(b.name == bucket for b in self.cloud.storage.buckets.list("local-project")):
            self.cloud.storage.objects.insert(bucket, own + name, data, {}, Preconditions())

    def read(self, worker, name):
        """Return an object of the worker's bucket, None if it does not exist."""
        bucket, own = self._place(worker)
        return self.cloud.storage.objects._objects.get(bucket, {}).get(own + name)

    def _place(self, worker):
        """Return the worker's bucket, and its folder there."""
        return worker.env["TPUCTL_BUCKET"], worker.env.get("TPUCTL_PREFIX", "")

    def _names(self, bucket, own, prefix):
        held = self.cloud.storage.objects._names.get(bucket, ())
        return [n[len(own) :] for n in held if n.startswith(own + prefix)]

    def complete(self, bucket, own=""):
        """Return (step, incarnation) of the complete checkpoints in a bucket, or in its folder *own*."""
        held = self.cloud.storage.objects._objects.get(bucket, {})
        names = self._names(bucket, own, CHECKPOINTS)
        state = [(name, held[own + name].generation) for name in names]
        if self._complete.get((bucket, own), ((), ()))[0] != state:
            self._complete[bucket, own] = (state, self._judged(bucket, own, names))
        return self._complete[bucket, own][1]

    def _judged(self, bucket, own, names):
        groups = {}
        for name in names:
            key = parse_name(name)
            with contextlib.suppress(DamagedError):
                if key is not None:
                    groups.setdefault(key[:2], []).append(self._manifest(bucket, own, name))
        return {key for key, parts in groups.items() if completed_by(parts) is not None}

    def _manifest(self, bucket, own, name):
        held = self.cloud.storage.objects._objects[bucket][own + name]
        key = (bucket, own + name, held.generation)
        if key not in self._parsed:
            self._parsed[key] = parse(self.cloud.storage.objects.read(held), name)
        return self._parsed[key]


def settings_in(script):
    """Return the settings of job.env in a script, as parsed by the machine's shell."""
    found = {}
    for name, value in _SETTING.findall(script):
        words = shlex.split(value)
        found[name] = words[0] if words else ""
    return found


class CloudSsh:
    """SSH from a computer to the machines; *broken* maps a machine to the reason why it is unreachable."""

    broken = staticmethod(lambda machine_id: "")

    def __init__(self, cloud):
        self.cloud, self._pushed, self._startup = cloud, {}, {}

    def push(self, hosts, bundle, digest, root):
        self._step("ssh push")
        return [MachinePush(h.name, 1000, 0.1, self._trouble(h)) for h in hosts]

    def put(self, hosts, data, target, mode):
        self._step(f"ssh put {target}")
        for host in hosts:
            self._reach(host)
            if target == "job.env.local":
                self._pushed[host.name] = settings_in(data.decode())
            if target == "startup":
                self._startup[host.name] = settings_in(data.decode())
            if target == "slurm/settings" and self.cloud.queue is not None:
                self.cloud.queue.settings(data.decode())
            if target.startswith("slurm/"):
                self.cloud.machines.fleet.put(self._machine(host).id, target.rpartition("/")[2], data)

    def run(self, hosts, command, timeout, stdin=""):
        return [RunResult(0) for host in hosts if self._reach(host)]

    def ask(self, hosts, command, timeout):
        return [CommandAnswer(host.name, 0, "", "") for host in hosts if self._reach(host)]

    def run_elevated(self, hosts, script, timeout):
        if script.name == "call-slurm":
            return [self._slurm(host, words_of(script)) for host in hosts]
        self._step("ssh run")
        for host, worker in [(host, self._reach(host)) for host in hosts]:
            if script.name == "give-back":
                self.cloud.machines.end(worker)
                continue
            adopted = self._startup[host.name] if script.name == "run-startup" else {}
            fresh = {**worker.env, **self._pushed.get(host.name, {}), **adopted}
            if fresh.get("TPUCTL_RUNS_JOB") != "1":
                worker.env = fresh
                continue
            # An adopted machine gets its settings here.
            worker.env = worker.env or fresh
            self.cloud.machines.start(worker, restart=fresh != worker.env or "--restart" in script.arguments)
            worker.env = fresh
        return [RunResult(0) for _ in hosts]

    def _step(self, what):
        """The command may be killed before it; what is after it is before the next step."""
        self.cloud.acting[-1].around(what, before=True)

    def _slurm(self, host, words):
        """Run a command of slurm.sh on a fleet's VM; the caller may be killed before and after it."""
        self._reach(host)
        process, text = self.cloud.acting[-1], " ".join(words)
        process.around(f"slurm {text}", before=True)
        self.cloud.slurm.append(tuple(words))
        if self.cloud.queue is not None:
            said = self.cloud.queue.answer(words)
            return RunResult(0, said) if said is not None else RunResult(1, "", "it does not answer")
        try:
            done = RunResult(0, self.cloud.machines.fleet.run(self._machine(host).id, words))
        except ValueError as error:
            done = RunResult(1, "", str(error))
        process.around(f"slurm {text}", before=False)
        return done

    def _machine(self, host):
        self.cloud.acting[-1].must_live()
        if self.cloud.acting[-1].user.offline is True:
            return None
        return self.cloud.model.machine_by_address(host.address)

    def _trouble(self, host):
        machine = self._machine(host)
        if machine is None or machine.id not in self.cloud.machines.workers:
            return "no route to host"
        return self.broken(machine.id)

    def _reach(self, host):
        trouble = self._trouble(host)
        if trouble:
            raise RemoteError(f"{host.name}: {trouble}")
        return self.cloud.machines.workers[self._machine(host).id]
