"""Show what a self-test will do and cost, and its result."""

from pathlib import Path

import click

from orchestrator.advice.selftest.compare import Topic
from orchestrator.app.selftest.selftest import Prepared, SelfTested, json_lines, write_recording
from orchestrator.cli.console import print_json, put, say
from orchestrator.cli.questions import approved
from orchestrator.domain.text.amounts import at_most_text, usd_text
from orchestrator.errors import LeftoverError


def announce(prepared: Prepared) -> None:
    """Print what will be created and the maximum cost."""
    test, limits = prepared.test, prepared.limits
    things = f"a VM and a TPU {test.tpu_type} (spot)" if test.tpu else "a VM"
    cost = f"about {usd_text(limits.usual_usd)}, {at_most_text(limits.upper_usd)}"
    say(f"This creates a bucket, {things} in {test.zone}, and deletes all of it at the end.", style="bold")
    say(f"  project  {test.session.project}, deployment {test.name}")
    say(f"  cost     {cost} ({prepared.prices})")
    say(
        f"  limit    {limits.ttl / 60:.0f} minutes; then the machines end by themselves, even if no watcher runs"
    )
    if test.cloud == "local":
        say("  This is the local cloud: nothing of it is billed.")


def show_stages(done: SelfTested) -> None:
    """Print a line for each stage."""
    say("")
    for name, stage in done.test.recording.stages.items():
        text = f"  {stage['result']:<8} {name:<12} {stage['duration_s']:>7.1f} s  {stage['proves']}"
        styles = {"ok": "", "failed": "bold red"}
        say(text, style=styles.get(stage["result"], "yellow"))


def offer_recording(done: SelfTested, file: Path, *, yes: bool, err: bool) -> None:
    """Print all lines of the recording, so that users know what they send; write it after a yes."""
    # With --json, stdout is the document, so the lines go to stderr.
    lines = json_lines(done.test.recording)
    for line in lines:
        put(line, err=err)
    say(f"These {len(lines)} lines are all that the recording holds: shapes, no values. Nothing was sent.")
    # --yes only stores the file on this computer; nothing is ever sent.
    if yes or approved(f"Keep them in {file}?"):
        write_recording(done.test.recording, file)
        say(f"kept in {file}; docs/selftest.md says where to send it")
    else:
        say("the recording was thrown away")


def show(done: SelfTested, *, as_json: bool) -> None:
    """Print the result. Raise LeftoverError for what is left or not proven to be deleted."""
    if as_json:
        print_json("selftest", done.as_dict())
    else:
        _show_differences(done)
    if done.leftovers:
        raise LeftoverError(
            f"not proven gone: {'; '.join(done.leftovers)}",
            hint="run `tpuctl selftest` again: it deletes this first",
            changed="everything else is gone",
        )  # fmt: skip
    say(f"nothing of {done.test.name} is left: no TPU, no VM, no queued resource, no bucket", style="green")


def _show_differences(done: SelfTested) -> None:
    """Print the differences to a recording by topic."""
    for topic in Topic if done.differences is not None else ():
        some = [one for one in done.differences or () if one.topic is topic]
        click.echo(f"{topic.value}: {len(some) or 'no'} difference{'' if len(some) == 1 else 's'}")
        for one in some:
            click.echo(f"  {one.where}\n    recorded: {one.recorded}\n    here:     {one.here}")
