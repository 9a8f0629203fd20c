"""Provide a user at one computer: a folder with tpuctl.yaml, a state folder, and typed commands."""

import json
import os
import signal
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from unittest.mock import patch

from orchestrator.app.this_computer.state_folders import RECORD_KEY
from orchestrator.cli.main import run
from tests.kit.cloud import ControllerKilled

FILE = {
    "name": "demo",
    "project": "local-project",
    "tpu": {"type": "v5litepod-8", "zones": ["europe-west4-b"]},
    "vm": "none",
    "job": {"source": "src", "command": "python3 train.py"},
    "watch": {"poll": "60s"},
}
TIMEOUT = 4 * 3600.0
"""Seconds of virtual time after which a command that has not ended fails the test."""


@dataclass
class CommandProcess:
    """
    One command: when it is killed or interrupted, and what others do while it is suspended in a call.

    *kill* is (a mutating call, "before" or "after") and *meanwhile* maps such calls to functions. A call is
    given by its number, or by a prefix of its method and name. Or *kill* is a function of a step and of "before" or
    "after": it is asked at every step, and returns whether the process is killed there.
    """

    user: "User"
    words: tuple
    kill: tuple = ()
    meanwhile: dict = field(default_factory=dict)
    interrupt_at: float = float("inf")
    ends_at: float = float("inf")
    leases: list = field(default_factory=list)
    locks: list = field(default_factory=list)
    holders: set = field(default_factory=set)
    calls: int = 0
    dead: bool = False
    frozen: bool = False
    over: bool = False

    def must_live(self):
        """Raise ControllerKilled if the process was killed."""
        if self.dead:
            raise ControllerKilled(self.words)

    def die(self):
        self.dead = True
        raise ControllerKilled(self.words)

    def before_call(self, what):
        """Count a mutating call; kill the process before it, or let others act first."""
        self.calls += 1
        if self._kills(what, "before"):
            self.die()
        self._let_others(what)

    def _let_others(self, what):
        due = next((key for key in self.meanwhile if key == self.calls or what.startswith(str(key))), None)
        if due is not None:
            self.frozen = True
            self.meanwhile.pop(due)()
            self.frozen = False

    def after_call(self, what):
        """Kill the process after a call, before it gets the answer."""
        if self._kills(what, "after"):
            self.die()

    def around(self, what, *, before):
        """Kill the process before or after an action that is no call; it is not counted, but may be named."""
        self.must_live()
        if self._kills(what, "before" if before else "after"):
            self.die()
        if before:
            self._let_others(what)

    def _kills(self, what, when):
        if callable(self.kill):
            return self.kill(what, when)
        place, moment = self.kill or ("none", "")
        return moment == when and (place == self.calls or what.startswith(str(place)))

    def tick(self):
        """Interrupt the process when its time has come; fail the test if the command never ends."""
        now = self.user.cloud.clock.monotonic()
        if self.frozen:
            return
        assert now < self.ends_at, f"tpuctl {' '.join(self.words)} does not end"
        if now >= self.interrupt_at:
            self.interrupt_at = float("inf")
            signal.raise_signal(signal.SIGINT)


@dataclass(frozen=True)
class CommandResult:
    """The end of a command: its status (None: killed), its output, and the number of its calls."""

    code: int | None
    out: str
    err: str
    calls: int

    @property
    def document(self):
        return json.loads(self.out)


