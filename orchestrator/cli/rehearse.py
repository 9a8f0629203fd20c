"""
tpuctl rehearse: prove that a job survives before paying for it.
"""

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import json_option

if TYPE_CHECKING:
    from orchestrator.cli.stage import Stage
    from orchestrator.core.verdict import Blow, Kill, Verdict
    from orchestrator.core.world import Heartbeat

KILLS = ("notice", "kill", "save", "restore", "twice", "vm")
POLL = "watch.poll=1s"
NOTICE = "8"
"""Seconds of notice: shorter than the real 30, longer than any framework takes to begin its last save."""


@click.command("rehearse")
@click.option(
    "--file", type=click.Path(path_type=Path, dir_okay=False), help="Deployment file. Default: tpuctl.yaml."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting for the rehearsal."
)
@click.option(
    "--kill", "kills", multiple=True, type=click.Choice(KILLS), default=("notice", "kill"), show_default=True,
    help="A blow, in this order; may be given several times.",
)  # fmt: skip
@click.option("--random", "count", type=int, help="Instead: this many blows of random kinds.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for --random and for the moments.")
@click.option(
    "--compare/--no-compare", default=True, show_default=True, help="Also run it unbroken, for the loss."
)
@click.option("--hosts", type=click.Choice(["process", "namespace"]), default="process", show_default=True)
@click.option("--keep", is_flag=True, help="Keep the local cloud, to look around in.")
@json_option
def command(
    file: Path | None, settings: tuple[str, ...], kills: tuple[str, ...], count: int | None, seed: int,
    compare: bool, hosts: str, keep: bool, as_json: bool,
) -> None:  # fmt: skip
    """
    Run your deployment on a local cloud of its own, take machines away, and judge whether it comes back.

    \b
    notice   a preemption with its warning       kill     SIGKILL without one
    save     SIGKILL while it saves              restore  SIGKILL again while it restores
    twice    SIGKILL again as soon as it trains  vm       the VM is stopped from outside

    It ends with 0 only if the job came back every time and reached its end.
    """  # noqa: D301 (click reads the character, so the text cannot be raw)
    from orchestrator.cli.demo import clear
    from orchestrator.cli.secret import lend_secrets
    from orchestrator.cli.stage import Stage, interruptible
    from orchestrator.config.load import FILE_NAME, find
    from orchestrator.core.verdict import Kill
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
    stage = Stage(
        Path(tempfile.mkdtemp(prefix="tpuctl-rehearsal-")), path.parent, (*settings, POLL), talk=as_json
    )
    with interruptible():
        try:
            stage.run("local", "start", "--hosts", hosts, "--notice", NOTICE)
            lend_secrets(stage.session.spec)
            verdict = _rehearse(stage, chosen, chance, compare=compare)
        finally:
            left = [] if keep else clear(stage)
    _show(verdict, as_json=as_json)
    if keep:
        stage.say(f"kept: TPUCTL_LOCAL_DIR={stage.folder / 'cloud'} TPUCTL_CLOUD=local")
    if left:
        raise click.exceptions.Exit(5)
    raise click.exceptions.Exit(0 if verdict.survives else 1)


def _rehearse(stage: "Stage", kills: "list[Kill]", chance: random.Random, *, compare: bool) -> "Verdict":
    """
    Run the job unbroken, then under blows, and judge.
    """
    from orchestrator.core.verdict import judge

    unbroken = None
    if compare:
        stage.scene("The job, left in peace")
        unbroken = _life(stage, [], chance)
        stage.run("down", "--yes", "--delete-data", *stage.flags)
        stage.forget()
    stage.scene(f"The job, with {len(kills)} blow{'s' if len(kills) != 1 else ''}")
    done, beats, blows, seconds, torn = _life(stage, kills, chance)
    return judge(
        blows,
        beats,
        done=done,
        missed=len(kills) - len(blows) if done else 0,
        torn=torn,
        unbroken_loss=unbroken[1][-1].loss if unbroken and unbroken[0] and unbroken[1] else None,
        seconds=seconds,
        unbroken_seconds=unbroken[3] if unbroken else None,
    )


def _life(
    stage: "Stage", kills: "list[Kill]", chance: random.Random
) -> "tuple[bool, tuple[Heartbeat, ...], list[Blow], float, int]":
    """
    Bring the deployment up and watch it to its end under *kills*.

    Return whether it was done, the last reports of all incarnations, the blows, the seconds of training
    and recovery, and how many torn checkpoints were moved aside.
    """
    from orchestrator.cli.blows import Blows, JobOverError
    from orchestrator.core.world import Present
    from orchestrator.engine.heartbeats import read_heartbeats
    from orchestrator.engine.joblogs import JobLog

    stage.run("up", *stage.flags)
    watcher = stage.start("watch", *stage.flags)
    blows: list[Blow] = []
    try:
        striker = Blows(stage, watcher, chance)
        target = stage.session.spec.job.target_steps or 0
        for number, kill in enumerate(kills, start=1):
            blows.append(striker.strike(kill, after_step=target * number // (len(kills) + 2)))
        code = watcher.wait()
    except JobOverError:
        stage.say(f"the job was over before blow {len(blows) + 1} of {len(kills)}: give it more steps")
        code = watcher.wait()
    finally:
        stage.end(watcher)
    store = stage.session.cloud.store
    seen = read_heartbeats(store, None)
    beats = seen.value if isinstance(seen, Present) else ()
    torn = sum("torn-" in line for _, _, line in JobLog(store).new_lines())
    started = min((b.timings.get("boot", b.updated) for b in beats), default=0.0)
    ended = max((b.updated for b in beats), default=0.0)
    return code == 0, beats, blows, ended - started, torn


def _show(verdict: "Verdict", *, as_json: bool) -> None:
    from orchestrator.cli.output import print_json
    from orchestrator.cli.verdict_view import verdict_lines

    if as_json:
        print_json("rehearsal", verdict.as_dict())
        return
    for line in verdict_lines(verdict):
        click.echo(line)
