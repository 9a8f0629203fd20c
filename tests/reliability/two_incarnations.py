"""
Two incarnations of one worker on one bucket, interleaved request by request as a schedule says.

Both run the real agent's steps: join, restore, commit, prune, report. Each request of either is a point at
which the other may run on, so an incarnation can be paused for ever so long between any two of them.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from unittest.mock import patch

from orchestrator.agent.agent import Agent
from orchestrator.agent.attempt import next_attempt
from orchestrator.agent.attempt.prepare import restore_checkpoint
from orchestrator.agent.checkpoints import commit, restore
from orchestrator.agent.cloud.transport import Reply
from orchestrator.agent.context import wire
from orchestrator.agent.end_requests import AgentMustEnd
from orchestrator.agent.outcome import JobOutcome, JobOutcomeKind
from orchestrator.agent.settings import read_settings
from orchestrator.clock import VirtualClock
from orchestrator.contract.bucket.manifest import parse_name
from orchestrator.contract.machine_errors import AgentError
from orchestrator.emulator.http.router import Request, Router
from orchestrator.emulator.http.storage_json import route, storage_routes
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.storage.stored import Preconditions
from orchestrator.threads import Inline

BUCKET, BASE = "lab-bucket", "http://bucket"
STEPS = 10
"""Steps between two saves of the job."""
GANG = ".tpuctl/gang/"


@dataclass
class AgentRequest:
    """One request: who made it, what, and whether the bucket took it."""

    actor: str
    method: str
    name: str
    status: int


class TurnThread:
    """A thread that runs as many requests as it is given, and then waits in front of the next one."""

    def __init__(self, name, body):
        self.name, self.over, self.failure = name, False, None
        self._body, self._remaining = body, 0
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def run(self, requests):
        """Let it go on; return when it stands in front of another request, or has ended."""
        if not self.over:
            self._remaining = requests
            self._go.release()
            self._back.acquire()

    def turn(self):
        """Wait until it may make one more request; called by its own thread."""
        if self._remaining <= 0:
            self._back.release()
            self._go.acquire()
        self._remaining -= 1

    def _run(self):
        self._go.acquire()
        try:
            self._body()
        except AgentMustEnd:
            pass  # It was told to end, as one that is replaced is.
        except BaseException as failure:
            self.failure = failure
        self.over = True
        self._back.release()


class TurnWire:
    """Carry the requests of one agent to the bucket in this process, each at its turn."""

    def __init__(self, shared, name):
        self._shared, self._name = shared, name

    def send(self, method, url, headers, *, body=None, timeout=20.0, sink=None, limit=None):
        actor = self._shared.actors.get(self._name)
        if actor is not None:
            actor.turn()
        self._shared.requests[self._name] += 1
        request = Request.parse(method, url.removeprefix(BASE), headers, body or b"")
        answer = route(self._shared.router, request)
        if method != "GET" or request.query.get("prefix") == GANG:
            name = request.query.get("name") or request.path.rpartition("/o/")[2].replace("%2F", "/")
            self._shared.note(AgentRequest(self._name, method, name or GANG, answer.status))
        if sink is not None and answer.status == 200:
            sink.write(answer.body)
        head = {key.lower(): value for key, value in answer.headers.items()}
        return Reply(answer.status, head, b"" if sink is not None and answer.status == 200 else answer.body)


class IncarnationMachine:
    """One incarnation: its disk, its agent, and the job that saves steps with the incarnation's name in them."""

    def __init__(self, shared, incarnation, root, keep=2):
        self.name, self.incarnation, self.root = f"g{incarnation}", incarnation, root
        environ = {
            "TPUCTL_ROOT": str(root), "TPUCTL_DEPLOYMENT": "lab", "TPUCTL_BUCKET": BUCKET,
            "TPUCTL_INCARNATION": str(incarnation), "TPUCTL_WORKER_ID": "0", "TPUCTL_BUNDLE": "b" * 64,
            "TPUCTL_COMMAND": "true", "TPUCTL_CHECKPOINT_KEEP": str(keep), "TPUCTL_HEARTBEAT_SECONDS": "0.1",
            "STORAGE_EMULATOR_HOST": BASE,
        }  # fmt: skip
        settings = read_settings(environ)
        settings.layout.make()
        self.folder = settings.layout.checkpoints
        self.context = wire(settings, environ, VirtualClock())
        self.context.bucket._transport = TurnWire(shared, self.name)
        self.context.bucket._tokens._until = math.inf
        self.agent = Agent(self.context)

    def save(self, step):
        """Save a step as a job does: the payload first, the marker last."""
        place = self.folder / f"step-{step}"
        place.mkdir(parents=True)
        (place / "model").write_text(f"model of step {step} by {self.name}")
        (place / "COMPLETE").write_text(self.name)

    def boot(self):
        """Join the gang and start from its attempt."""
        return self.start(self.agent._first_attempt())

    def start(self, attempt):
        """Restore what the attempt starts from, as often as it takes; return the step, 0 for none."""
        while (failed := restore_checkpoint(self.context, attempt)[1]) is not None:
            attempt = self.agent._next_attempt.after(attempt, failed, counted=True)
        self.context.committer.begin(attempt.attempt, attempt.resume_step)
        return attempt.resume_step or 0

    def fail(self, attempt):
        """Go on from an attempt whose job has crashed again, as the agent does; return the step."""
        return self.start(
            self.agent._next_attempt.after(
                attempt, JobOutcome(JobOutcomeKind.FAILED, "crash", 1), counted=True
            )
        )

    def train(self, step, saves):
        """Save, commit and prune *saves* times after *step*, with a report after each."""
        for number in range(1, saves + 1):
            self.save(step + number * STEPS)
            with contextlib.suppress(AgentError):
                self.agent._commit()
            self.context.heartbeat_writer.report(at_once=True)


