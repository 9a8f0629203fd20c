"""Run a deployment on its own local cloud, inject faults, and judge whether the job recovers."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.advice.rehearsal.run import (
    Fault,
    InjectedFault,
    Moment,
    ObservedRun,
    default_moment,
)
from orchestrator.advice.rehearsal.verdict import RehearsalVerdict, judge, judge_crash
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.rehearsal.evidence import RunEvidence
from orchestrator.app.rehearsal.faults import Injector, JobOverError
from orchestrator.app.rehearsal.sandbox import CommandFailedError, Sandbox, interruptible
from orchestrator.app.secret import lend_secrets
from orchestrator.clock import SystemClock
from orchestrator.config.find import FILE_NAME, find
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.amounts import span_text
from orchestrator.errors import TransientError, UsageError

POLL = "watch.poll=1s"
NOTICE = "8"
"""Seconds of notice: less than the real 30, more than a framework needs to start its last save."""
ONCE, TWICE = "job.failures=1", "job.failures=2"
"""
Settings without and with faults.

A job that fails by itself fails again, so it gets one start; with faults it gets two, since a gang can lose
a peer.
"""
_WHY = {
    ONCE: "(job.failures=1: a job that fails is not started again; watch.poll=1s: asks each second what exists)",
    TWICE: "(job.failures=2: a fault may make the job fail once on another machine)",
}
"""Why the commands below have these settings, for people who see them."""


@dataclass(frozen=True)
class RehearsalPlan:
    """
    The plan of a rehearsal: which faults, *at* which moments; missing ones are chosen by *seed*.

    A positive *count* asks for that many faults of random kinds instead. *compare* also runs the job
    undisturbed; *machines* is how the local cloud makes machines.
    """

    faults: Sequence[Fault]
    at: Sequence[Moment]
    count: int | None
    seed: int
    compare: bool
    machines: str

    def check(self) -> None:
        """Raise UsageError for more moments than faults."""
        faults = self.count or len(self.faults)
        if len(self.at) > faults:
            raise UsageError(
                f"{len(self.at)} --at for {faults} faults",
                hint="give one --at for each --fault, in the same order", changed="nothing was started",
            )  # fmt: skip


@dataclass(frozen=True)
class Rehearsed:
    """The verdict, the *leftovers* that could not be removed, and the sandbox's folders if *retained*."""

    verdict: RehearsalVerdict
    leftovers: Sequence[str]
    cloud: Path
    work: Path
    retained: bool


def rehearse(
    file: Path | None,
    settings: Sequence[str],
    plan: RehearsalPlan,
    reporter: Reporter,
    *,
    keep: bool,
    talk: bool,
) -> Rehearsed:
    """
    Run *plan* with the job of *file*, or of the deployment file found from here.

    With *talk* its commands print nothing to stdout.

    The local cloud stays with *keep*, or if the job itself fails. Raise UsageError, and CommandFailedError if
    a command fails for another reason than the deployment's end.
    """
    file = (file or find(Path.cwd())).absolute()
    if file.name != FILE_NAME:
        raise UsageError(
            f"--file {file.name}: a rehearsal needs the name {FILE_NAME}", code="TPU-133",
            hint=f"give the file that name, in a folder of its own if there is a {FILE_NAME} already",
            changed="nothing was started",
        )  # fmt: skip
    # Seeded, so that a failed rehearsal can be repeated with the same faults.
    chance = random.Random(plan.seed)  # noqa: S311 - moments of a rehearsal, not secrets
    faults = [chance.choice(list(Fault)) for _ in range(plan.count)] if plan.count else list(plan.faults)
    plan.check()
    sandbox = Sandbox(Path(tempfile.mkdtemp(prefix="tpuctl-rehearsal-")), file.parent, reporter, talk=talk)
    run = _Rehearsal(sandbox, settings, faults, plan.at, chance)
    leftovers: list[str] = []
    with interruptible():
        try:
            run.take(ONCE)
            sandbox.start_cloud("--machines", plan.machines, "--notice", NOTICE, "--no-fresh-project")
            lend_secrets(sandbox.session.spec, reporter)
            verdict = run.judged(compare=plan.compare)
            # If the job fails by itself, its logs are the only way to find out why.
            keep = keep or verdict.crash is not None
        except TransientError:
            # A request may meet the end of the local cloud before the check for it does.
            sandbox.must_have_cloud()
            raise
        finally:
            leftovers = sandbox.keep() if keep else sandbox.clear()
    return Rehearsed(verdict, leftovers, sandbox.cloud, sandbox.work, keep)