class User:
    """
    One computer, or another folder of the computer that it is *beside*.

    *offline*, *expired* and *skew* are faults of its network, credentials and clock. *offline* may name a
    single API that is unreachable, together with the machines.
    """

    def __init__(self, cloud, place="home", *, beside=None, **file):
        self.cloud, self.name = cloud, place
        cloud.users.append(self)
        self.offline = self.expired = False
        self.skew = 0.0
        self.folder = cloud.folder / place
        self.state = beside.state if beside is not None else self.folder / "state"
        # All computers of a user share the first one's key.
        (self.state / "gcp").mkdir(parents=True, exist_ok=True)
        (self.state / "gcp" / RECORD_KEY).write_bytes(b"k" * 32)
        (self.folder / "src").mkdir(parents=True)
        self.write("train.py", "print('step')\n")
        self.edit(**file)

    def write(self, name, text):
        (self.folder / "src" / name).write_text(text)

    def edit(self, **file):
        """Write tpuctl.yaml from keyword arguments; `__` stands for the dot of a nested key."""
        wanted = json.loads(json.dumps(FILE))
        for key, value in file.items():
            place = wanted
            *parents, last = key.split("__")
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
        self.file = wanted
        (self.folder / "tpuctl.yaml").write_text(json.dumps(wanted))

    def cut_off_from(self, method):
        """Return whether calls of this API method fail on this computer."""
        return self.offline is True or bool(self.offline and method.startswith(self.offline))

    @property
    def deployment(self):
        return self.file["name"]

    def run(self, *words, **options):
        """Type one command about the deployment of this folder; return its end."""
        return self.type(*words, "--file", str(self.folder / "tpuctl.yaml"), **options)

    def type(self, *words, kill=(), meanwhile=None, interrupt=None, timeout=TIMEOUT):
        """Type one command; *interrupt* presses Ctrl-C after that many seconds. Return its end."""
        cloud, now = self.cloud, self.cloud.clock.monotonic()
        process = CommandProcess(self, words, kill, dict(meanwhile or {}), ends_at=now + timeout)
        process.interrupt_at = now + interrupt if interrupt is not None else float("inf")
        cloud.acting.append(process)
        cloud.processes.append(process)
        out, err, code = StringIO(), StringIO(), None
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with (
                patch.dict(os.environ, self._environment(), clear=True),
                patch("tempfile.tempdir", str(cloud.folder)),
            ):
                with redirect_stdout(out), redirect_stderr(err):
                    code = run(list(words))
        except ControllerKilled:
            assert process.dead
        finally:
            process.over = True
            cloud.acting.remove(process)
            # A killed command does not restore its handlers, and the next one's Ctrl-C would reach
            # the wrong process.
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if process.dead:
            for lock in process.locks:
                lock.release(force=True)
        return CommandResult(code, out.getvalue(), err.getvalue(), process.calls)

    def _environment(self):
        # A shared cache: otherwise each user would pack uv for its machines again, which takes 2 s.
        retained = {
            key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR", "XDG_CACHE_HOME") if key in os.environ
        }
        state = {"TPUCTL_STATE_DIR": str(self.state), "HOME": str(self.folder)}
        return {**retained, **state, "NO_GCE_CHECK": "true", "GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent"}

    def up(self, *words, **options):
        """Type `tpuctl up` and expect success."""
        return self._well("up", *words, **options)

    def down(self, *words, **options):
        """Type `tpuctl down --yes` and expect success."""
        return self._well("down", "--yes", *words, **options)

    def watch(self, seconds, *words, **options):
        """Type `tpuctl watch` and press Ctrl-C after *seconds*; return its end."""
        return self.run("watch", *words, interrupt=seconds, timeout=seconds + TIMEOUT, **options)

    def _well(self, *words, **options):
        said = self.run(*words, **options)
        assert said.code == 0, f"tpuctl {' '.join(words)} ended with {said.code}:\n{said.err}"
        return said


class FleetOwner(User):
    """The computer of a fleet's owner."""

    def edit(self, **file):
        """Write the file of a fleet."""
        super().edit(**{"fleet__nodes": 3, "vm": {}, **file})
        del self.file["job"]
        (self.folder / "tpuctl.yaml").write_text(json.dumps(self.file))

    def run(self, *words, **options):
        """Type a command; those about the whole are the fleet's."""
        verbs = ("up", "down", "watch", "status", "submit", "queue", "cancel", "retry", "hold", "release")
        return super().run(*(("fleet", *words) if words[0] in verbs else words), **options)

    def fleet(self, *words):
        """Type a command that has to go well; return what it prints with --json."""
        said = self.run(*words)
        assert said.code == 0, said.err
        return json.loads(said.out) if "--json" in words else {}

    def job(self, name):
        """Return a job as the queue shows it."""
        (job,) = self.fleet("queue", name, "--json")["jobs"]
        return job

    def states(self, name):
        """Return the state of each task of a job."""
        return [task["state"] for task in self.job(name)["tasks"]]

    def submit(self, name="sweep", tasks=3, steps=60, **options):
        """Write a job's file and submit it."""
        return self.run("submit", str(self.job_file(name, tasks, steps)), **options)

    def job_file(self, name, tasks, steps, **more):
        """Write a job's file; return its path."""
        job = {"source": "src", "command": "python3 train.py", "target_steps": steps,
               "checkpoint": {"format": "marker"}}  # fmt: skip
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "array": tasks, "job": job, **more}))
        return path
