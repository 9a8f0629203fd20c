"""
The machines of a simulated run: they boot, train, save, report, die, and are distinguished from zombies.

What the agent's pure rules decide is decided by them: which checkpoint is complete, what its objects are
called, what may be removed, which attempt comes next. Only time and files are simulated: a save is its
manifest, and the reports of a worker are written when somebody looks at them.
"""

import hashlib
import json
import re
from collections import defaultdict
from types import SimpleNamespace

from orchestrator.agent.agreement.attempts import next_attempt
from orchestrator.contract.bucket import object_names, uncommitted_manifest
from orchestrator.contract.bucket.completeness import disposable
from orchestrator.contract.bucket.manifest import Manifest, StoredFile, manifest_name
from orchestrator.contract.bucket.object_names import CHECKPOINTS, GANG
from orchestrator.contract.bucket.uncommitted_manifest import (
    RescueMoment,
    UncommittedFile,
    UncommittedManifest,
    ended_before,
)
from orchestrator.domain.remote import MachinePush, RunResult
from orchestrator.emulator.state.values.machine import NoMachines
from orchestrator.errors import RemoteError
from orchestrator.scripts.shipped import begin_script
from tests.simulation.bucket import SimulatedBucket

STATE = StoredFile("state", 1, hashlib.sha256(b"x").hexdigest())
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
KEEP = 3
_ID = re.compile(r"tpu-(?P<node>.+-tpu-g(?P<incarnation>\d+)-\d+)-w(?P<worker>\d+)")
_ROUND = re.compile(r"TPUCTL_ROUND='(\d+)'")


