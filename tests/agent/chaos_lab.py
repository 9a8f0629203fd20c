"""A kill falls once in the run of an agent, and a watch over the bucket knows the rules by itself."""

import hashlib
import json
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from orchestrator.emulator.http.router import Request, Response, Router
from tests.agent.agent_lab import AgentLab, AgentMachine, running_lab
from tests.agent.chaos_script import after, files

SCRIPT = Path(__file__).with_name("chaos_script.py")
TARGET = 30
STORED = (10, 20)
STATES = [reduce(after, range(1, step + 1), "start") for step in range(TARGET + 1)]
MANIFEST = ".manifest.json"


def whole_steps(lab: AgentLab) -> set[int]:
    """Return the steps that are whole: manifests of all workers of one attempt, and every byte as they say."""
    with lab.storage.lock:
        objects = {name: lab.read(name) for name in lab.names("checkpoints/")}
    parts: dict[tuple[int, int, int], list[dict[str, Any]]] = defaultdict(list)
    for name, data in objects.items():
        if name.endswith(MANIFEST):
            one = json.loads(data)
            prefix = name[: -len(MANIFEST)]
            held = [objects.get(f"{prefix}/{file['name']}") for file in one["files"]]
            digests = [None if data is None else hashlib.sha256(data).hexdigest() for data in held]
            if digests == [file["sha256"] for file in one["files"]]:
                parts[one["step"], one["incarnation"], one["attempt"]].append(one)
    return {
        key[0]
        for key, found in parts.items()
        if {one["worker"] for one in found} == set(range(found[0]["workers"]))
    }


@dataclass
class Watch:
    """Look at the bucket after every write, and keep what must not be; *alone* is a slice of one worker."""

    lab: AgentLab
    alone: bool
    newest: int = max(STORED)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, router: Router, request: Request) -> Response:
        """Answer as the lab does, then look."""
        answer = AgentLab.answer(self.lab, router, request)
        name = request.query.get("name", request.path)
        ours = "checkpoints" in name or name.startswith(".tpuctl/gang/")
        if ours and request.method != "GET" and answer.status < 300:
            with self.lock:
                self._look(request, name)
        return answer

    def _look(self, request: Request, name: str) -> None:
        whole = whole_steps(self.lab)
        if max(whole, default=0) < self.newest or len(whole) < len(STORED):
            self.wrong.append(f"{request.method} {name}: whole are {whole}, newest was {self.newest}")
        self.newest = max(whole | {self.newest})
        if name.startswith(".tpuctl/gang/") and "/save-" not in name:
            step = json.loads(request.body).get("resume_step")
            if step not in whole or (self.alone and step != max(whole)):
                self.wrong.append(f"{name}: step {step} is chosen, whole are {sorted(whole)}")


@dataclass(frozen=True)
class KillPoint:
    """
    Name where the kill falls, on whom, and on which worker.

    The victim is the agent, the job, both, the machine (then a new incarnation runs), the slice (the
    same, once the other workers have committed their parts), or the disk: both die, and the same incarnation
    goes on with an empty disk.
    """

    line: str
    victim: str
    worker: int = 0


@dataclass(frozen=True)
class AgentRun:
    """Hold the result of a run: the steps observed, whether the kill happened, and what was wrong."""

    trace: tuple[str, ...]
    fell: bool
    wrong: tuple[str, ...]


