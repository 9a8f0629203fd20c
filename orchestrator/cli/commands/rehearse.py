"""tpuctl rehearse: prove that a job recovers from preemptions before paying for it."""

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.advice.rehearsal.life import Blow, Kill, Life
    from orchestrator.advice.rehearsal.moments import Moment
    from orchestrator.advice.rehearsal.verdict import Verdict
    from orchestrator.app.rehearsal.evidence import Evidence
    from orchestrator.app.rehearsal.stage import Stage

KILLS = ("notice", "kill", "save", "restore", "twice", "vm")
POLL = "watch.poll=1s"
NOTICE = "8"
"""Seconds of notice: shorter than the real 30, longer than any framework takes to begin its last save."""
ONCE, TWICE = "job.failures=1", "job.failures=2"
"""A job that fails by itself fails again. With failures it may start once more: a gang can lose a peer."""


@click.command("rehearse")
@click.option(
    "--file", type=click.Path(path_type=Path, dir_okay=False), help="Deployment file. Default: tpuctl.yaml."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting for the rehearsal."
)
@click.option(
    "--kill", "kills", multiple=True, type=click.Choice(KILLS), default=("notice", "kill"), show_default=True,
    help="A failure to inject, in this order; may be given several times.",
)  # fmt: skip
@click.option(
    "--at", "moments", multiple=True, metavar="MOMENT",
    help="When: step:100, checkpoint:2, time:90s or log:REGEX. One for each --kill, in the same order.",
)  # fmt: skip
@click.option("--random", "count", type=int, help="Instead: this many failures of random kinds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for --random and for the moments.")
@click.option(
    "--compare/--no-compare", default=True, show_default=True, help="Also run it undisturbed, to compare."
)
@click.option("--hosts", type=click.Choice(["process", "namespace"]), default="process", show_default=True)
@click.option("--keep", is_flag=True, help="Keep the local cloud, to look around in.")
@json_option
def command(
    file: Path | None, settings: tuple[str, ...], kills: tuple[str, ...], moments: tuple[str, ...],
    count: int | None, seed: int, compare: bool, hosts: str, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """
    Run your deployment on a local cloud of its own, inject failures, and judge whether the job recovers.

    \b
    notice   a preemption with its warning       kill     SIGKILL without one
    save     SIGKILL while it saves              restore  SIGKILL again while it restores
    twice    SIGKILL again as soon as it trains  vm       the VM is stopped from outside

    Without --at, a failure comes at a step where the job reports steps, else after a checkpoint, else after a
    part of the undisturbed run's time. checkpoint, time and log count on the machine that is taken away.

    It ends with 0 only if the job came back every time and reached its end. When the job itself fails, its
    last lines are shown and its local cloud is kept to look at.
    """  # noqa: D301 (click reads the character, so the text cannot be raw)
    from orchestrator.advice.rehearsal.life import Kill
    from orchestrator.app.rehearsal.stage import Stage, interruptible
    from orchestrator.cli.commands.demo import clear
    from orchestrator.cli.commands.secret import lend_secrets
    from orchestrator.config.load import FILE_NAME, find
    from orchestrator.errors import UsageError

    path = (file or find(Path.cwd())).absolute()
    if path.name != FILE_NAME:
        raise UsageError(
            f"--file {path.name}: a rehearsal needs the name {FILE_NAME}", code="TPU-133",
            hint=f"give the file that name, in a folder of its own if there is a {FILE_NAME} already",
            unchanged="nothing was started",
        )  # fmt: skip
    chance = random.Random(seed)  # noqa: S311 - moments of a rehearsal, not secrets
    chosen = [Kill(k) for k in ([chance.choice(KILLS) for _ in range(count)] if count else kills)]
    asked = _moments(moments, len(chosen))
    stage = Stage(Path(tempfile.mkdtemp(prefix="tpuctl-rehearsal-")), path.parent, (), talk=as_json)
    run = Rehearsal(stage, settings, chosen, asked, chance)
    with interruptible():
        try:
            run.take(ONCE)
            stage.start_cloud("--hosts", hosts, "--notice", NOTICE, "--no-fresh-project")
            lend_secrets(stage.session.spec)
            verdict = run.judged(compare=compare)
            keep = keep or verdict.crash is not None
        finally:
            left = [] if keep else clear(stage)
    _show(verdict, stage, settings, as_json=as_json, keep=keep)
    if left:
        raise click.exceptions.Exit(5)
    raise click.exceptions.Exit(0 if verdict.survives else 1)


def _moments(texts: tuple[str, ...], kills: int) -> "list[Moment]":
    """Read the moments; raise UsageError for one that is none, and for more moments than failures."""
    from orchestrator.advice.rehearsal.moments import Moment
    from orchestrator.errors import UsageError

    if len(texts) > kills:
        raise UsageError(
            f"{len(texts)} --at for {kills} failures",
            hint="give one --at for each --kill, in the same order", unchanged="nothing was started",
        )  # fmt: skip
    found = []
    for text in texts:
        try:
            found.append(Moment.parse(text))
        except ValueError as error:
            raise UsageError(
                f"--at {text}: {error}", hint="see: tpuctl rehearse --help", unchanged="nothing was started"
            ) from error
    return found


class Rehearsal:
    """Run the job undisturbed, then with failures, and judge."""

    def __init__(
        self, stage: "Stage", settings: "Sequence[str]", kills: "Sequence[Kill]", asked: "Sequence[Moment]",
        chance: random.Random,
    ) -> None:  # fmt: skip
        self._stage = stage
        self._settings = settings
        self._kills = kills
        self._asked = asked
        self._chance = chance

    def take(self, failures: str) -> None:
        """Use the user's settings, which go before our own number of failures."""
        self._stage.take((failures, *self._settings, POLL))

    def judged(self, *, compare: bool) -> "Verdict":
        """Return the verdict. A job that fails undisturbed is not run again."""
        from orchestrator.advice.rehearsal.verdict import judge, judge_crash

        stage, unbroken = self._stage, None
        if compare:
            stage.scene("The job, undisturbed")
            unbroken = self._life((), None)
            if not unbroken.done:
                return judge_crash(unbroken)
            stage.run("down", "--yes", "--delete-data", *stage.flags)
        self.take(TWICE)
        count = len(self._kills)
        stage.scene(f"The job, with {count} failure{'s' if count != 1 else ''} injected")
        broken = self._life(self._kills, unbroken)
        return judge(broken, unbroken, missed=count - len(broken.blows))

    def _life(self, kills: "Sequence[Kill]", unbroken: "Life | None") -> "Life":
        """
        Bring the deployment up and watch it to its end under *kills*.

        Raise Exit with a command's code when it ended for another reason than the deployment's end.
        """
        from orchestrator.app.rehearsal.blows import Blows, JobOverError
        from orchestrator.app.rehearsal.evidence import Evidence

        stage = self._stage
        code = stage.call("up", *stage.flags)
        evidence = Evidence(stage)
        if code != 0:
            return self._ended(evidence, (), code)
        watcher = stage.start("watch", *stage.flags)
        striker = Blows(stage, watcher, evidence, self._chance)
        blows: list[Blow] = []
        try:
            for number, kill in enumerate(kills, start=1):
                blows.append(striker.strike(kill, self._moment(number, unbroken)))
            code = striker.until_over()
        except JobOverError:
            code = watcher.wait()
        finally:
            stage.end(watcher)
        return self._ended(evidence, blows, code)

    def _moment(self, number: int, unbroken: "Life | None") -> "Moment":
        from orchestrator.advice.rehearsal.moments import default_moment

        if number <= len(self._asked):
            return self._asked[number - 1]
        target = self._stage.session.spec.job.target_steps
        return default_moment(number, len(self._kills), target, unbroken.pace if unbroken else None)

    def _ended(self, evidence: "Evidence", blows: "Sequence[Blow]", code: int) -> "Life":
        from dataclasses import replace

        from orchestrator.domain.plan import Outcome

        records = self._stage.session.records
        records.load()
        outcome = next((one for one in Outcome if one.value == records.current.outcome), None)
        if outcome is None:
            raise click.exceptions.Exit(code or 1)
        return replace(evidence.life(outcome, records.current.reason), blows=tuple(blows))


def _show(
    verdict: "Verdict", stage: "Stage", settings: tuple[str, ...], *, as_json: bool, keep: bool
) -> None:
    from orchestrator.cli.console import print_json
    from orchestrator.cli.views.verdict import kept_lines, verdict_lines

    if as_json:
        print_json("rehearsal", {**verdict.as_dict(), "kept": str(stage.cloud) if keep else None})
        return
    lines = verdict_lines(verdict)
    if keep:
        lines += kept_lines(stage.cloud, stage.work, settings)
    for line in lines:
        click.echo(line)