class SimulatedGang:
    """The job on one slice: all of its workers, alike."""

    def __init__(self, machines, deployment, node, incarnation, workers, race_round=0):
        self.race_round = race_round
        self.machines, self.deployment, self.node = machines, deployment, node
        self.incarnation, self.workers = incarnation, workers
        self.bucket = machines.bucket_of(deployment)
        self.job = machines.jobs[deployment]
        self.alive = set(range(workers))
        self.attempt, self.phase, self.since, self.base = None, "boot", machines.now(), 0
        self.over, self.silent, self.message, self.bundle = False, False, "", ""
        self.committed = None
        self.booted, self.beaten, self.has_notice = False, 0, False
        self._turn = 0

    # The job, from start to end.

    def boot(self):
        """Begin as startup does: report, with the code in the bucket start, or wait until it is pushed."""
        self.booted = True
        self.heartbeat()
        if self.bucket.names(object_names.BUNDLES):
            self.start()

    def start(self, restart=False):
        """Start the job unless it runs; with *restart* also if it does."""
        if self.phase in {"done", "uncommitted", "failed"}:
            self._report_the_end()
            return
        if self._turn and not restart and not self.over:
            return
        self._turn += 1
        self.over, self.message = False, ""
        self.bundle = self.machines.digests["bundle"]
        self._report("setup")
        self._after(self.machines.random.uniform(5, 60), lambda: self._begin("asked for", counted=False))

    def _after(self, seconds, event):
        turn = self._turn

        def still():
            if turn == self._turn and not self.over and self.alive:
                event()

        self.machines.scheduler.after(seconds, still)

    def _begin(self, reason, counted):
        """Agree on an attempt, resume from the newest complete checkpoint."""
        if self._fenced():
            return
        if self._beaten():
            self._look_on(reason, counted)
            return
        self.beaten = 0
        newest = next(iter(self.bucket.complete()), None)
        if self._saved_before():
            self._end("uncommitted")
            return
        self.attempt = next_attempt(self.attempt, newest, reason, 0, counted)
        name = f"{GANG}{self.incarnation}/{self.attempt.attempt:06d}.json"
        self.bucket.put(name, json.dumps(self.attempt.stored()).encode())
        if self.attempt.failures >= self.job.failures:
            self.message = "no progress"
            self._end("failed")
            return
        self.base = self.attempt.resume_step or 0
        self._report("run")
        if self.job.hopeless:
            self._after(20, lambda: self._begin("status 1", counted=True))
        else:
            self._plan()

    def _plan(self):
        """Plan the next save, or the end if that comes first."""
        step = self.step()
        remaining = (
            float("inf") if self.job.target is None else (self.job.target - step) * self.job.step_seconds
        )
        if remaining <= self.job.save_pause:
            self._after(remaining, lambda: self._save(done=True))
        else:
            self._after(self.job.save_pause, self._save)

    def step(self):
        """Return the step that the job has reached by now."""
        if self.phase != "run":
            return self.base
        made = 0 if self._frozen() else int((self.machines.now() - self.since) / self.job.step_seconds)
        reached = self.base + made
        return reached if self.job.target is None else min(reached, self.job.target)

    def _frozen(self):
        """Return whether the job hangs because a machine of the slice is dead."""
        return len(self.alive) < self.workers

    def _save(self, done=False):
        if self.job.flat:
            # It saves what no format knows: nothing is ever committed.
            self._bring(0) if done else self._plan()
            return
        step = self.job.target if done else self.step()
        self._commit(0, step, done)

    def _bring(self, worker):
        """Let *worker* bring its files, then the next one; only then is the end reported, and never as done."""
        if self._frozen() or self._fenced():
            return
        self._report("ended")
        if worker == self.workers:
            self._end("uncommitted")
            return
        self._note_save(worker, complete=False)

        def whole():
            if not self._frozen() and not self._fenced():
                self._note_save(worker, complete=True)
                self._bring(worker + 1)

        self._after(self.job.save_pause / 10, whole)

    def _note_save(self, worker, complete):
        file = UncommittedFile(
            "checkpoints/a.pt", 1, "", f"{uncommitted_manifest.folder_name(self.incarnation, worker)}a.pt"
        )
        one = UncommittedManifest(
            self.incarnation, worker, self.workers, 1, self.bundle, "s", "auto", RescueMoment.UNCOMMITTED, complete,
            (file,), (), self.machines.now(),
        )  # fmt: skip
        self.bucket.put(uncommitted_manifest.manifest_name(self.incarnation, worker), one.text().encode())

    def _saved_before(self):
        """Return whether an earlier machine has uploaded what this very job had trained to its end."""
        return bool(ended_before(self.bucket.uncommitted(), self.incarnation, self.bundle, "s"))

    def _commit(self, worker, step, done):
        """Let *worker* commit its part, then the next one, then go on training."""
        if self._frozen() or self._fenced():
            return
        if worker < self.workers:
            self.commit_part(worker, step)
            self._after(0.7, lambda: self._commit(worker + 1, step, done))
            return
        self.committed = step
        self._retain()
        self.machines.changed(self)
        if done:
            self.machines.truly_done.add((self.deployment, self.incarnation))
            self._end("done")
        elif self.machines.random.random() < self.job.crashes:
            self._begin("status 139", counted=True)
        else:
            self._plan()

    def commit_part(self, worker, step):
        """Write one worker's manifest, which must not exist."""
        part = Manifest(
            step,
            self.incarnation,
            worker,
            self.workers,
            self.attempt.attempt,
            "x",
            (STATE,),
            self.machines.now(),
        )
        name = manifest_name(step, self.incarnation, worker)
        if self.bucket.put(name, part.text().encode(), new=True):
            self.machines.writes[self.deployment, self.incarnation, worker].add(self.node)
            if self.bucket.newest_gang() > self.incarnation:
                self.machines.zombie_writes.append((self.deployment, self.incarnation, step))

    def _retain(self):
        old = disposable(self.bucket.complete(), KEEP)
        for name in self.bucket.names(CHECKPOINTS):
            if old and int(name[len(CHECKPOINTS) :].split("/")[0]) <= old[0]:
                self.bucket.delete(name)

    def _fenced(self):
        if self.bucket.newest_gang() > self.incarnation:
            self._end("stopped", "a newer incarnation exists")
        return self.over

    def _beaten(self):
        """Return whether another TPU of the race has the job; who comes first is named."""
        if not self.race_round:
            return False
        name = f"{object_names.CLAIM}{self.race_round}"
        self.bucket.put(name, json.dumps({"incarnation": self.incarnation}).encode(), new=True)
        held = self.bucket.get(name)
        if held is None or json.loads(held)["incarnation"] != self.incarnation:
            return True
        starters = self.machines.starters[self.deployment, self.race_round]
        starters.add(self.incarnation)
        if len(starters) > 1:
            self.machines.zombie_writes.append((self.deployment, "two jobs of one race", sorted(starters)))
        return False

    def _look_on(self, reason, counted):
        """Do as an agent that is beaten: look again for ten minutes, then end."""
        self.beaten += 1
        if self.beaten > 40:
            self._end("stopped", "another one has won the race")
        else:
            self._after(15, lambda: self._begin(reason, counted))

    def _end(self, phase, message=""):
        self._report(phase)
        self.message = message or self.message
        self.heartbeat()
        if phase in {"done", "uncommitted", "failed"} or message == "notice":
            self._ring()
        self.over = True

    def _report_the_end(self):
        """Report as an agent that is started again: it finds that nothing is left to do."""
        self.over = False
        self.heartbeat()
        self.over = True

    def _report(self, phase):
        self.base, self.phase, self.since = self.step(), phase, self.machines.now()

    # What happens to the machines.

    def lose(self, worker):
        """Let one machine die."""
        self.heartbeat()
        self.base, self.since = self.step(), self.machines.now()
        self.alive.discard(worker)

    def notice(self):
        """Stop in good order, as the warning asks."""
        if self.over:
            return
        saves = self.phase == "run" and not self._frozen() and not self._fenced()
        self._turn += 1
        self.has_notice = True
        self._report("stopping")
        self.heartbeat()
        self._ring()
        # Some seconds that differ from one TPU to the next, up to the last ones of a notice.
        self._after(1 + 11 * self.incarnation % 29, lambda: self._leave(saves))

    def _leave(self, saves):
        """Save what the job had at the notice, and end."""
        if saves and not self._frozen() and not self._fenced():
            step = self.step()
            for worker in range(self.workers):
                self.commit_part(worker, step)
            self.machines.changed(self)
        if not self.over:
            self._end("stopped", "notice")

    def _ring(self):
        if not self.silent:
            self.bucket.put(f"{object_names.WAKE}{self.incarnation}", str(self.machines.now()).encode())

    def rest(self):
        """Save and end nothing more, but go on: what is planned is forgotten."""
        self._turn += 1
        self.job = SimpleNamespace(**{**vars(self.job), "target": None})

    def heartbeat(self):
        """Write the last heartbeat of each worker that is alive and reaches the bucket; first that of a boot."""
        begun = self.booted and not self._turn
        if self.over or self.silent or not (self._turn or begun):
            return
        for worker in sorted(self.alive):
            body = {
                "incarnation": self.incarnation, "worker": worker, "workers": self.workers, "schema": 1,
                "phase": self.phase, "bundle": self.bundle, "step": self.step(), "message": self.message,
                "committed_step": self.committed, "attempt": self.attempt.attempt if self.attempt else 0,
                "notice": self.has_notice, "preempted": self.has_notice,
                "script": begun,
            }  # fmt: skip
            name = f"{object_names.HEARTBEAT}{self.incarnation}/{worker}"
            self.bucket.put(name, json.dumps(body).encode(), new=begun)