def _length(spec: Spec) -> str:
    """Return how long the two runs take, and how they are made shorter."""
    last = spec.job.target_steps
    end = f"to step {last}" if last else "to its end"
    return (
        f"The job runs twice on this computer, each time {end}: more than twice as long as alone. Shorter: "
        "`--set job.target_steps=N`, a step after a few saves; `--no-compare` leaves the first run out."
    )


class _Rehearsal:
    """Runs the job undisturbed, then with faults, and judges."""

    def __init__(
        self, sandbox: Sandbox, settings: Sequence[str], faults: Sequence[Fault], asked: Sequence[Moment],
        chance: random.Random,
    ) -> None:  # fmt: skip
        self._sandbox = sandbox
        self._settings = settings
        self._faults = faults
        self._asked = asked
        self._chance = chance

    def take(self, failures: str) -> None:
        """Use the user's settings, which override our own job.failures."""
        self._sandbox.take((failures, *self._settings, POLL))

    def judged(self, *, compare: bool) -> RehearsalVerdict:
        """Return the verdict. A job that fails undisturbed is not run again."""
        sandbox, undisturbed = self._sandbox, None
        if compare:
            sandbox.say(_length(sandbox.session.spec), "")
            sandbox.scene("The job, undisturbed")
            self._explain(ONCE)
            undisturbed = self._run((), None)
            # It failed without an injected fault, which says nothing about recovery, so a second run is useless.
            if not undisturbed.done:
                return judge_crash(undisturbed)
            sandbox.run("down", "--yes", "--delete-data", *sandbox.flags)
        self.take(TWICE)
        count = len(self._faults)
        sandbox.scene(f"The job, with {count} fault{'s' if count != 1 else ''} injected")
        if undisturbed and undisturbed.seconds:
            took = span_text(undisturbed.seconds)
            sandbox.say(f"Undisturbed it took {took}; each fault adds the start of a machine.", "")
        self._explain(TWICE)
        disturbed = self._run(self._faults, undisturbed)
        return judge(disturbed, undisturbed, missed=count - len(disturbed.faults))

    def _explain(self, failures: str) -> None:
        """Say what our own settings are for, unless the user's replace them."""
        if not any(setting.startswith("job.failures=") for setting in self._settings):
            self._sandbox.say(_WHY[failures], "")

    def _run(self, faults: Sequence[Fault], undisturbed: ObservedRun | None) -> ObservedRun:
        """Bring the deployment up and watch it to its end under *faults*."""
        sandbox = self._sandbox
        code = sandbox.call("up", *sandbox.flags)
        evidence = RunEvidence(sandbox)
        if code != 0:
            return self._ended(evidence, (), code)
        watcher = sandbox.start("watch", *sandbox.flags)
        injector = Injector(sandbox, watcher, evidence, self._chance, SystemClock())
        injected: list[InjectedFault] = []
        try:
            for number, fault in enumerate(faults, start=1):
                injected.append(injector.inject(fault, self._moment(number, undisturbed)))
            code = injector.until_over()
        except JobOverError:
            code = watcher.wait()
        finally:
            sandbox.end(watcher)
        return self._ended(evidence, injected, code)

    def _moment(self, number: int, undisturbed: ObservedRun | None) -> Moment:
        if number <= len(self._asked):
            return self._asked[number - 1]
        target = self._sandbox.session.spec.job.target_steps
        return default_moment(number, len(self._faults), target, undisturbed.totals if undisturbed else None)

    def _ended(self, evidence: RunEvidence, injected: Sequence[InjectedFault], code: int) -> ObservedRun:
        """Return the run; raise CommandFailedError when the deployment has not ended."""
        records = self._sandbox.session.records
        records.load()
        outcome = records.current.outcome
        if outcome is None:
            raise CommandFailedError(code or 1)
        return replace(evidence.run(outcome, records.current.message), faults=tuple(injected))
