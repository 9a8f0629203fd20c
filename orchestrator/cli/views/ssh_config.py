"""Show the machines as ssh_config, and what was done to the user's configuration."""

from pathlib import Path

import click

from orchestrator.app.machines.ssh_config import Included, SshConfig
from orchestrator.cli.console import print_json, say, talk


def show(found: SshConfig, output: Path | None, *, as_json: bool) -> None:
    """Print the Host blocks, or the file that has them."""
    if as_json:
        _print(found, output)
    elif output is None:
        click.echo(found.text, nl=False)
    else:
        say(f"{output}: {', '.join(found.hosts)}")
        talk(f"  next:  ssh -F {output} {found.hosts[0]}")


def show_included(found: SshConfig, done: Included, *, as_json: bool) -> None:
    """Print how to reach the machines from now on."""
    if as_json:
        _print(found, done.file, done)
        return
    say(f"{done.file}: {', '.join(found.hosts)}")
    say(f"{done.config} {'includes it now' if done.changed else 'includes it already'}{_copied(done)}")
    talk(f"  next:  ssh {found.hosts[0]}")


def show_removed(done: Included, *, as_json: bool) -> None:
    """Print what was removed and what stayed."""
    if as_json:
        _print(SshConfig((), ""), None, done)
        return
    say(f"{done.file} {'was not there' if done.absent else 'is deleted'}")
    message = "our lines are taken out" if done.changed else "was not changed"
    say(f"{done.config}: {message}{_copied(done)}")


def _copied(done: Included) -> str:
    return f"; a copy of what it was: {done.backup}" if done.backup else ""


def _print(found: SshConfig, file: Path | None, done: Included | None = None) -> None:
    body = {"hosts": list(found.hosts), "config": found.text, "file": str(file) if file else None}
    more = {} if done is None else {
        "user_config": str(done.config), "changed": done.changed,
        "backup": str(done.backup) if done.backup else None,
    }  # fmt: skip
    print_json("ssh-config", body | more)