@dataclass
class SharedBucket:
    """One bucket, the incarnations that use it, and what must be true after each of their writes."""

    folder: object
    objects: dict = field(default_factory=dict)
    actors: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    late: int = 0
    set_aside: int = 0
    hollow: int = 0
    requests: Counter = field(default_factory=Counter)
    looks: list = field(default_factory=list)

    def __post_init__(self):
        self.storage = Storage(VirtualClock())
        self.storage.buckets.create("p", {"name": BUCKET})
        self.router = Router()
        storage_routes(self.router, self.storage)
        for name, data in self.objects.items():
            self.storage.objects.insert(BUCKET, name, data, {}, Preconditions())
        self.newest = self.observe()
        self._born, self._looked, self._sent = 0, 0, 0

    def held(self):
        """Return name -> bytes of all objects."""
        return {one.name: self.storage.objects.read(one) for one in self.storage.objects.all()}

    def observe(self):
        """Return step and incarnation of the newest complete checkpoint, judged without the agent's code."""
        held, self.whole = self.held(), []
        for name, data in held.items():
            if not name.endswith(".manifest.json"):
                continue
            reported = json.loads(data)
            key, root = (reported["step"], reported["incarnation"]), name.removesuffix(".manifest.json")
            if any(f"{root}/{file['name']}" not in held for file in reported["files"]):
                continue
            for file in reported["files"]:
                content = held[f"{root}/{file['name']}"]
                if hashlib.sha256(content).hexdigest() != file["sha256"]:
                    self.wrong.append(f"{name}: {file['name']} is not what the manifest says")
                if not content.endswith(b"g%d" % key[1]):
                    self.wrong.append(f"{name}: {file['name']} is another incarnation's")
            self.whole.append(key)
        return max(self.whole, default=(0, 0))

    def _is_hollow(self, name):
        """Return whether a manifest names files that are not there any more."""
        held = self.held()
        root = name.removesuffix(".manifest.json")
        return any(f"{root}/{file['name']}" not in held for file in json.loads(held[name])["files"])

    def note(self, call):
        """Judge the bucket after a write; remember when the old incarnation has looked for a newer one."""
        self.calls.append(call)
        if call.method == "GET":
            if call.actor == "g1":
                self._looked = len(self.calls)
                self.looks.append(self.requests["g1"])
            return
        if call.actor == "g1" and call.name.startswith("checkpoints/") and not parse_name(call.name):
            self._sent = len(self.calls)
        if call.name.startswith(f"{GANG}2/") and not self._born:
            self._born = len(self.calls)
        if call.name.startswith("checkpoints/") and call.status < 300:
            self._judge(call)

    def _judge(self, call):
        newest = self.observe()
        unaware = not self._born or 0 < self._looked < self._born
        own = call.actor == "g1" and unaware and self.newest[1] == 1
        if newest[0] < self.newest[0] and own and call.method == "DELETE" and parse_name(call.name):
            self.set_aside += bool(self._born)
        elif newest[0] < self.newest[0]:
            self.wrong.append(f"{call}: the newest was {self.newest}, now it is {newest}")
        self.newest = newest
        owner = call.name.split("/")[2].partition(".")[0]
        if call.actor == "g1" and owner != "g1":
            self.wrong.append(f"{call}: the old incarnation touches what is not its own")
        if call.actor == "g1" and call.method == "POST" and parse_name(call.name):
            self.late += bool(self._born)
            self.hollow += self._is_hollow(call.name)
            if not unaware or self._looked < self._sent:
                self.wrong.append(
                    f"{call}: it committed without a look, or after it had seen its replacement"
                )


