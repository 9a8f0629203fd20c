"""tpuctl selftest: the acceptance kit, run once against the real service, or here against the local cloud."""

import json
import secrets
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import cloud_option, confirm, json_option, must_answer, yes_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.advice.selftest.compare import Difference
    from orchestrator.advice.selftest.limits import Limits
    from orchestrator.advice.selftest.recording import Recording
    from orchestrator.app.selftest.steps import Run


@click.command("selftest")
@cloud_option
@json_option
@click.option("--project", help="Project to run in.  [default: that of the login]")
@click.option("--zone", default="us-west1-c", show_default=True, help="Zone of TPU and VM.")
@click.option("--type", "kind", default="v5litepod-4", show_default=True, help="TPU type.")
@click.option("--no-tpu", is_flag=True, help="Bucket and VM only, for a project without TPU quota.")
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True, help="USD at most."
)
@click.option(
    "--limit", type=click.FloatRange(5, 240), default=90.0, show_default=True, help="Minutes at most."
)
@click.option(
    "--record", type=click.Path(path_type=Path, dir_okay=False),
    help="Keep the shapes of all calls in this file, shown before it is written.",
)  # fmt: skip
@click.option(
    "--compare", type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Replay the steps of a recording on the local cloud, and print what differs.",
)  # fmt: skip
@yes_option
def command(
    cloud: str, as_json: bool, project: str | None, zone: str, kind: str, no_tpu: bool, budget: float,
    limit: float, record: Path | None, compare: Path | None, yes: bool,
) -> None:  # fmt: skip
    """
    Run the whole of tpuctl once on the cloud, delete everything, and prove that nothing is left.

    It asks once, with the sum. A budget and a time to live hold from the first create on, also when this
    computer is switched off. --record keeps shapes only: no names, no values, no keys. Leaves with 0 when all
    steps worked, 1 when one failed or a comparison found differences, 5 when something is left.
    """
    from orchestrator.advice.selftest.compare import Topic, differences
    from orchestrator.app.selftest.steps import Run

    theirs = _read(compare) if compare else None
    if theirs is not None:
        cloud, no_tpu = "local", not theirs.head.get("tpu", True)
        kind, zone = str(theirs.head.get("type", kind)), str(theirs.head.get("zone", zone))
    must_answer(yes=yes or cloud == "local")
    _clean_up_before(cloud)
    run = Run(f"selftest-{secrets.token_hex(3)}", cloud, project, zone, kind, tpu=not no_tpu)
    found = _agreed(run, budget, limit * 60, yes=yes or cloud == "local")
    left, interrupted = _all_of_it(run, found, budget)
    _tell(run)
    if record is not None:
        _keep(run, record, yes=yes, as_json=as_json)
    differ = differences(theirs, run.recording) if theirs is not None else None
    if as_json:
        _print(run, left, differ, interrupted=interrupted)
    elif differ is not None:
        _show(differ)
    different = any(one.topic is not Topic.TIME for one in differ or ())
    _leave(run, left, interrupted=interrupted, different=different)


def _agreed(run: "Run", budget: float, seconds: float, *, yes: bool) -> "Limits":
    """Say what will happen and what it costs at most, and ask once."""
    from orchestrator.advice.selftest.limits import limits
    from orchestrator.cli.console import say
    from orchestrator.errors import UsageError

    price = run.price(budget)
    found = limits(price, budget, seconds, tpu=run.tpu)
    if found is None:
        what = f"no price is known for {', '.join(price.unknown)}" if price.unknown else "it is too small"
        raise UsageError(
            f"a budget of {budget:g} USD cannot be kept: {what}",
            hint="choose another --zone or --type, a greater --budget or --limit, or --no-tpu",
            unchanged="nothing was created",
        )
    things = f"a VM and a TPU {run.kind} (spot)" if run.tpu else "a VM"
    say(f"This creates a bucket, {things} in {run.zone}, and deletes all of it at the end.", style="bold")
    say(f"  project  {run.session.project}, deployment {run.name}")
    say(f"  cost     about {found.usual_usd:.2f} USD, at most {found.most_usd:.2f} USD ({price.date_text})")
    say(f"  limit    {found.ttl / 60:.0f} minutes; then the machines end by themselves, whoever watches")
    if run.cloud == "local":
        say("  This is the local cloud: nothing of it is billed.")
    confirm("Go on?", yes=yes)
    return found


