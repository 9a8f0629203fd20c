"""
Run the stages of a self-test: public commands in this process, with a few calls to the cloud in between.

Machines are created by `up`, `push`, `watch` and `down` only, with their record, lease, time to live and
budget. So if this process is killed, what it has created is found and ended as usual.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from io import StringIO
from pathlib import Path

from filelock import FileLock

from orchestrator import __version__
from orchestrator.advice.selftest.recording import Recording
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.selftest.exchange_recorder import Recorder
from orchestrator.app.selftest.proofs import (
    COUNT_CHIPS,
    DESCRIBE,
    NO_SUCH_TYPE,
    NO_SUCH_ZONE,
    SAVES,
    TRAIN,
    StageError,
    StageSkipError,
    ask_beyond_quota,
    check_needs,
    chips_text,
    machine_facts,
    redactor_for,
    still_there,
)
from orchestrator.app.this_computer.state_folders import state_folder
from orchestrator.app.up import Goal, UpOptions, bring_up
from orchestrator.clock import wait_until
from orchestrator.config.load import FILE_NAME
from orchestrator.domain import names
from orchestrator.domain.observation import Present
from orchestrator.emulator.control import stop_if_idle
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.errors import LeaseHeldError, PreconditionError, TpuctlError
from orchestrator.google.answer_hooks import listening
from orchestrator.pricing.cost import Hourly, hourly
from orchestrator.scripts.shipped import remote_script

FOLDER = "selftest"
BURST = 12
"""Writes to one object in a row, as fast as possible; the service's limit for that is not published."""
POLL = "5s"
WAIT = 240.0
"""Seconds within which the job must save."""


RunCommand = Callable[[Sequence[str]], int]
"""Runs a command line in this process, given its words; returns the exit status."""


@dataclass(frozen=True)
class WantedProofs:
    """
    What a self-test runs on, within a *budget* in USD and a time to live, *ttl*, in seconds.

    *tpu* is False without TPU quota; *project* None means the login's.
    """

    cloud: str
    project: str | None
    zone: str
    type: str
    tpu: bool
    budget: float
    ttl: float


def take_down(folder: Path, cloud: str, run_command: RunCommand) -> int:
    """Delete a self-test's deployment with its data, and its folder if that succeeds; return the exit status."""
    file = str(folder / FILE_NAME)
    code = run_command(["down", "--yes", "--delete-data", "--file", file, "--cloud", cloud])
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return code


