"""Show the address at which a tunnel is open."""

from dataclasses import asdict

from orchestrator.app.machines.tunnel import Opened
from orchestrator.cli.console import print_json, put, say


def show(found: Opened, *, as_json: bool) -> None:
    """Print the address to stdout."""
    if as_json:
        print_json("tunnel", asdict(found))
        return
    put(found.url)
    say(f"{found.service}: reachable at that address until Ctrl-C", style="green")
