"""Show what `down` has left."""

from dataclasses import asdict

from orchestrator.app.down import Down
from orchestrator.cli.console import print_json, say


def show(down: Down, *, as_json: bool) -> None:
    """Print that nothing is left; what is left is for the error to tell, and for JSON."""
    if as_json:
        items = [asdict(item) for item in down.leftovers]
        body = {
            "left": items,
            "data_kept": bool(down.remaining_bucket),
            "saved_usd_hour": down.saved_usd_hour,
        }
        print_json("down", body)
    elif not down.leftovers:
        if down.idle_cloud_stopped:
            say("the local cloud had nothing left to do and was stopped")
        where = f"; data is kept in gs://{down.remaining_bucket}" if down.remaining_bucket else ""
        say(f"nothing is left of {down.name}{where}", style="green")