class ChaosLab:
    """A deployment whose incarnation 1 has left two checkpoints; *workers* machines resume."""

    def __init__(self, lab: AgentLab, workers: int) -> None:
        self.lab = lab
        self.workers = workers
        self.notes = lab.folder / "notes"
        self.notes.mkdir()
        self.watch = Watch(lab, workers == 1)
        for step in STORED:
            for worker in range(workers):
                self._store(step, worker)
        lab.answer = self.watch.answer  # type: ignore[method-assign]

    def _store(self, step: int, worker: int) -> None:
        base = f"checkpoints/{step:08d}/g1/w{worker}"
        listed = []
        for name, data in files(step, STATES[step]).items():
            self.lab.put(f"{base}/{name}", data)
            listed.append({"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        manifest = {
            "schema": 1, "step": step, "incarnation": 1, "worker": worker, "workers": self.workers,
            "attempt": 1, "folder": f"step-{step:06d}", "files": listed, "at": 0.0,
        }  # fmt: skip
        self.lab.put(base + MANIFEST, json.dumps(manifest).encode())

    def slice(self, incarnation: int) -> list[AgentMachine]:
        """Make the machines of an incarnation, each with a torn save on its disk."""
        code = self.lab.put_bundle({"train.py": SCRIPT.read_bytes()})
        made = [
            self.lab.machine(
                f"g{incarnation}-w{worker}", INCARNATION=incarnation, WORKER_ID=worker, WORKERS=self.workers,
                TARGET_STEPS=TARGET, BUNDLE=code, FAILURES=9, COMMAND=f"exec {sys.executable} train.py",
                _CHAOS_NOTES=self.notes, _CHAOS_STAY=0.3 if self.workers == 1 else 0,
            )
            for worker in range(self.workers)
        ]  # fmt: skip
        for machine in made:
            torn = machine.root / "checkpoints" / "step-000025"
            torn.mkdir(parents=True)
            (torn / "state.json").write_text("{")
        return made

    def run(self, kill: KillPoint) -> AgentRun:
        """Live until the target is reached, whatever the kill did, and look back."""
        machines = self.slice(2)
        hurt = machines[kill.worker]
        trace = self.lab.folder / "trace"
        hurt.env |= {"KILL_TRACE": str(trace), "KILL_AT": kill.line, "KILL_VICTIM": kill.victim}
        for machine in machines:
            machine.start([sys.executable, "-m", "tests.agent.killing_agent"] if machine is hurt else ())
        code = hurt.wait()
        lines = tuple(trace.read_text().splitlines())
        fell = kill.line in lines
        if fell and kill.victim == "slice":
            parts = f"checkpoints/{TARGET:08d}/g2/"
            hurt.until(
                lambda: sum(parts in one for one in self.lab.manifests()) >= self.workers - 1,
                "the others have committed their parts",
            )
        if fell and kill.victim in ("machine", "slice"):
            for machine in machines:
                machine.kill_all()
            machines = self.slice(3)
            for machine in machines:
                machine.start()
        elif fell and kill.victim != "job":
            if kill.victim == "disk":
                hurt.kill_all()
                shutil.rmtree(hurt.root)
                hurt.root.mkdir()
            hurt.start()
        ends = [machine.wait() for machine in machines]
        strange = [f"agents left with {code} and {ends}"] if any(ends) or code not in (0, -9) else []
        return AgentRun(lines, fell, (*strange, *self.wrong(machines)))

    def wrong(self, machines: list[AgentMachine]) -> Iterator[str]:
        """Yield what must not be at the end of a run."""
        yield from self.watch.wrong
        for note in self.notes.iterdir():
            lines = note.read_text().splitlines()
            begun = [line for line in lines if line.startswith("attempt ")]
            yield from (line for line in lines if line not in begun)
            yield from (f"twice: {line}" for line in {*begun} if begun.count(line) > 1)
        if max(whole_steps(self.lab), default=0) != TARGET:
            yield f"whole at the end: {whole_steps(self.lab)}"
        for worker, machine in enumerate(machines):
            heartbeat = machine.heartbeat()
            if (heartbeat.get("phase"), heartbeat.get("committed_step")) != ("done", TARGET):
                yield f"worker {worker} ended as {heartbeat}"
            if machine.job_processes():
                yield f"worker {worker} has left processes {machine.job_processes()}"
        states = [name for name in self.lab.names(f"checkpoints/{TARGET:08d}") if name.endswith("state.json")]
        for name in states:
            if json.loads(self.lab.read(name))["state"] != STATES[TARGET]:
                yield f"{name} is another training than the one without a kill"


@contextmanager
def chaos_lab(folder: Path, workers: int = 1) -> Iterator[ChaosLab]:
    """Yield a deployment of its own."""
    folder.mkdir(parents=True)
    with running_lab(folder) as lab:
        yield ChaosLab(lab, workers)