class SimulatedMachines(NoMachines):
    """All machines of the simulated cloud."""

    def __init__(self, scheduler, random, digests):
        super().__init__()
        self.scheduler, self.random, self.digests = scheduler, random, digests
        self.cloud = self.storage = None
        self.jobs, self.buckets, self.gangs = {}, {}, {}
        self.writes, self.starters = defaultdict(set), defaultdict(set)
        self.truly_done, self.zombie_writes = set(), []
        self.changed = lambda gang: None
        self.unreachable = set()

    def now(self):
        return self.scheduler.now()

    def bucket_of(self, deployment):
        return SimulatedBucket(self.storage, *self.buckets[deployment])

    def boot(self, machine):
        self.cloud.kernel.state.guest[machine.id]["hostkeys", "ssh-ed25519"] = KEY
        if machine.kind != "tpu":
            return
        node = _ID.match(machine.id)
        if node["worker"] != "0":
            return
        name = machine.id.rsplit("-tpu-g", 1)[0]
        deployment = next(d for d in self.jobs if name.endswith(f"-{d}"))
        count = len(machine.attributes["worker-network-endpoints"].split(","))
        reported = _ROUND.search(machine.attributes.get("startup-script", ""))
        race_round = int(reported[1]) if reported else 0
        gang = SimulatedGang(self, deployment, node["node"], int(node["incarnation"]), count, race_round)
        self.gangs[node["node"]] = gang
        self.scheduler.after(self.random.uniform(10, 40), gang.boot)

    def gang_of(self, machine_id):
        found = _ID.match(machine_id)
        return (self.gangs.get(found["node"]), int(found["worker"])) if found else (None, 0)

    def notice(self, machine_id):
        gang, worker = self.gang_of(machine_id)
        if gang is not None and worker == 0:
            gang.notice()

    def stop(self, machine_id):
        gang, worker = self.gang_of(machine_id)
        if gang is not None:
            gang.lose(worker)

    remove = stop

    def report(self, bucket):
        """Let all machines that write to *bucket* report."""
        for gang in self.gangs.values():
            if gang.bucket.name == bucket:
                gang.heartbeat()


class SimulatedSsh:
    """The way to machines over SSH: fails where the machine is dead, and now and then."""

    def __init__(self, machines, process, fails):
        self.machines, self.process, self._fails = machines, process, fails

    def push(self, hosts, bundle, digest, root):
        return [MachinePush(h.name, 1000, 0.1, self._trouble(h)) for h in hosts]

    def put(self, hosts, data, target, mode):
        for host in hosts:
            self._reach(host)

    def run(self, hosts, command, deadline, stdin=""):
        return [RunResult(0) for host in hosts if self._reach(host) is None]

    def run_elevated(self, hosts, script, deadline):
        gangs = [self._reach(host) for host in hosts]
        for gang in dict.fromkeys(gangs):
            if gang is not None:
                gang.start(restart=script == begin_script(restart=True))
        return [RunResult(0) for _ in hosts]

    def _reach(self, host):
        trouble = self._trouble(host)
        if trouble:
            raise RemoteError(f"{host.name}: {trouble}")
        machine = self.machines.cloud.machine_by_address(host.address)
        return self.machines.gang_of(machine.id)[0]

    def _trouble(self, host):
        self.process.step()
        machine = self.machines.cloud.machine_by_address(host.address)
        if machine is None or not self.machines.cloud.machine_state(machine.id).running:
            return "no route to host"
        if machine.id in self.machines.unreachable or self._fails():
            return "connection timed out"
        return ""