def _all_of_it(run: "Run", found: "Limits", budget: float) -> tuple[list[str], bool]:
    """Run the steps; whatever happens, delete everything and look. Return what is left, and whether Ctrl-C came."""
    from orchestrator.app.rehearsal.stage import interruptible, undisturbed
    from orchestrator.cli.console import say

    interrupted = False
    # What the commands in it print is talk here: the answer is what becomes of all of them.
    with run.begun(found.ttl, budget), redirect_stdout(sys.stderr):
        try:
            with interruptible():
                run.steps(found.ttl)
        except KeyboardInterrupt:
            interrupted = True
            say("interrupted; everything is deleted first, which takes a few minutes", style="yellow")
        finally:
            with undisturbed():
                left = run.end()
    return left, interrupted


def _clean_up_before(cloud: str) -> None:
    """Take down what a killed self-test of this computer has left."""
    from orchestrator.app.selftest.steps import earlier, take_down
    from orchestrator.cli.console import say
    from orchestrator.errors import LeftoverError

    for folder in earlier(cloud):
        say(f"{folder.name}: an earlier self-test was cut off; what is left of it is deleted first")
        if take_down(folder, cloud) != 0:
            raise LeftoverError(
                f"{folder.name} could not be taken down",
                hint=f"run: tpuctl down --delete-data --file {folder / 'tpuctl.yaml'}",
                unchanged="no new self-test was begun",
            )


def _tell(run: "Run") -> None:
    from orchestrator.cli.console import say

    say("")
    for name, told in run.recording.steps.items():
        fine = told["outcome"] == "ok"
        text = f"  {told['outcome']:<8} {name:<12} {told['seconds']:>7.1f} s  {told['proves']}"
        say(text, style="" if fine else "bold red" if told["outcome"] == "failed" else "yellow")


def _keep(run: "Run", path: Path, *, yes: bool, as_json: bool) -> None:
    """Show every line of the recording, and write it when the user wants to keep it."""
    from orchestrator.cli.console import put, say
    from orchestrator.engine.atomic_files import write_atomically

    lines = [json.dumps(line, sort_keys=True) for line in run.recording.lines()]
    for line in lines:
        put(line, err=as_json)
    say(f"These {len(lines)} lines are all that the recording holds: shapes, no values. Nothing was sent.")
    if yes or click.confirm(f"Keep them in {path}?", err=True):
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
        say(f"kept in {path}; docs/selftest.md says where to send it")
    else:
        say("the recording was thrown away")


def _read(path: Path) -> "Recording":
    from orchestrator.advice.selftest.recording import parse
    from orchestrator.errors import UsageError

    try:
        return parse(_objects(path))
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise UsageError(
            f"{path} is no recording of a self-test: {error}",
            hint="make one with: tpuctl selftest --record F",
            unchanged="nothing was created",
        ) from None


def _objects(path: Path) -> "Iterator[dict[str, Any]]":
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if not isinstance(one, dict):
            raise TypeError("a line is no JSON object")
        yield one


def _show(found: "list[Difference]") -> None:
    """Print what differs, by topic."""
    from orchestrator.advice.selftest.compare import Topic

    for topic in Topic:
        some = [one for one in found if one.topic is topic]
        click.echo(f"{topic.value}: {len(some) or 'no'} difference{'' if len(some) == 1 else 's'}")
        for one in some:
            click.echo(f"  {one.where}\n    recorded: {one.recorded}\n    here:     {one.here}")


def _print(run: "Run", left: list[str], differ: "list[Difference] | None", *, interrupted: bool) -> None:
    from dataclasses import asdict

    from orchestrator.cli.console import print_json

    found = None if differ is None else [{**asdict(one), "topic": one.topic.value} for one in differ]
    body = {"name": run.name, "cloud": run.cloud, "left": left, "interrupted": interrupted}
    print_json("selftest", {**body, "steps": run.recording.steps, "differences": found})


def _leave(run: "Run", left: list[str], *, interrupted: bool, different: bool) -> None:
    """Leave with the exit code that says how it ended; what is left comes first."""
    from orchestrator.cli.console import say
    from orchestrator.errors import LeftoverError

    if left:
        raise LeftoverError(
            f"not proven gone: {'; '.join(left)}", hint="run tpuctl selftest again: it deletes this first",
            unchanged="everything else is gone",
        )  # fmt: skip
    say(f"nothing is left of {run.name}: no TPU, no VM, no queued resource, no bucket", style="green")
    if interrupted:
        raise click.exceptions.Exit(130)
    if different or any(told["outcome"] not in {"ok", "skipped"} for told in run.recording.steps.values()):
        raise click.exceptions.Exit(1)