class SelfTest:
    """One self-test; *run_command* runs tpuctl's commands."""

    def __init__(self, name: str, wanted: WantedProofs, run_command: RunCommand, reporter: Reporter) -> None:
        self.name, self.wanted = name, wanted
        self.cloud, self.zone, self.tpu_type, self.tpu = wanted.cloud, wanted.zone, wanted.type, wanted.tpu
        self._run_command = run_command
        self.say = reporter.say
        self.folder = state_folder(wanted.cloud) / FOLDER / name
        self.file = self.folder / FILE_NAME
        today = datetime.now(timezone.utc).strftime("%Y-%m-%d")
        head = {"cloud": wanted.cloud, "tpu": wanted.tpu, "type": wanted.type, "zone": wanted.zone}
        self.recording = Recording({"tpuctl": __version__, "date": today, **head})

    def price(self) -> Hourly:
        """Return the prices of all machines; the deployment file written for that is not kept."""
        self._write(3600.0)
        try:
            return hourly(self.session.spec, self.session.catalog, self.zone)
        finally:
            shutil.rmtree(self.folder)

    @cached_property
    def session(self) -> Session:
        """Return the session for calls between the commands."""
        return Session(Choice(self.file, (), self.cloud), Reporter())

    @contextmanager
    def prepared(self, ttl: float) -> Iterator[None]:
        """Write the deployment file with its limits; from then on the next self-test would delete it."""
        self._write(ttl)
        self.__dict__.pop("session", None)
        with FileLock(self.folder / "lock"):
            yield

    def _write(self, ttl: float) -> None:
        # JSON is valid YAML and quotes everything itself.
        body = {
            "name": self.name,
            **({"project": self.wanted.project} if self.wanted.project else {}),
            # With a ttl and self-deletion, the machines end even if this computer dies now.
            "tpu": {"type": self.tpu_type, "zones": [self.zone], "spot": True},
            "vm": {"machine_type": "e2-small", "disk_gb": 10},
            "job": {
                "source": "src",
                "command": "python3 train.py",
                "checkpoint": {"format": "marker", "dir": "local"},
            },
            "watch": {
                "poll": POLL,
                "budget_usd": self.wanted.budget,
                "ttl": f"{int(ttl)}s",
                "self_delete": True,
            },
        }
        (self.folder / "src").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._train(ends=False)
        self.file.write_text(json.dumps(body, indent=2) + "\n")

    def _train(self, *, ends: bool) -> None:
        text = TRAIN.format(ends=ends, steps=5 * SAVES, saves=SAVES)
        (self.folder / "src" / "train.py").write_text(text)

    def stages(self, ttl: float) -> None:
        """Run all stages in order; a failed one skips only those that need its result."""
        clock = self.session.clock
        self._ends = clock.monotonic() + ttl
        recorder = Recorder(self.recording, redactor_for(self.session), clock.monotonic)
        with listening(recorder):
            for name, proves, needs, stage in self._all():
                recorder.begin(name)
                self._stage(name, proves, needs, stage)

    def _all(self) -> list[tuple[str, str, str, Callable[[], None]]]:
        every = [
            ("needs", "APIs, type, runtime and image are there", "", self._check_needs),
            ("vm", "bucket and VM come up", "", lambda: self._do("up", "--no-tpu")),
            ("bucket", "writes in a row, preconditions", "vm", self._bucket),
            ("refusals", "a bad type and a bad zone are refused", "vm", self._refusals),
            ("vm-facts", "what the VM's image has", "vm", lambda: self._describe("vm", "--vm")),
        ]
        if self.tpu:
            every += [
                ("quota", "a type beyond the project's quota is refused", "vm", self._beyond_quota),
                ("tpu", "TPU comes up, the job starts", "vm", lambda: self._do("up")),
                ("tpu-facts", "what the TPU's image has", "tpu", lambda: self._describe("tpu")),
                ("chips", "a program on the TPU sees its chips", "tpu", self._chips),
                ("job", "it saves, is killed, comes back; logs, exec, fetch", "tpu", self._job),
                ("lost", "a TPU deleted behind our back is replaced", "tpu", self._lost),
                ("end", "new code is pushed, the job ends, the model comes", "tpu", self._to_the_end),
                ("early", "a TPU that is deleted while it is made goes", "vm", self._early),
                ("queued", "a queued resource becomes a TPU and goes", "vm", self._queued),
            ]
        return every

    def _stage(self, name: str, proves: str, needs: str, stage: Callable[[], None]) -> None:
        clock = self.session.clock
        began, result = clock.monotonic(), "ok"
        if needs and self.recording.stages.get(needs, {}).get("result") != "ok":
            result = "skipped"
        elif began >= self._ends:
            result = "late"
        else:
            self.say(f"\n== {name}: {proves}", style="title")
            try:
                stage()
            except StageSkipError as skipped:
                self.say(f"{name}: left out, {skipped}")
                result = "skipped"
            except (StageError, TpuctlError) as error:
                self.say(f"{name}: {error}", style="bad")
                result = "failed"
        self.recording.stages[name] = {
            "result": result, "duration_s": round(clock.monotonic() - began, 1), "proves": proves,
        }  # fmt: skip

    def _do(self, *words: str) -> None:
        """Run a command. Raise StageError if it fails, KeyboardInterrupt if Ctrl-C ended it."""
        code = self._run(*words)
        # The command has handled Ctrl-C; the self-test must end by it too, not record a failed stage.
        if code == 130:
            raise KeyboardInterrupt
        if code != 0:
            raise StageError(f"`tpuctl {words[0]}` left with {code}")

    def _run(self, *words: str) -> int:
        flags = words.index("--") if "--" in words else len(words)
        own = ("--file", str(self.file), "--cloud", self.cloud)
        return self._run_command([*words[:flags], *own, *words[flags:]])

    def _output(self, *words: str) -> str:
        with redirect_stdout(StringIO()) as out:
            self._do(*words)
        return out.getvalue()

    def _check_needs(self) -> None:
        check_needs(self.session, self.zone, self.tpu_type, tpu=self.tpu)

    def _bucket(self) -> None:
        """Write one object repeatedly without pause, and check that a wrong generation is refused."""
        store, name = self.session.store, f"{FOLDER}/burst"
        generation = 0
        for number in range(BURST):
            generation = store.write(name, str(number).encode())
        try:
            store.write(name, b"x", if_generation=generation + 1)
        except PreconditionError:
            store.delete(name, if_generation=generation)
            return
        raise StageError("a write with a wrong generation was taken")

    def _refusals(self) -> None:
        """Request a nonexistent type; an existing one might be granted and billed."""
        session = self.session
        new = session.blueprint.new_node(session.records.current, self.zone, 1)
        new = replace(new, name=f"{self.name}-tpu-refused")
        for other in (replace(new, type=NO_SUCH_TYPE), replace(new, zone=NO_SUCH_ZONE)):
            try:
                session.cloud.nodes.create(other)
            # Another process holds the lease, which is no refusal of the type or zone.
            except LeaseHeldError:
                raise
            except TpuctlError as error:
                self.say(f"refused as it must be: {error.code}")
                continue
            session.cloud.nodes.delete(other.name, other.zone)
            raise StageError(f"{other.type} in {other.zone} was not refused")

    def _describe(self, name: str, *where: str, script: str = DESCRIBE) -> None:
        answer = json.loads(self._output("exec", "--json", *where, "--", remote_script(script).text))
        self.recording.machines[name] = machine_facts(str(answer["results"][0]["stdout"]))

    def _beyond_quota(self) -> None:
        self.say(ask_beyond_quota(self.session, self.zone, self.tpu_type))

    def _chips(self) -> None:
        """Run a program on the image's own Python without network; the job must not hold the chips."""
        self._describe("chips", script=COUNT_CHIPS)
        found = self.session.catalog.accelerator(self.tpu_type)
        wanted = found.chips_per_host if found else 1
        self.say(chips_text(self.recording.machines["chips"], wanted, local=self.cloud == "local"))

    def _job(self) -> None:
        """Let the job save, kill it, and check that it resumes."""
        first = self._saved(0)
        # The brackets keep pkill from matching its own command line.
        self._run("exec", "--", "pkill -KILL -f '[t]rain.py'")
        self._saved(first)
        for words in (("status",), ("logs",), ("checkpoints",), ("cost",)):
            self._output(*words)
        self._do("checkpoints", "fetch", "--output", str(self.folder / "model"))

    def _saved(self, before: int) -> int:
        """Wait for a complete checkpoint after step *before*; return its step. Raise StageError."""
        clock, store = self.session.clock, self.session.store
        checkpoint = self.session.spec.job.checkpoint

        def later() -> list[int]:
            complete = (one.step for one in read_checkpoints(store, checkpoint) if one.complete)
            return [step for step in complete if step > before]

        if not (steps := wait_until(later, clock, WAIT, 2.0)):
            raise StageError(f"no checkpoint after step {before} within {WAIT:.0f} s")
        return max(steps)

    def _lost(self) -> None:
        """Delete the TPU without tpuctl, and let `up` replace it."""
        for node in self._nodes():
            self.session.cloud.nodes.delete(node, self.zone)
        wait_until(lambda: not self._nodes(), self.session.clock, WAIT, 2.0)
        self._do("up")

    def _nodes(self) -> list[str]:
        nodes = self.session.cloud.nodes.labelled(names.DEPLOYMENT_LABEL, self.name, (self.zone,))
        if not isinstance(nodes, Present):
            raise StageError("the list of TPUs could not be read")
        return [node.name for node in nodes.value]

    def _to_the_end(self) -> None:
        self._train(ends=True)
        self._do("push")
        self._do("watch")
        self._do("checkpoints", "fetch", "--output", str(self.folder / "last"))

    def _early(self) -> None:
        """Request a TPU and delete it while it is being created."""
        self._do("down", "--yes")
        # The job is done, so `up` needs other code to begin again.
        self._train(ends=False)
        bring_up(Choice(self.file, (), self.cloud), Reporter(), UpOptions(Goal.TPU_REQUESTED))
        self._do("down", "--yes")

    def _queued(self) -> None:
        self._do("up", "--set", "tpu.request=queued")
        self._do("down", "--yes", "--set", "tpu.request=queued")

    def end(self) -> list[str]:
        """Delete everything, list what carries our label, and return what is left or could not be listed."""
        self.say("\n== down: everything goes, and lists prove it", style="title")
        clock = self.session.clock
        began = clock.monotonic()
        bucket = names.bucket_name(self.session.spec, self.session.project)
        # Its exit status proves nothing, also if it was killed; the lists below do.
        take_down(self.folder, self.cloud, self._run_command)
        leftovers = self._leftovers(self._new_session(), bucket)
        self.recording.stages["down"] = {
            "result": "failed" if leftovers else "ok", "duration_s": round(clock.monotonic() - began, 1),
            "proves": "nothing is left",
        }  # fmt: skip
        return leftovers

    def _new_session(self) -> Session:
        """Return a new session, since the last `down` stops an idle local cloud."""
        return Session(self.session.choice, Reporter(), self.session.spec)

    def _leftovers(self, session: Session, bucket: str) -> list[str]:
        """Return what the lists do not prove to be deleted, and what is left on this computer."""
        leftovers = still_there(session, self.name, self.zone, bucket, self.say)
        if not leftovers and self.folder.exists():
            leftovers.append(f"the folder {self.folder}")
        if self.cloud == "local":
            stop_if_idle()
        return leftovers