@contextlib.contextmanager
def quiet():
    """Make the agent's uploads one after the other, keep its words to itself, and wait for nothing."""
    with (
        patch.object(commit, "ThreadPoolExecutor", lambda _: Inline()),
        patch.object(restore, "ThreadPoolExecutor", lambda _: Inline()),
        patch.object(next_attempt.NextAttempt, "_pause", lambda *_: None),
        patch.object(os, "fsync", lambda _: None),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        yield


class Interleaving:
    """
    What both incarnations find: the old one has committed two steps before the scenario begins.

    The old one keeps two checkpoints, its replacement *keep*.
    """

    def __init__(self, folder, scenarios, keep=2):
        self.folder, self._scenarios, self._keep, self._count = folder, scenarios, keep, 0
        self.disk = folder / "old"
        shared = SharedBucket(folder)
        old = IncarnationMachine(shared, 1, self.disk)
        old.train(old.boot(), 2)
        self.objects = shared.held()

    def play(self, schedule):
        """Let each (actor, requests) of the schedule run in turn, then everybody to the end; return the shared."""
        self._count += 1
        shared = SharedBucket(self.folder, self.objects)
        roots = {1: self.folder / f"{self._count}-g1", 2: self.folder / f"{self._count}-g2"}
        shutil.copytree(self.disk, roots[1])
        for number, root in roots.items():
            machine = IncarnationMachine(shared, number, root, self._keep if number == 2 else 2)
            shared.actors[machine.name] = TurnThread(
                machine.name, lambda m=machine: self._scenarios[m.name](m)
            )
        for name, requests in (*schedule, ("g2", math.inf), ("g1", math.inf)):
            shared.actors[name].run(requests)
        for actor in shared.actors.values():
            if actor.failure is not None:
                shared.wrong.append(f"{actor.name}: {actor.failure!r}")
        shared.actors.clear()
        shared.observe()
        found = [
            (one.step, one.incarnation)
            for one in IncarnationMachine(shared, 3, roots[2]).context.checkpoints.complete()
        ]
        if found != sorted(shared.whole, reverse=True):
            shared.wrong.append(f"the agent finds {found} complete, and {shared.whole} are whole")
        for root in roots.values():
            shutil.rmtree(root)
        return shared
